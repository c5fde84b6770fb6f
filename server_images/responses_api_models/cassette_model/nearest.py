"""Why a request is not on the tape: the nearest recorded one, and the first thing that differs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from asked import Asked, prefixes
from tape import Tape

from gymctl.contract import cassette

_SHOWN = 60
_CANDIDATES = 50
"""Requests of one rollout that are looked at: a miss must not cost more the longer the rollout is."""


def told(tape: Tape, asked: Asked, rollout: str) -> str:
    """One line."""
    who = f"rollout {rollout}" if rollout else "a caller without rollout"
    rollouts = tape.rollouts_of(asked.digest)
    if rollouts:
        listed = ", ".join(sorted(rollouts)[:5]) + (", …" if len(rollouts) > 5 else "")
        return f"{who} is not in the cassette; the same request was recorded for rollout {listed}"
    near = _nearest(tape, asked, rollout)
    if near is None:
        return f"{who} asks what is not in the cassette, and nothing in it begins alike"
    request, by = near
    return f"{who} asks what is not in the cassette. {_difference(tape, asked, request)} (nearest: {by})"


def _nearest(tape: Tape, asked: Asked, rollout: str) -> tuple[cassette.Request, str] | None:
    names = list(tape.asked_by(rollout)[:_CANDIDATES])
    for prefix in reversed(prefixes(asked.server, asked.path, asked.message_digests)):
        found = tape.beginning(prefix)
        if found is not None:
            names.append(found)
            break
    found = [request for request in map(tape.request, names) if request.server == asked.server]
    if not found:
        return None
    best = max(found, key=lambda request: _likeness(request, asked))
    rollouts = tape.rollouts_of(best.request)
    by = rollout if rollout in rollouts else next(iter(rollouts), "")
    return best, f"rollout {by}" if by else "recorded without a rollout"


def _likeness(request: cassette.Request, asked: Asked) -> tuple[bool, int, int, int]:
    mine, its = asked.message_digests, request.messages
    return (
        request.path == asked.path,
        _alike(mine, its),
        sum(one == other for one, other in zip(mine, its, strict=False)),
        -abs(len(mine) - len(its)),
    )


def _alike(mine: tuple[str, ...], its: list[str]) -> int:
    """How many messages at the beginning are the same."""
    pairs = zip(mine, its, strict=False)
    return next((index for index, (one, other) in enumerate(pairs) if one != other), min(len(mine), len(its)))


def _difference(tape: Tape, asked: Asked, request: cassette.Request) -> str:
    if request.path != asked.path:
        return f"It was recorded from {request.path}, and is asked at {asked.path}"
    index = _alike(asked.message_digests, request.messages)
    mine = len(asked.messages)
    if index == mine == len(request.messages):
        return _settings(json.loads(asked.settings), tape.part(request.settings) or {})
    if index == len(request.messages):
        return f"Message {index + 1} of {mine} is new: {_shown(_role(json.loads(asked.messages[index])))}"
    before = tape.part(request.messages[index])
    if index == mine:
        return f"Message {index + 1} of the recorded ones is missing: {_shown(_role(before))}"
    now = json.loads(asked.messages[index])
    name = now.get("role") or now.get("type") if isinstance(now, dict) else "user"
    return f"Message {index + 1} ({name}) differs: {_change(before, now)}"


def _settings(now: dict[str, Any], before: dict[str, Any]) -> str:
    changed = [name for name in sorted({*now, *before}) if now.get(name) != before.get(name)]
    name = changed[0] if changed else "settings"
    more = f"; so do {', '.join(changed[1:])}" if changed[1:] else ""
    return f"All messages are the same, `{name}` differs: {_change(before.get(name), now.get(name))}{more}"


def _change(before: Any, now: Any) -> str:
    for place, one, other in _changes(before, now, ""):
        at = f"{place}: " if place else ""
        return f"{at}recorded {_shown(one, other)}, now {_shown(other, one)}"
    return f"recorded {_shown(before)}, now {_shown(now)}"


def _changes(before: Any, now: Any, place: str) -> Iterator[tuple[str, Any, Any]]:
    """The innermost values that differ, in order."""
    if isinstance(before, dict) and isinstance(now, dict):
        for name in {**before, **now}:
            inside = f"{place}.{name}" if place else str(name)
            yield from _changes(before.get(name), now.get(name), inside)
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for index, (one, other) in enumerate(zip(before, now, strict=True)):
            yield from _changes(one, other, f"{place}[{index}]")
    elif before != now:
        yield place, before, now


def _role(message: Any) -> Any:
    return message if not isinstance(message, dict) else (message.get("content") or message)


def _shown(value: Any, other: Any = None) -> str:
    """Cut to one line; two long texts that begin alike from a little before they part."""
    is_text = isinstance(value, str)
    if not is_text:
        value = json.dumps(value, ensure_ascii=False)
        other = None
    start = 0
    if isinstance(other, str) and len(value) > _SHOWN:
        pairs = zip(value, other, strict=False)
        parted = next((at for at, (one, two) in enumerate(pairs) if one != two), min(len(value), len(other)))
        start = max(0, min(parted - _SHOWN // 3, len(value) - _SHOWN))
    text = value[start : start + _SHOWN]
    told = repr(text) if is_text else text
    return f"{'…' if start else ''}{told}{'…' if start + _SHOWN < len(value) else ''}"
