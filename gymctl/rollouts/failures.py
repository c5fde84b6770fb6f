"""A rollout that failed is a record (CONTRACT 9.7): what is written, and nothing that looks like a score."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from gymctl.contract import retry_after
from gymctl.contract.rollout import FAILURE_CLASS, RETRY_AFTER_KEY, Row
from gymctl.metrics.outcomes import FAILED_CALL
from gymctl.transport import FAILED_CALL_HEADER, Answer, TransportError

BODY_CHARACTERS = 2000
_RETRYABLE = frozenset({429, 502, 503, 504})


class Death(Protocol):
    """A server that stopped without being asked (runtime.stack.ServerDeath has these)."""

    @property
    def server(self) -> str: ...
    @property
    def exit_code(self) -> int | None: ...
    @property
    def was_out_of_memory(self) -> bool: ...
    @property
    def last_lines(self) -> tuple[str, ...]: ...
    @property
    def needed_by(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True)
class Lost:
    """A server without which the run cannot go on, and how we know."""

    server: str
    reason: str
    exit_code: int | None = None
    was_out_of_memory: bool = False
    last_lines: tuple[str, ...] = ()
    needed_by: tuple[str, ...] = ()
    """Servers of the table that are lost with it."""

    @classmethod
    def of(cls, death: Death) -> Lost:
        code = "unknown exit code" if death.exit_code is None else f"exit {death.exit_code}"
        reason = f"stopped ({code}{', out of memory' if death.was_out_of_memory else ''})"
        lines, needed_by = tuple(death.last_lines), tuple(death.needed_by)
        return cls(death.server, reason, death.exit_code, death.was_out_of_memory, lines, needed_by)

    def __str__(self) -> str:
        return f"`{self.server}` {self.reason}"


def request_failed(kind: str, type_name: str, message: str) -> Row:
    """The request to the environment server brought no usable answer."""
    return {
        FAILURE_CLASS: "agent_request_failed",
        "_ng_failure_type": type_name,
        "_ng_failure_message": message[:BODY_CHARACTERS],
        "failure_kind": kind,
    }


def no_answer(error: TransportError) -> Row:
    return request_failed(error.kind, type(error).__name__, error.detail)


def error_answer(answer: Answer) -> Row:
    """The environment server answered with an error status."""
    label = "agent_request_failed" if answer.status in _RETRYABLE else "agent_run_error"
    return {
        FAILURE_CLASS: label,
        "_ng_failure_type": "HTTPError",
        "_ng_failure_message": f"{answer.status} {answer.reason}".strip(),
        "_ng_failure_http_status": answer.status,
        "_ng_failure_response_body": _text(answer),
        **told_beside(answer),
    }


def told_beside(answer: Answer) -> Row:
    """What servers of ours say of a failure in headers: the call it comes from, and how long to wait."""
    call = answer.header(FAILED_CALL_HEADER)
    asked = retry_after.seconds(answer.header(retry_after.RETRY_AFTER))
    return {
        **({FAILED_CALL: call[:BODY_CHARACTERS]} if call is not None else {}),
        **({RETRY_AFTER_KEY: asked} if asked else {}),
    }


def broken_answer(answer: Answer, message: str) -> Row:
    """The environment server answered well, with something that is no record."""
    return {
        FAILURE_CLASS: "agent_request_failed",
        "_ng_failure_type": "BrokenAnswer",
        "_ng_failure_message": message,
        "_ng_failure_http_status": answer.status,
        "_ng_failure_response_body": _text(answer),
    }


def collector_bug(error: Exception) -> Row:
    return {
        FAILURE_CLASS: "collector_bug",
        "_ng_failure_type": type(error).__name__,
        "_ng_failure_message": str(error)[:BODY_CHARACTERS],
        "failure_kind": "collector_bug",
    }


def episode_failure(failure: Mapping[str, Any]) -> Row:
    """An environment server that speaks the episode protocol says why there is no result (CONTRACT 7.2)."""
    record: Row = {
        FAILURE_CLASS: "environment_server_failed",
        "_ng_failure_terminal": bool(failure.get("terminal")),
        "_ng_failure_message": str(failure.get("failure_reason"))[:BODY_CHARACTERS],
    }
    for name, key in (
        ("stage", "_ng_failure_stage"),
        ("partial_response", "_ng_failure_partial_response"),
        ("failure_kind", "failure_kind"),
    ):
        if failure.get(name) is not None:
            record[key] = failure[name]
    return record


def blame(record: Row, lost: Lost) -> None:
    """Say in a failure record which server was lost, with its exit code and whether memory ran out."""
    before = record.get("_ng_failure_message")
    record["_ng_failure_message"] = f"{lost}: {before}" if before else str(lost)
    record["_ng_failure_server"] = lost.server
    record["_ng_failure_exit_code"] = lost.exit_code
    record["_ng_failure_out_of_memory"] = lost.was_out_of_memory
    record["failure_kind"] = "provider_oom_killed" if lost.was_out_of_memory else "kill_shaped"


def _text(answer: Answer) -> str:
    return answer.body[: 4 * BODY_CHARACTERS].decode("utf-8", "replace")[:BODY_CHARACTERS]
