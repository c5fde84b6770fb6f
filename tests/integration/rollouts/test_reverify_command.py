"""`gymctl reverify` as a user runs it: an evaluation on local processes, and its rollouts scored again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gymctl.rollouts.saved import SavedRun


def gymctl(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gymctl", *arguments]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL
    )


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of five rollouts; of one the reward was changed by hand, one was spoiled by its judge."""
    folder = tmp_path_factory.mktemp("reverify")
    made = gymctl(folder, "eval", "weather", "--limit", "5", "-o", "x.jsonl", "--runtime", "process")
    assert made.returncode == 0, made.stderr
    paths = SavedRun.open(folder / "x.jsonl").paths
    records = [json.loads(line) for line in paths.rollouts.read_bytes().splitlines()]
    records[0]["reward"] = 0.25
    spoiled = {**records.pop(1), "_ng_failure_class": "judge_failed", "mask_sample": True}
    paths.rollouts.write_text("".join(json.dumps(record) + "\n" for record in records))
    paths.failures.write_text(json.dumps(spoiled) + "\n")
    return folder


@pytest.fixture
def run(evaluated: Path, tmp_path: Path) -> Path:
    for file in evaluated.glob("x*.jsonl"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def rewards(file: Path) -> dict[int, Any]:
    return {rollout.key[0]: rollout.outcome.reward for rollout in SavedRun.open(file).rollouts()}


def test_old_answers_get_the_scores_of_today_in_a_file_of_their_own(run: Path) -> None:
    before = (run / "x.jsonl").read_bytes()
    done = gymctl(run, "reverify", "x.jsonl", "weather", "--runtime", "process", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["verified"], told["same"], told["first_score"]) == (5, 3, 1)
    assert [(one["before"], one["after"]) for one in told["higher"]] == [(0.25, 1.0)]
    assert told["reward"] == {"before": 0.8125, "after": 1.0}
    assert "next: gymctl compare x.jsonl x_reverified.jsonl" in done.stderr
    assert "weather_agent" not in done.stderr  # only the verifier was started
    assert (run / "x.jsonl").read_bytes() == before
    assert rewards(run / "x_reverified.jsonl") == dict.fromkeys(range(5), 1.0)
    [entry] = json.loads((run / "x_reverified_aggregate_metrics.json").read_text())
    assert entry["agent_metrics"]["mean/reward"] == 1.0
    verified = gymctl(run, "verify", "x_reverified.jsonl")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    told = json.loads((run / "x_reverified/passport.json").read_text())
    assert told["scores_run"] == {"output": str((run / "x.jsonl").resolve())}
    assert (told["seal"]["owed"], list(told["servers"])) == (0, ["head", "weather"])
    again = gymctl(run, "reverify", "x.jsonl", "weather", "--runtime", "process")
    assert again.returncode == 1
    assert "the output is there already" in again.stderr
    assert "--overwrite" in again.stderr


def test_only_what_the_judge_spoiled_is_scored_and_added_to_the_run(run: Path) -> None:
    arguments = ("reverify", "x.jsonl", "weather", "--runtime", "process", "--only", "judge-failed")
    done = gymctl(run, *arguments, "--append")
    assert done.returncode == 0, done.stderr
    assert " verified    1 " in done.stdout
    assert " first score 1 " in done.stdout
    found = rewards(run / "x.jsonl")
    assert sorted(found.values()) == [0.25, 1.0, 1.0, 1.0, 1.0]


def test_a_torn_output_is_mended_and_the_rest_is_scored(run: Path) -> None:
    arguments = ("reverify", "x.jsonl", "weather", "--runtime", "process", "--json")
    assert gymctl(run, *arguments, "--limit", "2").returncode == 0
    passport = run / "x_reverified/passport.json"
    assert json.loads(passport.read_text())["seal"]["owed"] == 3
    output = run / "x_reverified.jsonl"
    output.write_bytes(output.read_bytes()[:-20])
    done = gymctl(run, *arguments, "--resume")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["verified"] == 4
    told = json.loads(passport.read_text())
    assert (told["seal"]["owed"], [one["in_spite_of"] for one in told["continued"]]) == (0, [[]])
    assert rewards(output) == dict.fromkeys(range(5), 1.0)


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (("nope.jsonl", "weather"), "which run is `nope.jsonl`?", 2),
        (("x.jsonl",), "which servers score the rollouts is not said", 2),
        (("x.jsonl", "weather", "--append"), "give rollouts a second score", 2),
        (("x.jsonl", "weather", "--overwrite", "--resume"), "do not go together", 2),
        (("x.jsonl", "weather", "--only", "failed"), "nothing to choose", 2),
        (("x.jsonl", "weather", "--limit", "0"), "`--limit` must be at least 1", 2),
        (("x.jsonl", "weather", "--server", "weather_agent"), "no resources server here", 1),
        (("x.jsonl", "weather", "-o", "x.jsonl"), "replace the run", 1),
        (("x.jsonl", "weather", "--inputs", "gone.jsonl"), "the inputs of this run are gone", 1),
        (("x.jsonl", "arithmetic"), "no resources server here verifies", 1),
    ],
)
def test_what_cannot_be_done_is_said_and_nothing_written(
    run: Path, arguments: tuple[str, ...], said: str, code: int
) -> None:
    done = gymctl(run, "reverify", *arguments, "--runtime", "process")
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr
    assert not list(run.glob("*reverified*"))


def test_a_verifier_with_sessions_is_only_asked_by_force(tmp_path: Path) -> None:
    row = {"_ng_task_index": 0, "_ng_rollout_index": 0, "task_source": "counter"}
    params = {"responses_create_params": {"input": "x"}, "expected_count": 3, "initial_count": 0}
    (tmp_path / "c_materialized_inputs.jsonl").write_text(json.dumps({**row, **params}))
    answer = {"output": [], "usage": None}
    (tmp_path / "c.jsonl").write_text(json.dumps({**row, "reward": 1.0, "response": answer}))
    refused = gymctl(tmp_path, "reverify", "c.jsonl", "--resources-server", "counter", "--runtime", "process")
    assert refused.returncode == 6, refused.stderr
    assert "`counter` (unsupported)" in refused.stderr
    arguments = ("reverify", "c.jsonl", "--resources-server", "counter", "--runtime", "process", "--force")
    done = gymctl(tmp_path, *arguments)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "unsafe_c_reverified.jsonl").exists(), done.stderr
    [entry] = json.loads((tmp_path / "unsafe_c_reverified_aggregate_metrics.json").read_text())
    assert entry["_ng_environment_server"] == "counter", "the record names no environment server"
