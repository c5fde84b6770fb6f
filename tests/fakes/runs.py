"""Runs on disk, written by hand: what `compare` and `why` read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gymctl.paths import RunPaths

Record = dict[str, Any]


def row(task: int, rollout: int = 0, *, question: str | None = None, **more: Any) -> Record:
    """A row as it stands in the inputs file."""
    return {
        "_ng_task_index": task,
        "_ng_rollout_index": rollout,
        "agent_ref": {"name": "agent"},
        "responses_create_params": {"input": [{"role": "user", "content": question or f"question {task}"}]},
        **more,
    }


def write(
    folder: Path,
    name: str,
    rewards: Mapping[int, Sequence[float | None]],
    *,
    questions: Mapping[int, str] | None = None,
    fields: Mapping[int, Mapping[str, Any]] | None = None,
    has_inputs: bool = True,
    failures: Iterable[Record] = (),
) -> Path:
    """One run: rewards by task; None is a rollout that failed because the network broke."""
    rows, records, failed = [], [], [*failures]
    for task, attempts in rewards.items():
        for rollout, reward in enumerate(attempts):
            more = (fields or {}).get(task, {})
            planned = row(task, rollout, question=(questions or {}).get(task), **more)
            rows.append(planned)
            if reward is None:
                failed.append(
                    {
                        "_ng_task_index": task,
                        "_ng_rollout_index": rollout,
                        "_ng_failure_class": "agent_request_failed",
                        "failure_kind": "transport_peer_drop",
                    }
                )
            else:
                response = {"model": "luna-4", "usage": {"output_tokens": 10 + task}}
                records.append({**planned, "reward": reward, "response": response})
    paths = RunPaths(folder / f"{name}.jsonl")
    lines(paths.rollouts, records)
    if failed:
        lines(paths.failures, failed)
    if has_inputs:
        lines(paths.inputs, rows)
    return paths.rollouts


def lines(path: Path, records: Iterable[Record]) -> None:
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
