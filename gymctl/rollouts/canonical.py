"""What two runs of the same must have alike: a record without what a clock, a port or chance wrote into it.

Left out, wherever they stand:
  - numbers and timestamps under keys that tell a time (`created_at`, `started_at`, `seconds`, `latency_ms`),
  - ids of processes (`pid`), and everything under `ng_perf`, which is times only.
Replaced:
  - ids that a server makes up (under `id` and `…_id`: `resp_…`, `call_…`, a UUID, 16 hex digits or more) by
    `#1`, `#2`, … in the order in which the record first has them, so that what refers to what still counts,
  - ports of addresses by `*`: they are chosen anew at each start. Not in what model and tools said.
Keys are sorted; everything else is kept as it is, what the model said and rewards above all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, cast

from gymctl.contract.rollout import PERF, Row
from gymctl.counts import counted
from gymctl.paths import RunPaths
from gymctl.rollouts.encoding import dumps
from gymctl.rollouts.expand import rollout_id
from gymctl.rollouts.saved import Key, SavedRun

NAMED = 10
"""So many rollouts that differ are told with the place where they do."""
_TIMES = re.compile(r"(^|_)(at|time|timestamp|seconds|secs|ms|us|ns|duration|latency|elapsed|created)$")
_WHEN = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d")
_LEFT_OUT = frozenset({"pid", PERF})
_ID = re.compile(
    r"[a-z]+[_-](?=[\w-]*\d)[\w-]{8,}|[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|[0-9a-f]{16,}",
    re.IGNORECASE,
)
_SAID = frozenset({"text", "content", "arguments", "output", "input", "instructions"})
_PORT = re.compile(r"(?<=://)([^/\s:@]+):\d+|\b(localhost|127\.0\.0\.1|0\.0\.0\.0):\d+")


def canonical(record: Row) -> bytes:
    """One line of JSON; equal for two records exactly if they tell the same."""
    return dumps(_plain(record, _Names()))


@dataclass(slots=True)
class _Names:
    """Made-up ids of one record, in the order of their first appearance."""

    known: dict[str, str] = field(default_factory=dict)

    def of(self, name: str) -> str:
        return self.known.setdefault(name, f"#{len(self.known) + 1}")


@dataclass(frozen=True, slots=True)
class Comparison:
    """The records of two runs."""

    records: int
    """Rollouts that either has."""
    equal: int
    differs: tuple[tuple[str, str], ...] = ()
    """Id of the rollout, and where its records first differ; at most NAMED."""

    def __str__(self) -> str:
        return f"{self.equal:,} of {counted(self.records, 'record')} equal"


def compare(old: RunPaths, new: RunPaths) -> Comparison:
    """Rollout by rollout, whatever their order; reads both runs, and again what differs."""
    digests: dict[Key, bytes] = {one.key: _digest(one.record) for one in SavedRun(old).rollouts()}
    found: dict[Key, bytes] = {one.key: _digest(one.record) for one in SavedRun(new).rollouts()}
    keys = sorted(digests.keys() | found.keys())
    unequal = [key for key in keys if digests.get(key) != found.get(key)]
    named = unequal[:NAMED]
    first, second = (_records(paths, named) for paths in (old, new))
    told = tuple(_told(first.get(key), second.get(key)) for key in named)
    return Comparison(len(keys), len(keys) - len(unequal), told)


def _records(paths: RunPaths, keys: list[Key]) -> dict[Key, Row]:
    wanted = set(keys)
    if not wanted:
        return {}
    return {one.key: one.record for one in SavedRun(paths).rollouts() if one.key in wanted}


def _told(old: Row | None, new: Row | None) -> tuple[str, str]:
    if old is None or new is None:
        known = cast(Row, old or new)
        return rollout_id(known), f"only the {'new' if old is None else 'first'} run has it"
    place = next(_places(_plain(old, _Names()), _plain(new, _Names()), ""), "")
    return rollout_id(old), place


def _places(old: Any, new: Any, at: str) -> Iterator[str]:
    """Dotted paths at which two values differ, in order."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys(), key=str):
            yield from _places(old.get(key), new.get(key), f"{at}.{key}" if at else str(key))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from _places(one, other, f"{at}[{index}]")
    elif dumps(old) != dumps(new):
        yield at


def _digest(record: Row) -> bytes:
    return blake2b(canonical(record), digest_size=16).digest()


def _plain(value: Any, names: _Names, key: str = "") -> Any:
    if isinstance(value, Mapping):
        items = cast(Mapping[str, Any], value)
        return {
            name: _plain(items[name], names, name)
            for name in sorted(items)
            if not _is_chance(name, items[name])
        }
    if isinstance(value, (list, tuple)):
        return [_plain(inner, names, key) for inner in cast(list[Any], value)]
    if isinstance(value, str) and key not in _SAID:
        if (key == "id" or key.endswith("_id")) and _ID.fullmatch(value):
            return names.of(value)
        return _PORT.sub(lambda match: f"{match[1] or match[2]}:*", value)
    return value


def _is_chance(key: str, value: object) -> bool:
    if key in _LEFT_OUT:
        return True
    if _TIMES.search(key) is None:
        return False
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number or (isinstance(value, str) and _WHEN.match(value) is not None)
