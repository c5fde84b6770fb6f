"""What a server is asked to aggregate: ordered, stripped, with zeros where the settings want them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gymctl.metrics.declared import Declaration
from gymctl.paths import RunPaths
from gymctl.rollouts.metric_input import Counting, MetricInput
from gymctl.rollouts.saved import SavedRun

JUDGE = Counting(Declaration(labels=frozenset({"judge_failed"})))


def at(task: int, rollout: int = 0, **more: Any) -> dict[str, Any]:
    return {"_ng_task_index": task, "_ng_rollout_index": rollout, "_ng_environment_server": "env", **more}


def failed(task: int, label: str = "judge_failed", **more: Any) -> dict[str, Any]:
    return at(task, _ng_failure_class=label, failure_kind="judge_failed", mask_sample=True, **more)


@pytest.fixture
def saved(tmp_path: Path) -> SavedRun:
    paths = RunPaths(tmp_path / "x.jsonl")
    inputs = [at(task, subject=f"s{task}", secret_answer=1) for task in range(5)]
    rollouts = [
        at(2, reward=1.0, subject="s2", response={"output": [1], "usage": {"n": 1}}),
        at(0, reward=0.5, subject="s0", ng_trajectory={"turns": []}),
    ]
    failures = [
        failed(1, reward=0.7, _ng_failure_message="first"),
        failed(1, _ng_failure_message="last", failure_reason="x"),
        failed(3, "agent_run_error"),
        failed(2),
    ]
    for path, rows in ((paths.inputs, inputs), (paths.rollouts, rollouts), (paths.failures, failures)):
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return SavedRun(paths)


def bodies(saved: SavedRun, counting: Counting) -> tuple[dict[str, list[dict[str, Any]]], int]:
    with MetricInput([saved], counting, lambda row: "env") as found:
        found.fill()
        read = {name: json.loads(body.read_bytes())["verify_responses"] for name, body in found.bodies()}
    return read, found.missing


def test_rows_are_stripped_and_ordered_by_task(saved: SavedRun) -> None:
    found, missing = bodies(saved, Counting())
    assert found == {
        "env": [
            at(0, reward=0.5, subject="s0"),
            at(2, reward=1.0, subject="s2", response={"usage": {"n": 1}}),
        ]
    }
    assert missing == 0


def test_the_last_listed_failure_of_a_key_that_never_succeeded_counts_as_zero(saved: SavedRun) -> None:
    found, missing = bodies(saved, JUDGE)
    assert [row["_ng_task_index"] for row in found["env"]] == [0, 1, 2]
    assert found["env"][1] == at(1, reward=0.0, mask_sample=False, subject="s1")
    assert missing == 0


def test_missing_rollouts_count_as_zero_with_the_fields_that_scored_rows_carry(saved: SavedRun) -> None:
    found, missing = bodies(saved, Counting(JUDGE.declared, missing=True))
    assert found["env"][-1] == at(4, reward=0.0, subject="s4")
    assert [row["_ng_task_index"] for row in found["env"]] == [0, 1, 2, 4]  # 3 failed and is not missing
    assert missing == 1


def test_nothing_of_a_run_is_changed(saved: SavedRun) -> None:
    before = {path: path.read_bytes() for path in saved.paths.rollouts.parent.iterdir()}
    bodies(saved, Counting(JUDGE.declared, missing=True))
    assert {path: path.read_bytes() for path in saved.paths.rollouts.parent.iterdir()} == before


def test_a_run_without_any_row_asks_nobody(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").touch()
    assert bodies(SavedRun(RunPaths(tmp_path / "x.jsonl")), Counting()) == ({}, 0)
