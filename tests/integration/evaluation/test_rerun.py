"""`gymctl rerun --exact`: the same records from a model that plays, refused when anything differs."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes.evaluations import REPO
from fakes.openai_upstream import OpenAIUpstream
from fakes.program import gymctl, own_head, processes_below, read_lines, start

from gymctl.contract.rollout import rollout_key
from gymctl.rollouts import passport, seal
from gymctl.rollouts.canonical import canonical

WEATHER = "resources_servers/weather"
CONFIG = """\
config_paths: [benchmarks/weather/config.yaml]
weather:
  resources_servers:
    weather:
      resources: {pids: 500}
"""
RUN = (
    *("eval", "run.yaml", "--search-dir", ".", "--runtime", "process", "-i", "rows.jsonl"),
    *("--prompt-config", "prompt.yaml", "--temperature", "0.3", "--model-api-key", "sk-typed-once-0815"),
)
LATE = "++policy_model.responses_api_models.scripted_model.faults.latency_ms=400"


def rows(folder: Path, count: int) -> None:
    with (REPO / "benchmarks/weather/data/weather.jsonl").open() as file:
        found = [json.loads(line) for line, _ in zip(file, range(count), strict=False)]
    for row in found:
        row["question"] = row["responses_create_params"].pop("input")[0]["content"]
    (folder / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in found))


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run whose rows, prompt, configuration and verifier lie in a folder of their own."""
    folder = tmp_path_factory.mktemp("done") / "run"
    shutil.copytree(REPO / "server_images" / WEATHER, folder / WEATHER)
    rows(folder, 5)
    (folder / "prompt.yaml").write_text('user: "{question}"\n')
    (folder / "run.yaml").write_text(CONFIG)
    (folder / "key").write_text("sk-typed-once-0815")
    first = gymctl(*RUN, "-o", "out/x.jsonl", cwd=folder)
    assert first.returncode == 0, first.stderr
    return folder


def again(folder: Path, *more: str) -> tuple[int, str, str]:
    ended = gymctl("rerun", "out/x.jsonl", "--set-file", "policy_api_key=key", *more, cwd=folder)
    return ended.returncode, ended.stdout, ended.stderr


def records(path: Path) -> list[bytes]:
    return [canonical(record) for record in sorted(read_lines(path), key=rollout_key)]


def test_two_exact_reruns_give_the_same_bytes(done: Path) -> None:
    for name in ("a", "b"):
        code, out, err = again(done, "--exact", "--gate", "--json", "-o", f"out/{name}.jsonl")
        assert code == 0, err
        told = json.loads(out)
        assert (told["records"], told["equal"], told["not_as_it_was"]) == (5, 5, [])
        assert told["evaluation"]["rollouts"]["scored"] == 5
    first = records(done / "out/x.jsonl")
    assert len(first) == 5 and b"0-0" in first[0]
    assert records(done / "out/a.jsonl") == records(done / "out/b.jsonl") == first
    passport = json.loads((done / "out/a/passport.json").read_text())
    original = json.loads((done / "out/x/passport.json").read_text())
    assert passport["repeats_run"] == {"run": original["run"], "output": str(done / "out/x.jsonl")}
    assert passport["command"][:3] == ["gymctl", "eval", "run.yaml"]
    assert original["sampling"] == {"temperature": [0.3]}
    kept = "".join(path.read_text() for path in (done / "out").rglob("*") if path.is_file())
    assert "sk-typed-once-0815" not in kept
    for run in ("x", "a"):
        verified = gymctl("verify", f"out/{run}.jsonl", "--strict", cwd=done)
        assert verified.returncode == 0, verified.stdout
        assert "code weather " in verified.stdout and "prompt prompt.yaml" in verified.stdout
    assert (
        "the passports tell of no difference" in gymctl("passport", "diff", "out/a", "out/b", cwd=done).stdout
    )


def replace(name: str, old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    return change


SEED = """\
policy_model:
  responses_api_models:
    scripted_model: {seed: 7}
"""
TOLD = {
    '"gymctl": "': ('"gymctl": "9.', "version gymctl: 9."),
    '"environment": "': ('"environment": "0', "environment weather environment: 0"),
    '"model": null': ('"model": "luna"', "model model: luna → nothing"),
    '"limits": {}': ('"limits": {"--task-timeout": 9.0}', "limit --task-timeout: 9.0 → nothing"),
}
CHANGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "row": (replace("rows.jsonl", "in Cairo today", "in Cairo now"), "rows 1-0: "),
    "prompt": (replace("prompt.yaml", "{question}", "{question}!"), "file prompt.yaml: "),
    "code": (replace(f"{WEATHER}/app.py", "-?\\d+", "-?\\d{1,}"), "config weather.code: "),
    "limit": (
        replace("run.yaml", "pids: 500", "pids: 501"),
        "config weather.resources_servers.weather.resources.pids: 500 → 501",
    ),
    "value": (
        replace("run.yaml", "pids: 500}\n", "pids: 500}\n" + SEED),
        "config policy_model.responses_api_models.scripted_model.seed: 0 → 7",
    ),
}


@pytest.fixture
def folder(done: Path) -> Path:
    """The same place again: the run tells where it was made."""
    kept = done.with_name("kept")
    shutil.copytree(done, kept, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".gymctl"))
    shutil.rmtree(done)
    shutil.copytree(kept, done)
    return done


@pytest.mark.parametrize("name", CHANGES)
def test_what_differs_is_refused_by_name_before_anything_starts(
    folder: Path, name: str, request: pytest.FixtureRequest
) -> None:
    kept = folder.with_name("kept")
    request.addfinalizer(lambda: (shutil.rmtree(folder), shutil.copytree(kept, folder)))
    change, told = CHANGES[name]
    change(folder)
    code, out, err = again(folder, "--exact", "-o", "out/refused.jsonl")
    assert code == 9, err
    assert told in err and "would not be made with the same" in err
    assert out == ""
    assert not (folder / ".gymctl").exists(), "no project was started"
    assert processes_below(folder) == []
    assert not list((folder / "out").glob("*refused*")), "and nothing was written"


def seal_again(path: Path) -> None:
    """As whoever edits a passport and knows how it is sealed."""
    told = json.loads(path.read_bytes())
    told["seal"]["passport"] = seal.own_digest(told)
    path.write_bytes(passport.text(told))


@pytest.mark.parametrize(
    ("name", "old", "new", "told"),
    [
        ("x/passport.json", '"repeats": 1', '"repeats": 2', "passport: edited"),
        ("x.jsonl", '"reward":1.0', '"reward":0.0', "rollouts: expected sha256:"),
    ],
)
def test_a_run_that_was_edited_is_no_measure(
    folder: Path, name: str, old: str, new: str, told: str, request: pytest.FixtureRequest
) -> None:
    kept = folder.with_name("kept")
    request.addfinalizer(lambda: (shutil.rmtree(folder), shutil.copytree(kept, folder)))
    replace(f"out/{name}", old, new)(folder)
    code, out, err = again(folder, "--exact", "-o", "out/refused.jsonl")
    assert (code, out) == (9, "")
    assert told in err and "not what they were when it ended" in err
    assert not list((folder / "out").glob("*refused*"))


def test_another_version_environment_model_or_limit_is_refused(
    folder: Path, request: pytest.FixtureRequest
) -> None:
    kept = folder.with_name("kept")
    request.addfinalizer(lambda: (shutil.rmtree(folder), shutil.copytree(kept, folder)))
    for old, (new, _) in TOLD.items():
        replace("out/x/passport.json", old, new)(folder)
    seal_again(folder / "out/x/passport.json")
    code, _, err = again(folder, "--exact")
    assert code == 9
    for _, told in TOLD.values():
        assert told in err
    assert not (folder / ".gymctl").exists()


def test_limits_that_are_in_force_are_compared_before_the_first_rollout(
    folder: Path, request: pytest.FixtureRequest
) -> None:
    kept = folder.with_name("kept")
    request.addfinalizer(lambda: (shutil.rmtree(folder), shutil.copytree(kept, folder)))
    path = folder / "out/x/passport.json"
    told = json.loads(path.read_text())
    told["servers"]["weather"].update(cgroup="v2", memory_bytes=12345678)
    path.write_text(json.dumps(told))
    seal_again(path)
    code, _, err = again(folder, "--exact", "-o", "out/refused.jsonl")
    if json.loads((kept / "out/x/passport.json").read_text())["servers"]["weather"]["cgroup"] is None:
        pytest.skip("no cgroup can be read here")
    assert code == 9
    assert "in force weather.memory_bytes: 12345678 → " in err
    assert not list((folder / "out").glob("*refused*"))
    assert processes_below(folder) == []


def test_without_exact_a_difference_is_a_warning_and_shows_in_the_records(
    folder: Path, request: pytest.FixtureRequest
) -> None:
    kept = folder.with_name("kept")
    request.addfinalizer(lambda: (shutil.rmtree(folder), shutil.copytree(kept, folder)))
    replace(f"{WEATHER}/app.py", "says_sky = truth.sky in answer", 'says_sky = truth.sky == "rain"')(folder)
    code, out, err = again(folder, "--gate")
    assert code == 7, err
    assert "warning: not as it was: config weather.code: sha256:" in err
    assert "1 of 5 records equal" in out and "   0-0       reward\n" in out
    assert len(read_lines(folder / "out/x_rerun.jsonl")) == 5
    missing = gymctl("rerun", "out/x.jsonl", "--exact", cwd=folder)
    assert missing.returncode == 2 and "--set-file policy_api_key=FILE" in missing.stderr


async def test_a_recorded_model_gives_the_same_again_and_an_edited_cassette_does_not(tmp_path: Path) -> None:
    run = ("eval", "arithmetic", "--runtime", "process", "--limit", "4", "-o")
    async with OpenAIUpstream() as upstream:
        model = (
            "--model-type",
            "openai_model",
            "--model-url",
            upstream.url,
            "--model-api-key",
            "sk-key-4711",
        )
        tape = ("--model", "record:run.cassette:luna")
        made = await asyncio.to_thread(gymctl, *run, "rec.jsonl", *model, *tape, cwd=tmp_path)
        assert made.returncode == 0, made.stderr
    played = gymctl(*run, "x.jsonl", "--model", "replay:run.cassette", cwd=tmp_path)
    assert played.returncode == 0, played.stderr
    for name in ("a", "b"):
        ended = gymctl("rerun", "x.jsonl", "--exact", "--gate", "-o", f"{name}.jsonl", cwd=tmp_path)
        assert ended.returncode == 0, ended.stderr
        assert "4 of 4 records equal" in ended.stdout
    assert records(tmp_path / "a.jsonl") == records(tmp_path / "b.jsonl") == records(tmp_path / "x.jsonl")
    cassette = tmp_path / "run.cassette"
    cassette.write_bytes(cassette.read_bytes() + b"\n")
    refused = gymctl("rerun", "x.jsonl", "--exact", "-o", "c.jsonl", cwd=tmp_path)
    assert refused.returncode == 9 and "file (content): sha256:" in refused.stderr
    verified = gymctl("verify", "x.jsonl", cwd=tmp_path)
    assert verified.returncode == 9 and "cassette_model.file: differs" in verified.stderr


def test_a_run_that_was_killed_is_not_sealed_until_it_was_gone_on_with(tmp_path: Path) -> None:
    command = ("eval", "weather", "--runtime", "process", "--limit", "8", "--concurrency", "2", LATE)
    command = (*command, "-o", "x.jsonl", own_head())
    running = start(*command, cwd=tmp_path)
    path = tmp_path / "x.jsonl"
    limit = time.monotonic() + 120
    while not path.exists() or b"\n" not in path.read_bytes():
        assert time.monotonic() < limit and running.poll() is None
        time.sleep(0.05)
    running.send_signal(signal.SIGKILL)
    running.communicate()
    killed = gymctl("verify", "x.jsonl", cwd=tmp_path)
    assert killed.returncode == 0, killed.stderr
    assert "not finished: it runs, or it was killed" in killed.stdout
    assert gymctl("verify", "x.jsonl", "--strict", cwd=tmp_path).returncode == 9
    went_on = gymctl(*command, cwd=tmp_path)
    assert went_on.returncode == 0, went_on.stderr
    verified = gymctl("verify", "x.jsonl", "--strict", "--json", cwd=tmp_path)
    assert verified.returncode == 0, verified.stderr
    assert {one["status"] for one in json.loads(verified.stdout)["findings"]} == {"ok"}
    assert json.loads((tmp_path / "x/passport.json").read_text())["models_returned"] == {"scripted": 8}
