"""What a saved record tells of its model calls and turns, for the health checks (CONTRACT 9.10, 15.2).

Nothing is assumed about who wrote it: a part of the wrong shape raises Unreadable, a missing one is None.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gymctl.contract.rollout import JOIN_KEY, MODEL_CALLS, PERF, TRAJECTORY

PARTIAL = frozenset(
    {
        "model_call_capture_incomplete",
        "model_call_capture_records_unreadable",
        "model_call_capture_unreadable",
    }
)
"""Gaps that say that there were more calls than are on record."""

Object = Mapping[str, Any]


class Unreadable(ValueError):
    """A part of a record has a shape that nobody can read; the text names it."""


@dataclass(frozen=True, slots=True)
class Call:
    """One model call. None: not known."""

    id: str | None
    status_code: int | None
    error: str | None
    response_status: str | None
    finish_reason: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    ended_at: float | None

    @property
    def has_failed(self) -> bool:
        """An answer that its token limit cut off is one; `incomplete` is what a stream calls it."""
        is_cut = self.error == "incomplete" and self.response_status == "incomplete"
        if (self.error is not None and not is_cut) or self.response_status == "failed":
            return True
        return self.status_code is not None and not 200 <= self.status_code < 300


@dataclass(frozen=True, slots=True)
class Evidence:
    """calls: of the trajectory, or of the capture where there is no trajectory."""

    trajectory: Object | None
    capture: Object | None
    calls: tuple[Call, ...]
    turns: tuple[Object, ...]
    invocations: tuple[Object, ...]
    gaps: frozenset[str]
    perf: Object
    usage: Object
    name: str | None
    """The rollout's id, as the collector named it."""

    @classmethod
    def of(cls, record: Object) -> Evidence:
        """Raises Unreadable."""
        trajectory, capture = _part(record, TRAJECTORY), _part(record, MODEL_CALLS)
        seen, recorded = trajectory or {}, capture or {}
        if trajectory is not None:
            calls = tuple(map(_of_trajectory, _objects(seen, "model_calls", TRAJECTORY)))
        else:
            calls = tuple(map(_of_capture, _objects(recorded, "calls", MODEL_CALLS)))
        gaps = (*_objects(seen, "gaps", TRAJECTORY), *_objects(recorded, "gaps", MODEL_CALLS))
        response = record.get("response")
        name = record.get(JOIN_KEY)
        return cls(
            trajectory,
            capture,
            calls,
            tuple(_objects(seen, "turns", TRAJECTORY)),
            tuple(_objects(seen, "invocations", TRAJECTORY)),
            frozenset(str(gap.get("code")) for gap in gaps),
            _part(record, PERF) or {},
            _object(response.get("usage")) if isinstance(response, Mapping) else {},
            name if isinstance(name, str) else None,
        )

    @property
    def answers(self) -> list[Call]:
        """The calls that were answered."""
        return [call for call in self.calls if not call.has_failed]

    @property
    def is_partial(self) -> bool:
        return not PARTIAL.isdisjoint(self.gaps)

    @property
    def recorded_ids(self) -> list[str]:
        """Of the capture's calls, in their order."""
        calls = _objects(self.capture or {}, "calls", MODEL_CALLS)
        return [call["model_call_id"] for call in calls if isinstance(call.get("model_call_id"), str)]


def is_hollow(turn: Object) -> bool:
    """No text, no reasoning, no tool call: the agent was given nothing."""
    return not _says_something(turn.get("answer")) and not _says_something(turn.get("reasoning_content"))


def _says_something(value: Any) -> bool:
    if isinstance(value, str):
        return bool(value.strip())
    if isinstance(value, list):
        return any(map(_says_something, value))
    if not isinstance(value, Mapping):
        return False
    kind = value.get("type")
    if "role" not in value and kind not in ("message", "reasoning", "thinking", "summary_text", None):
        texts = [value[key] for key in ("text", "refusal") if key in value]
        return any(map(_says_something, texts)) if texts else True  # a tool call, or an image, …
    if value.get("tool_calls"):
        return True
    keys = ("content", "text", "refusal", "summary", "thinking", "encrypted_content", "reasoning_content")
    return any(_says_something(value.get(key)) for key in keys)


def _of_trajectory(call: Object) -> Call:
    facts, tokens = _object(call.get("response_metadata")), _object(call.get("token_stats"))
    counts = tokens.get("prompt_tokens"), tokens.get("completion_tokens")
    return _call(call, facts, *counts)


def _of_capture(call: Object) -> Call:
    return _call(call, call, call.get("tokens_in"), call.get("tokens_out"))


def _call(call: Object, facts: Object, prompt: Any, completion: Any) -> Call:
    def text(source: Object, key: str) -> str | None:
        return source[key] if isinstance(source.get(key), str) else None

    ended = call.get("completed_at")
    return Call(
        text(call, "model_call_id"),
        count(facts.get("status_code")),
        text(facts, "error_category"),
        text(facts, "response_status"),
        text(facts, "finish_reason"),
        count(prompt),
        count(completion),
        ended if isinstance(ended, int | float) else None,
    )


def count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _object(value: Any) -> Object:
    return value if isinstance(value, Mapping) else {}


def _part(record: Object, key: str) -> Object | None:
    value = record.get(key)
    if value is not None and not isinstance(value, Mapping):
        raise Unreadable(f"`{key}` is no object")
    return value


def _objects(part: Object, key: str, owner: str) -> Iterable[Object]:
    values = part.get(key)
    if values is None:
        return ()
    if not isinstance(values, list) or not all(isinstance(value, Mapping) for value in values):
        raise Unreadable(f"`{owner}.{key}` is no list of objects")
    return values
