"""Rows, attempts and the keys that the collector adds to them (CONTRACT 8.5, 9.4-9.7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TASK_INDEX = "_ng_task_index"
ROLLOUT_INDEX = "_ng_rollout_index"
ATTEMPT_INDEX = "_ng_attempt_index"
ROLLOUT_ID = "_ng_rollout_id"
SKILLS = "skills_ref"
ENVIRONMENT_SERVER = "_ng_environment_server"
RESULT_TYPE = "_ng_result_type"
JOIN_KEY = "gymctl_rollout_id"
"""On every record: the id under which the servers' log lines tell of this rollout."""
OUTCOME = "gymctl_outcome"
"""On every record: `{"failure", "reason", "started_at", "seconds"}` as the collector saw it; `failure` is
null or a class of metrics.outcomes, `started_at` counts seconds since 1970; with `counts_as_zero` if the
benchmark declares the failure to be a reward of 0, and with `passed` if the rollout passed a cap of its own:
a list of `tokens`, `cost`. An object, so that it is no column."""
OBSERVATIONS = "ng_agent_observations"
MODEL_CALLS = "ng_model_call_capture"
TRAJECTORY = "ng_trajectory"
PERF = "ng_perf"
"""What was seen of a rollout while observability was on (CONTRACT 15)."""
RETRY_AFTER_KEY = "gymctl_retry_after"
"""On a failure record: the seconds that a refusal asked to wait (`Retry-After`)."""
FAILURE_CLASS = "_ng_failure_class"
NO_PERSIST = "_ng_no_persist"
MALFORMED_CALLS = "ng_malformed_tool_calls"
"""In a Response's `metadata`: how many tool calls had arguments that are not JSON; absent when none."""
BROKEN_CALLS = "ng_broken_tool_calls"
"""In a Response's `metadata`: how many tool calls the tool server failed (5xx); absent when none."""

Row = dict[str, Any]
"""A task row or a rollout record: JSON we pass through, plus the keys above."""


def is_materialized(row: Row) -> bool:
    """A row that names its task and input instead of an agent (CONTRACT 8.5)."""
    return isinstance(row.get("task_id"), dict) and "task_input" in row


def rollout_key(row: Row) -> tuple[int, int]:
    """(task index, rollout index); missing indices count as 0 (CONTRACT 10.1)."""
    return int(row.get(TASK_INDEX) or 0), int(row.get(ROLLOUT_INDEX) or 0)


def rollout_name(row: Mapping[str, Any]) -> str:
    """The rollout's id in URLs, logs and capture files: `3-0`, `3-0-a1` (CONTRACT 9.5)."""
    task, rollout, attempt = row.get(TASK_INDEX) or 0, row.get(ROLLOUT_INDEX) or 0, row.get(ATTEMPT_INDEX)
    name = row.get(ROLLOUT_ID) or f"{task}-{rollout}"
    return f"{name}-a{attempt}" if attempt else str(name)


def task_name(row: Mapping[str, Any]) -> str:
    """The task's own id, or else its index."""
    names = (row.get(key) for key in ("task_id", "problem_id", "instance_id"))
    name = next((name for name in names if name is not None), None)
    if isinstance(name, dict):
        name = name.get("task_id")
    return str(row.get(TASK_INDEX) or 0) if name is None else str(name)
