"""A saved run, or shards of one, counted again: the same numbers as when it ended, to the last digit.

Memory holds an index of rollouts and what is kept of a task, never records.

Shards are files that together make one run: each rollout may stand in one of them only. Rollouts with the
same indices of different environment servers are different tasks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gymctl.contract.rollout import ENVIRONMENT_SERVER, OUTCOME, Row, rollout_key
from gymctl.counts import counted
from gymctl.errors import UsageError
from gymctl.metrics.columns import Columns
from gymctl.metrics.tally import Price, Tally
from gymctl.metrics.votes import Votes
from gymctl.rollouts.route import named_agent
from gymctl.rollouts.saved import Key, SavedRollout, SavedRun

AGENT = "agent"
"""A name for the agent of a row, wherever the row says it."""
NONE = "–"
"""The group of rows that lack the field."""
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked beside the headline; fields may be dotted: `verifier_metadata.repository`."""

    ks: tuple[int, ...] = ()
    cluster: str | None = None
    by: str | None = None
    answer: str | None = None
    columns: bool = False
    tasks: bool = False
    price: Price | None = None
    """What the usage of a record costs."""


@dataclass(slots=True)
class Measured:
    """What a run comes to."""

    tally: Tally
    groups: dict[str, Tally] = field(default_factory=dict)
    columns: Columns | None = None
    votes: Votes | None = None
    rewards: dict[Hashable, dict[int, float]] = field(default_factory=dict)
    """Task -> rollout index -> reward, when tasks are wanted."""
    began: float | None = None
    ended: float | None = None
    """Unix times, where the collector stamped them."""
    notices: list[str] = field(default_factory=list)

    @property
    def seconds(self) -> float | None:
        return None if self.began is None or self.ended is None else self.ended - self.began


def measure(shards: Sequence[SavedRun], wanted: Wanted) -> Measured:
    """Count everything. Raises UsageError: shards that overlap, a field that no row has."""
    return _Measurement(shards, wanted).made()


def overlap(shards: Sequence[SavedRun]) -> list[tuple[str, ...]]:
    """The environment servers of each shard. Raises UsageError when a rollout stands in two of them."""
    owners: dict[tuple[str, Key], int] = {}
    twice: list[str] = []
    servers: list[tuple[str, ...]] = []
    for number, shard in enumerate(shards):
        own: set[str] = set()
        for rollout in shard.rollouts():
            server = str(rollout.record.get(ENVIRONMENT_SERVER, ""))
            own.add(server)
            first = owners.setdefault((server, rollout.key), number)
            if first != number:
                task, index = rollout.key
                twice.append(f"{task}-{index} of {server or 'no server'}: {shards[first].paths.rollouts}")
        servers.append(tuple(sorted(own)))
        if twice:
            stand = "stands" if len(twice) == 1 else "stand"
            raise UsageError(
                f"{counted(len(twice), 'rollout')} of this file {stand} in another one, too",
                where=str(shard.paths.rollouts),
                details=[*twice[:_SHOWN], *(["…"] if len(twice) > _SHOWN else [])],
                hint="name each shard once, and no file that was merged from them",
            )
    return servers


def value_of(row: Row, name: str) -> Any:
    """The value of a field; None when it is not there."""
    if name == AGENT and AGENT not in row:
        return named_agent(row) or row.get("task_source")
    value: Any = row
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


class _Measurement:
    def __init__(self, shards: Sequence[SavedRun], wanted: Wanted) -> None:
        self._shards = shards
        self._wanted = wanted
        self._found = Measured(
            Tally(ks=wanted.ks, price=wanted.price),
            columns=Columns() if wanted.columns else None,
            votes=Votes() if wanted.answer is not None else None,
        )
        self._group_of: dict[tuple[Hashable, int], str] = {}
        self._agents: set[str | None] = set()

    def made(self) -> Measured:
        found = self._found
        for shard, name in zip(self._shards, self._names(), strict=True):
            planned = self._plan(shard, name)
            self._count(shard, name, planned)
            self._count_retries(shard)
        for tally in (found.tally, *found.groups.values()):
            tally.repeats = self._repeats()
        self._check()
        return found

    def _repeats(self) -> int:
        """The most rollouts that one task has at one agent, as PlanSummary counts them."""
        if len(self._agents) < 2:
            return max((task.planned for task in self._found.tally.tasks.values()), default=1)
        attempts = Counter(
            (name(rollout_key(row)[0]), named_agent(row))
            for shard, name in zip(self._shards, self._names(), strict=True)
            for row in _expected(shard)
        )
        return max(attempts.values())

    def _names(self) -> Sequence[Callable[[int], Hashable]]:
        """How the tasks of each shard are called: by their index, unless shards have different tasks."""
        if len(self._shards) == 1:
            return [lambda task: task]
        servers = overlap(self._shards)
        keys: set[Key] = set()
        is_apart = False
        for shard in self._shards:
            own = {rollout.key for rollout in shard.rollouts()}
            is_apart = is_apart or not keys.isdisjoint(own)
            keys |= own
        if not is_apart:
            return [lambda task: task for _ in self._shards]
        return [lambda task, own=own: (",".join(own), task) for own in servers]

    def _plan(self, shard: SavedRun, name: Callable[[int], Hashable]) -> set[Key]:
        if not shard.has_inputs:
            self._found.notices.append(
                f"{shard.paths.inputs} is not there: what was not run is unknown, and coverage leaves it out"
            )
        planned: set[Key] = set()
        for row in _expected(shard):
            index, rollout = rollout_key(row)
            planned.add((index, rollout))
            self._expect(name(index), rollout, row)
        return planned

    def _expect(self, task: Hashable, rollout: int, row: Row) -> None:
        wanted = self._wanted
        self._agents.add(named_agent(row))
        tallies = [self._found.tally]
        if wanted.by is not None:
            group = _shown(value_of(row, wanted.by))
            self._group_of[task, rollout] = group
            tallies.append(self._group(group))
        cluster = None if wanted.cluster is None else value_of(row, wanted.cluster)
        for tally in tallies:
            tally.plan(task)
            if cluster is not None:
                tally.tasks[task].cluster = _shown(cluster)

    def _group(self, name: str) -> Tally:
        return self._found.groups.setdefault(name, Tally(ks=self._wanted.ks, price=self._wanted.price))

    def _count(self, shard: SavedRun, name: Callable[[int], Hashable], planned: set[Key]) -> None:
        strangers = 0
        for rollout in shard.rollouts():
            index, number = rollout.key
            if rollout.key in planned:
                self._one(name(index), number, rollout)
            else:
                strangers += 1
        if strangers:
            self._found.notices.append(
                f"{counted(strangers, 'rollout is', 'rollouts are')} not in {shard.paths.inputs}, "
                "and so no part of this run"
            )
        if shard.duplicates:
            self._found.notices.append(
                f"{counted(shard.duplicates, 'line')} of {shard.paths.rollouts} "
                f"{'repeats' if shard.duplicates == 1 else 'repeat'} a rollout; the first one counts"
            )

    def _count_retries(self, shard: SavedRun) -> None:
        """The failed attempts that were followed by another one: all but the last of each open key."""
        left = Counter(key for key, _ in shard.failures())
        is_open = {rollout.key for rollout in shard.rollouts() if rollout.is_failure_line} if left else set()
        for key, record in shard.failures():
            left[key] -= 1
            if left[key] or key not in is_open:
                self._found.tally.retry(record)

    def _one(self, task: Hashable, number: int, rollout: SavedRollout) -> None:
        found, wanted, record = self._found, self._wanted, rollout.record
        name = f"{rollout.key[0]}-{number}"
        found.tally.count(task, name, rollout.outcome, record)
        self._time(record)
        if wanted.by is not None:
            group = self._group_of.get((task, number), NONE)
            self._group(group).count(task, name, rollout.outcome, record)
        reward = 0.0 if rollout.outcome.counts_as_zero else rollout.outcome.reward
        if reward is None:
            return
        if wanted.tasks:
            found.rewards.setdefault(task, {})[number] = reward
        if found.columns is not None:
            found.columns.add(record)
        if found.votes is not None and wanted.answer is not None:
            found.votes.add(task, number, reward, value_of(record, wanted.answer))

    def _time(self, record: Row) -> None:
        told = record.get(OUTCOME)
        if not isinstance(told, Mapping):
            return
        start, seconds = told.get("started_at"), told.get("seconds")
        if isinstance(start, (int, float)) and isinstance(seconds, (int, float)):
            found, end = self._found, start + seconds
            found.began = start if found.began is None else min(found.began, start)
            found.ended = end if found.ended is None else max(found.ended, end)

    def _check(self) -> None:
        found, wanted = self._found, self._wanted
        if wanted.cluster is not None and all(task.cluster is None for task in found.tally.tasks.values()):
            raise _no_such_field("--cluster", wanted.cluster)
        if wanted.by is not None and set(found.groups) <= {NONE}:
            raise _no_such_field("--by", wanted.by)
        if found.votes is not None and not found.votes.has_answers:
            raise _no_such_field("--answer", str(wanted.answer), "scored rollout")


def _expected(shard: SavedRun) -> Iterator[Row]:
    """The planned rows; those that ended, where nobody knows the plan."""
    return shard.planned() if shard.has_inputs else (rollout.record for rollout in shard.rollouts())


def _shown(value: Any) -> str:
    return NONE if value is None else value if isinstance(value, str) else str(value)


def _no_such_field(flag: str, name: str, what: str = "row") -> UsageError:
    return UsageError(
        f"no {what} has a field `{name}`",
        where=flag,
        hint="fields of an object are written with a dot: verifier_metadata.level",
    )
