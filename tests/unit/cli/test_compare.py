"""`gymctl compare` as it is typed: the table, the JSON (golden), the gate's exit code."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from fakes import runs

from gymctl.cli.compare import allowed_loss
from gymctl.cli.main import main
from gymctl.errors import UsageError
from gymctl.paths import RunPaths
from gymctl.rollouts import passport
from gymctl.rollouts.passport import Identity, RowsDigest

FIELDS = {task: {"level": "easy" if task % 2 else "hard"} for task in range(30)}
GOLDEN = Path(__file__).parent / "golden" / "compare.json"


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return int(ended.value.code or 0)


def _runs(folder: Path, *, is_shuffled: bool = False) -> tuple[Path, Path]:
    """B is worse at 12 of 30 tasks and better at 3; two attempts of B are missing."""
    generator = random.Random(1)
    a = {task: [float(generator.random() < 0.7) for _ in range(4)] for task in range(30)}
    b = {task: [*attempts] for task, attempts in a.items()}
    for task in range(12):
        b[task] = [0.0, 0.0, *a[task][2:]]
    for task in range(12, 15):
        b[task] = [1.0] * 4
    b[20] = [*b[20][:2], None, None]  # type: ignore[list-item]
    paths = runs.write(folder, "monday", a, fields=FIELDS), runs.write(folder, "weather", b, fields=FIELDS)
    if is_shuffled:
        for path in (*paths, paths[1].with_name("weather_materialized_inputs.jsonl")):
            lines = path.read_text().splitlines(keepends=True)
            generator.shuffle(lines)
            path.write_text("".join(lines))
    return paths


def test_the_table(tmp_path, capsys) -> None:
    a, b = _runs(tmp_path)
    assert run("compare", a, b, "--gate", "no-worse-than=0.02", "--by", "level") == 7
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0].startswith("A monday   luna-4  0.")
    assert "B weather   luna-4  0." in lines[0]
    assert " paired    30 tasks in both, same content · 0 left out" in lines
    verdict = next(line for line in lines if line.startswith(" verdict"))
    assert verdict.split()[1] == "worse"
    assert "gate failed: may lose up to 0." in verdict
    assert any(
        line.startswith(" B − A     −0.") and "95 % −0." in line and "sign flips" in line for line in lines
    )
    assert any("smallest difference visible at 80 %: 0." in line and "unpaired" in line for line in lines)
    assert any(line.startswith(" by group  easy   15 tasks") for line in lines)
    assert any(line.startswith(" coverage  A 100.0%, B 98.3%: worst case for B − A −0.") for line in lines)
    assert "error: weather: gate failed" in err
    assert f"next: gymctl why {b}" in err


def test_the_json_is_the_golden_one_whatever_the_order_of_lines(tmp_path, capsys) -> None:
    """To make it anew after a change that is meant: delete the file and run the test twice."""
    found = []
    for name in ("straight", "shuffled"):
        (tmp_path / name).mkdir()
        a, b = _runs(tmp_path / name, is_shuffled=name == "shuffled")
        assert run("compare", a, b, "--json", "--margin", "0.05", "--by", "level") == 0
        found.append(capsys.readouterr().out.replace(f"{tmp_path / name}/", ""))
    assert found[0] == found[1]
    if not GOLDEN.exists():
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(found[0])
        pytest.fail(f"{GOLDEN} was written; read it")
    _assert_close(json.loads(found[0]), json.loads(GOLDEN.read_text()))


def _assert_close(found: object, expected: object) -> None:
    """Equal, but for the last digits that another mathematics library computes."""
    assert type(found) is type(expected)
    if isinstance(found, dict) and isinstance(expected, dict):
        assert list(found) == list(expected)
        for key in found:
            _assert_close(found[key], expected[key])
    elif isinstance(found, list) and isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            _assert_close(one, other)
    elif isinstance(found, float):
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)
    else:
        assert found == expected


def test_a_gate_that_holds_exits_0(tmp_path, capsys) -> None:
    a, _ = _runs(tmp_path)
    assert run("compare", a, a, "--gate", "no-worse-than=0.2") == 0
    assert "gate passed: may lose up to 0." in capsys.readouterr().out


def test_a_gate_does_not_hold_where_nothing_can_be_compared(tmp_path, capsys) -> None:
    a = runs.write(tmp_path, "a", {0: [1]})
    b = runs.write(tmp_path, "b", {0: [1]}, questions={0: "something else"})
    assert run("compare", a, b, "--gate", "no-worse-than=0.5") == 7
    out = capsys.readouterr().out
    assert "unknown: no task has a score in both" in out
    assert "changed: 0" in out


def test_a_gate_counts_the_worst_case_when_too_much_is_missing(tmp_path) -> None:
    """Dropping what one loses must not pass a gate."""
    rewards = {task: [1.0, 0.0] for task in range(40)}
    a = runs.write(tmp_path, "a", rewards)
    b = runs.write(tmp_path, "b", {task: [1.0, None] for task in rewards})
    assert run("compare", a, b, "--gate", "no-worse-than=0.1") == 0, (
        "at worst every missing one is 0, as in A"
    )
    c = runs.write(tmp_path, "c", {task: [None, 1.0] if task else [1.0, 1.0] for task in range(40)})
    d = runs.write(tmp_path, "d", {task: [1.0, 1.0] for task in rewards})
    assert run("compare", d, c, "--gate", "no-worse-than=0.2") == 7
    assert run("compare", d, c, "--gate", "no-worse-than=0.2", "--min-coverage", "0.5") == 0


def test_several_runs_are_each_compared_with_the_first_and_adjusted(tmp_path, capsys) -> None:
    a, b = _runs(tmp_path)
    c = runs.write(tmp_path, "third", {task: [1.0] * 4 for task in range(30)}, fields=FIELDS)
    assert run("compare", a, b, c, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    first, second = found["comparisons"]
    assert (first["a"], first["b"], second["a"], second["b"]) == ("A", "B", "A", "C")
    assert second["left_out"]["changed"] == []
    low, high = sorted((first, second), key=lambda one: one["p"])
    assert low["p_adjusted"] == pytest.approx(2 * low["p"])
    assert high["p_adjusted"] >= high["p"]


def test_markdown_has_the_same_lines(tmp_path, capsys) -> None:
    a, b = _runs(tmp_path)
    assert run("compare", a, b, "--md") == 0
    out = capsys.readouterr().out.splitlines()
    assert out[2:4] == ["| | |", "|---|---|"]
    assert any(line.startswith("| verdict | worse") for line in out)


@pytest.mark.parametrize(
    "gate", ["no-worse-than", "no-worse-than=x", "no-worse-than=-1", "better=0.1", "no-worse-than=nan"]
)
def test_a_gate_that_says_nothing_is_refused(gate) -> None:
    with pytest.raises(UsageError, match="no-worse-than=X"):
        allowed_loss(gate)


def test_usage(tmp_path, capsys) -> None:
    a, _ = _runs(tmp_path)
    assert run("compare", a) == 2
    assert run("compare", a, tmp_path / "gone.jsonl") == 2
    assert run("compare", a, a, "--json", "--md") == 2
    assert run("compare", a, a, "--margin", "0") == 2
    assert "two runs at least are needed" in capsys.readouterr().err


def _passport(path: Path, **what: Any) -> None:
    images, files = what.pop("images", {}), what.pop("files", {})
    identity = Identity(files=files, **what)
    made = passport.issue(identity, RowsDigest(), 4).model_copy(update={"images": images})
    passport.write(RunPaths(path).passport, made)


def test_long_keys_that_begin_alike_are_told_apart(tmp_path, capsys) -> None:
    a, b = _runs(tmp_path)
    key = "policy_model.responses_api_models.scripted_model.faults.statuses."
    _passport(a, config={f"{key}503": 0.1, f"{key}400": 0.1})
    _passport(b, config={f"{key}503": 0.3, f"{key}400": 0.2})
    assert run("compare", a, b) == 0
    out = capsys.readouterr().out
    assert "config policy_model…s_api_models.scripted_model.faults.statuses.400 0.2 ← 0.1" in out
    assert "config policy_model…s_api_models.scripted_model.faults.statuses.503 0.3 ← 0.1" in out
    assert all(len(line) < 110 for line in out.splitlines())


def test_what_the_runs_were_made_with_differently_stands_above_the_numbers(tmp_path, capsys) -> None:
    a, b = _runs(tmp_path)
    config = {"weather.timeout": 60, "weather.same": [1, (2, 3)], "policy_model.api_key": "***"}
    _passport(
        a,
        config=config,
        images={"weather": "gymctl/res-weather:77aa91012345"},
        files={"old/rows.jsonl": "sha256:1"},
        limits={"--task-timeout": 60.0},
    )
    _passport(
        b,
        config={**config, "weather.timeout": 30, "weather.prompt": "a\x1b[31m\nb"},
        images={"weather": "gymctl/res-weather:b7d2a1812345"},
        files={"new/rows.jsonl": "sha256:1"},
        settings={"num_repeats": 4},
    )
    assert run("compare", a, b) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:4] == [
        " differs   image weather b7d2a18 ← 77aa910 · config weather.timeout 30 ← 60",
        "           config weather.prompt a [31m b ← nothing · setting num_repeats 4 ← nothing",
    ]
    assert lines[4] == "           limit --task-timeout nothing ← 60.0"
    assert lines[5].startswith(" paired ")
    assert run("compare", a, b, "--md") == 0
    assert "| differs | image weather b7d2a18 ← 77aa910 ·" in capsys.readouterr().out
    assert run("compare", a, b, "--json") == 0
    told = json.loads(capsys.readouterr().out)["comparisons"][0]["differs"]
    assert told[:2] == [
        {
            "kind": "image",
            "key": "weather",
            "a": "gymctl/res-weather:77aa91012345",
            "b": "gymctl/res-weather:b7d2a1812345",
        },
        {"kind": "config", "key": "weather.timeout", "a": 60, "b": 30},
    ]
    assert len(told) == 5


def test_runs_with_and_without_passports(tmp_path, capsys) -> None:
    a, b = _runs(tmp_path)
    assert run("compare", a, b) == 0
    assert " differs   unknown, no passport: monday, weather\n" in capsys.readouterr().out
    _passport(a)
    assert run("compare", a, b) == 0
    assert " differs   unknown, no passport: weather\n" in capsys.readouterr().out
    _passport(b)
    assert run("compare", a, b) == 0
    assert " differs   nothing that the passports tell of\n" in capsys.readouterr().out
    found = json.loads(RunPaths(b).passport.read_text())
    RunPaths(b).passport.write_text(json.dumps({**found, "schema_version": 99}))
    assert run("compare", a, b, "--json") == 0
    assert json.loads(capsys.readouterr().out)["comparisons"][0]["differs"] is None


def test_more_differences_than_fit_are_counted(tmp_path, capsys) -> None:
    a, b = _runs(tmp_path)
    _passport(a, config={f"weather.key_{n}": n for n in range(20)})
    _passport(b)
    assert run("compare", a, b) == 0
    assert "and 8 more (--json has all)" in capsys.readouterr().out
