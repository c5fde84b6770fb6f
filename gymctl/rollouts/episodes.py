"""What is sent to an environment server and what its answer is as a record (CONTRACT 9.6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gymctl.contract.rollout import (
    ATTEMPT_INDEX,
    ENVIRONMENT_SERVER,
    FAILURE_CLASS,
    JOIN_KEY,
    OUTCOME,
    RESULT_TYPE,
    ROLLOUT_ID,
    ROLLOUT_INDEX,
    TASK_INDEX,
    Row,
    is_materialized,
    rollout_key,
)
from gymctl.metrics.fingerprint import SERVER
from gymctl.metrics.outcomes import Outcome
from gymctl.rollouts.encoding import dumps, parse
from gymctl.rollouts.failures import broken_answer, episode_failure, error_answer, told_beside
from gymctl.transport import Answer

_RESERVED = ("ng_trajectory", "ng_model_call_capture", "ng_perf")
_FROM_ROW = ("agent_ref", "task_source", "skills_ref", ATTEMPT_INDEX, ROLLOUT_ID)


def body(line: bytes, row: Row) -> bytes:
    """A flat row goes out as it stands in the inputs file; a materialized one as an episode request."""
    if not is_materialized(row):
        return line
    task, rollout = rollout_key(row)
    episode = {
        "rollout_id": row.get(ROLLOUT_ID) or f"{task}-{rollout}",
        "attempt": row.get(ATTEMPT_INDEX) or 0,
    }
    return dumps(
        {"episode_id": episode, "task": {"task_id": row["task_id"], "task_input": row["task_input"]}}
    )


@dataclass(frozen=True, slots=True)
class Received:
    """What one call came to, without identity."""

    record: Row
    size: int = 0
    """About how many bytes it has."""
    is_plain: bool = False
    """There is no NaN in it (encoding.dumps)."""


def record_of(answer: Answer, row: Row) -> Received:
    """The record of an answer, without identity."""
    size = len(answer.body)
    if answer.is_error:
        return Received(error_answer(answer), size)
    try:
        value, is_plain = parse(answer.body)
    except (ValueError, RecursionError) as error:
        return Received(broken_answer(answer, f"the answer is not JSON: {type(error).__name__}"), size)
    if not isinstance(value, dict):
        return Received(broken_answer(answer, "the answer is not a JSON object"), size)
    if is_materialized(row) and "episode_id" in value and ("result" in value or "failure" in value):
        value = _unpacked(answer, value)
    if value.get(FAILURE_CLASS) is not None:  # an episode that failed is answered with 200 (CONTRACT 7.3)
        value.update(told_beside(answer))
        is_plain = False
    return Received(value, size, is_plain)


def identify(record: Row, row: Row, name: str, server: str, implementation: str) -> None:
    """Set what the collector sets on every record."""
    record[TASK_INDEX] = row[TASK_INDEX]
    record[ROLLOUT_INDEX] = row[ROLLOUT_INDEX]
    for key in _FROM_ROW:
        if key in row:
            record[key] = row[key]
    record[ENVIRONMENT_SERVER] = server
    record[RESULT_TYPE] = implementation
    record[JOIN_KEY] = name


def stamp(
    record: Row,
    outcome: Outcome,
    started_at: float,
    seconds: float,
    passed: Sequence[str] = (),
    server: str = "",
) -> None:
    """Say on the record how it was judged and when it ran: offline commands do not know the run's servers.
    server: where a failure began."""
    record[OUTCOME] = {
        "failure": outcome.failure,
        "reason": outcome.reason,
        **({SERVER: server} if server and outcome.failure is not None else {}),
        **({"counts_as_zero": True} if outcome.counts_as_zero else {}),
        "started_at": round(started_at, 3),
        "seconds": round(seconds, 3),
    }
    if passed:
        record[OUTCOME]["passed"] = list(passed)


def _unpacked(answer: Answer, value: dict[str, Any]) -> Row:
    result, failure = value.get("result"), value.get("failure")
    if isinstance(result, dict) and failure is None:
        reserved = [key for key in result if key.startswith("_ng_") or key in _RESERVED]
        if reserved:
            return broken_answer(answer, f"the result holds reserved keys: {', '.join(reserved)}")
        record: Row = dict(result)
    elif isinstance(failure, dict) and result is None:
        record = episode_failure(failure)
    else:
        return broken_answer(answer, "the episode has neither a result nor a failure, or both")
    record["_ng_task_id"] = value.get("task_id")
    return record
