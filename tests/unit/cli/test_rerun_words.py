"""The command of a passport, typed again: another output, secrets from files, what it was pinned to."""

from __future__ import annotations

from pathlib import Path

import pytest

from gymctl.cli import rerun_words
from gymctl.errors import IntegrityError, UsageError
from gymctl.rollouts.passport import Identity, Machine, Passport, RowsDigest, issue

OUT = Path("/out/y.jsonl")
DIGEST = f"sha256:{'a' * 64}"


def told(*command: str, runtime: str = "process", **update: object) -> Passport:
    passport = issue(Identity(command=command), RowsDigest(), 1)
    return passport.model_copy(update={"machine": Machine(runtime=runtime), **update})


def words(passport: Passport, lock: Path | None = None, set_files: tuple[str, ...] = ()) -> list[str]:
    return rerun_words.of(passport, OUT, lock=lock, set_files=set_files)


@pytest.mark.parametrize(
    "output",
    [
        ("-o", "x.jsonl"),
        ("-ox.jsonl",),
        ("--output", "x.jsonl"),
        ("--output=x.jsonl",),
        ("++output_jsonl_fpath=x.jsonl",),
        ("--fresh",),
        ("--json", "-q", "--resume-anyway"),
        (),
    ],
)
def test_only_the_output_is_another(output: tuple[str, ...]) -> None:
    found = words(told("gymctl", "eval", "weather", *output, "-k", "2", "--runtime", "process"))
    assert found == ["eval", "weather", "-k", "2", "--runtime", "process", "-o", str(OUT)]


def test_the_runtime_and_the_images_are_those_of_the_run() -> None:
    assert words(told("gymctl", "eval", "weather"))[2:4] == ["--runtime", "process"]
    found = words(
        told("gymctl", "eval", "w", "--locked", "--lock", "a", runtime="compose"), Path("/x/l.json")
    )
    assert found[2:7] == ["--runtime", "compose", "--locked", "--lock", "/x/l.json"]
    running = words(told("gymctl", "eval", "--no-serve", runtime="compose"), Path("/x/l.json"))
    assert running == ["eval", "--no-serve", "-o", str(OUT)]


def test_a_benchmark_of_a_registry_is_taken_by_its_digest() -> None:
    benchmark = {"reference": "localhost:5000/team/weather:1", "digest": DIGEST}
    run = told(
        "gymctl", "eval", "localhost:5000/team/weather:1", "-k", "2", runtime="compose", benchmark=benchmark
    )
    found = words(run, Path("/x/l.json"))
    assert found[1] == f"localhost:5000/team/weather:1@{DIGEST}"
    assert "--locked" not in found


def test_other_spellings_are_translated() -> None:
    found = words(told("gym", "eval", "run", "--benchmark", "weather", "+output_jsonl_fpath=x.jsonl"))
    assert found[0] == "eval" and "weather" in " ".join(found) and "x.jsonl" not in " ".join(found)
    collected = words(told("ng_collect_rollouts", "+input_jsonl_fpath=a.jsonl", "+agent_name=b"))
    assert collected[0] == "eval" and "--no-serve" in collected
    with pytest.raises(IntegrityError, match="not made by"):
        words(told("gymctl", "reverify", "x"))
    with pytest.raises(IntegrityError, match="by which command"):
        words(told())


@pytest.mark.parametrize(
    ("typed", "key"),
    [
        (("--model-api-key", "****"), "policy_api_key"),
        (("--model-api-key=****",), "policy_api_key"),
        (("++judge.api_key=****",), "judge.api_key"),
        (("--model-url", "https://****@example.org/v1"), "policy_base_url"),
    ],
)
def test_a_secret_that_was_typed_is_asked_for_by_its_key(
    typed: tuple[str, ...], key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = told("gymctl", "eval", *typed, "weather")
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    with pytest.raises(UsageError) as refused:
        words(run)
    assert f"`{key}`" in refused.value.what and f"--set-file {key}=FILE" in str(refused.value.hint)
    found = words(run, set_files=(f"{key}=/k",))
    assert found[:4] == ["eval", "weather", "--set-file", f"{key}=/k"]
    assert "****" not in " ".join(found)
