"""Records in the form in which two runs of the same are equal: no times, ports, made-up ids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gymctl.paths import RunPaths
from gymctl.rollouts.canonical import Comparison, canonical, compare

ONE: dict[str, Any] = {
    "_ng_task_index": 3,
    "_ng_rollout_index": 0,
    "gymctl_rollout_id": "3-0",
    "reward": 1.0,
    "response": {
        "id": "resp_53f2ba02b22eaac6",
        "created_at": 1796076367.9,
        "output": [
            {"type": "function_call", "call_id": "call_5f96b5fc6b9d", "arguments": '{"port": 8080}'},
            {"type": "function_call_output", "call_id": "call_5f96b5fc6b9d", "output": "at 12:30"},
            {"type": "message", "content": [{"text": "see http://localhost:8080 resp_53f2ba02b22eaac6"}]},
        ],
    },
    "error": "http://127.0.0.1:18332/run: refused",
    "ng_perf": {"total_latency_ms": 3.0},
    "gymctl_outcome": {"failure": None, "started_at": 1796076367.953, "seconds": 0.013},
}


def changed(path: str, value: Any) -> dict[str, Any]:
    record = json.loads(json.dumps(ONE))
    *steps, last = path.split("/")
    inner = record
    for step in steps:
        inner = inner[int(step) if step.isdigit() else step]
    inner[last] = value
    return record


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("response/id", "resp_ffffffff0fffffff"),
        ("response/created_at", 5),
        ("error", "http://127.0.0.1:18999/run: refused"),
        ("ng_perf", {"total_latency_ms": 99}),
        ("gymctl_outcome/seconds", 7.5),
        ("gymctl_outcome/started_at", 1.0),
    ],
)
def test_clocks_ports_and_made_up_ids_do_not_count(path: str, value: Any) -> None:
    assert canonical(changed(path, value)) == canonical(ONE)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("reward", 0.0),
        ("response/output/0/arguments", '{"port": 8081}'),
        ("response/output/1/output", "at 12:31"),
        ("response/output/2/content", [{"text": "see http://localhost:8081 resp_53f2ba02b22eaac6"}]),
        ("response/output/1/call_id", "call_another00001"),
        ("gymctl_rollout_id", "4-0"),
        ("error", "http://127.0.0.1:18332/verify: refused"),
        ("gymctl_outcome/failure", "model"),
        ("created_at", {"properties": 1}),
    ],
)
def test_all_that_was_said_and_scored_counts(path: str, value: Any) -> None:
    assert canonical(changed(path, value)) != canonical(ONE)


def test_runs_are_compared_rollout_by_rollout_whatever_their_order(tmp_path: Path) -> None:
    records = [{**ONE, "_ng_task_index": task, "gymctl_rollout_id": f"{task}-0"} for task in range(4)]
    old, new = RunPaths(tmp_path / "a.jsonl"), RunPaths(tmp_path / "b.jsonl")
    write(old, records)
    write(new, records[::-1])
    assert compare(old, new) == Comparison(4, 4)
    write(new, [records[3], {**records[2], "reward": 0.5}, records[0]])
    found = compare(old, new)
    assert str(found) == "2 of 4 records equal"
    assert found.differs == (("1-0", "only the first run has it"), ("2-0", "reward"))


def write(paths: RunPaths, records: list[dict[str, Any]]) -> None:
    paths.rollouts.write_text("".join(f"{json.dumps(record)}\n" for record in records))
