"""Why rollouts of a saved run have no score: failures grouped by fingerprint, the largest group first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from gymctl.contract.rollout import ATTEMPT_INDEX, JOIN_KEY, OUTCOME, Row
from gymctl.metrics.fingerprint import Fingerprint, fingerprint, signs
from gymctl.rollouts.journal import End, last_end
from gymctl.rollouts.remedies import Advice, Failure, advice
from gymctl.rollouts.saved import Key, SavedRun, outcome_of

_MOST_GROUPS = 500
"""Beyond, messages are no longer told apart: unquoted text of a model would make every failure a group."""
_KEPT_IDS = 1_000


@dataclass(slots=True)
class Group:
    """Failures with one fingerprint."""

    found: Fingerprint
    advice: Advice
    example: Row
    """The first one, whole."""
    count: int = 0
    ids: list[str] = field(default_factory=list)
    first: float | None = None
    """Seconds since 1970, where the records tell."""
    last: float | None = None

    def add(self, name: str, record: Row) -> None:
        self.count += 1
        if len(self.ids) < _KEPT_IDS:
            self.ids.append(name)
        ended = ended_at(record)
        if ended is not None:
            self.first = ended if self.first is None else min(self.first, ended)
            self.last = ended if self.last is None else max(self.last, ended)


@dataclass(slots=True)
class Reasons:
    """Everything that left rollouts of one run without a score."""

    groups: list[Group]
    scored: int
    failed: int
    not_run: int
    repaired: int
    """Failed attempts of rollouts that have a score now."""
    end: End | Literal["none"] | None = None
    """Why the last session sent nothing more, where some were not run (journal.last_end)."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at one rollout."""

    number: int
    record: Row
    reward: float | None
    found: Fingerprint | None
    """None when it was scored."""
    advice: Advice | None


def reasons(run: SavedRun) -> Reasons:
    """Read the run once. Memory: one record per group, ids, and the keys."""
    groups: dict[Fingerprint, Group] = {}
    scored: set[Key] = set()
    failed = 0
    for rollout in run.rollouts():
        if rollout.outcome.failure is None:
            scored.add(rollout.key)
            continue
        failed += 1
        found = fingerprint(rollout.record, rollout.outcome.failure)
        if found not in groups and len(groups) >= _MOST_GROUPS:
            found = replace(found, message="")
        if found not in groups:
            groups[found] = Group(found, _advice(found, rollout.record, run), rollout.record)
        groups[found].add(rollout_name(rollout.record, rollout.key), rollout.record)
    not_run = sum(1 for _ in run.not_run())
    return Reasons(
        groups=sorted(groups.values(), key=lambda group: (-group.count, group.ids[0])),
        scored=len(scored),
        failed=failed,
        not_run=not_run,
        repaired=sum(key in scored for key, _ in run.failures()),
        end=last_end(run.paths.journal) if not_run else None,
    )


def attempts(run: SavedRun, key: Key) -> list[Attempt]:
    """All attempts at one rollout, in their order."""
    records = [record for other, record in run.failures() if other == key]
    records += [one.record for one in run.rollouts() if one.key == key and not one.is_failure_line]
    return [_attempt(run, number, record) for number, record in enumerate(_ordered(records))]


def parse_key(text: str) -> Key | None:
    """`12-3`, or an attempt of it, `12-3-a1`: task and rollout index; None for anything else."""
    task, _, rest = text.partition("-")
    rollout = rest.partition("-")[0]
    return (int(task), int(rollout)) if task.isdecimal() and rollout.isdecimal() else None


def rollout_name(record: Mapping[str, Any], key: Key) -> str:
    """The id under which log lines tell of it."""
    name = record.get(JOIN_KEY)
    return name if isinstance(name, str) and parse_key(name) is not None else f"{key[0]}-{key[1]}"


def ended_at(record: Mapping[str, Any]) -> float | None:
    stamp = record.get(OUTCOME)
    if not isinstance(stamp, Mapping):
        return None
    started, seconds = stamp.get("started_at"), stamp.get("seconds")
    return float(started) + float(seconds or 0) if isinstance(started, (int, float)) else None


def _ordered(records: list[Row]) -> Iterator[Row]:
    yield from sorted(records, key=lambda record: int(record.get(ATTEMPT_INDEX) or 0))


def _attempt(run: SavedRun, number: int, record: Row) -> Attempt:
    outcome = outcome_of(record)
    if outcome.failure is None:
        return Attempt(number, record, outcome.reward, None, None)
    found = fingerprint(record, outcome.failure)
    return Attempt(number, record, None, found, _advice(found, record, run))


def _advice(found: Fingerprint, record: Row, run: SavedRun) -> Advice:
    key = (int(record.get("_ng_task_index") or 0), int(record.get("_ng_rollout_index") or 0))
    name = rollout_name(record, key)
    return advice(Failure(found, signs(record), name, str(run.paths.inputs), str(run.paths.rollouts)))
