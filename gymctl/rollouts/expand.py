"""Rows -> attempts: route, overrides, identity, repeats (CONTRACT 9.4). Checks everything, writes nothing.

`_ng_task_index` is the caller's, else the position of the first identical raw line, so equal lines are one
task with more rollouts. `_ng_rollout_index` is one counter per task. Neither changes with the limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gymctl.contract.rollout import (
    ATTEMPT_INDEX,
    ROLLOUT_ID,
    ROLLOUT_INDEX,
    TASK_INDEX,
    Row,
    is_materialized,
    rollout_key,
)
from gymctl.errors import ConfigError, UsageError
from gymctl.rollouts.dataset import Source, SourceRow, check_limit, read
from gymctl.rollouts.route import Route, Router

_SHOWN_PROBLEMS = 10


@dataclass(frozen=True, slots=True)
class Attempt:
    """One rollout to be made: its row as it will be sent, and where to."""

    row: Row
    route: Route

    @property
    def rollout_id(self) -> str:
        return rollout_id(self.row)


def rollout_id(row: Row) -> str:
    """`3-0`, `3-0-a1`, or the caller's own id (CONTRACT 9.5)."""
    task, rollout = rollout_key(row)
    attempt = row.get(ATTEMPT_INDEX) or 0
    own = row.get(ROLLOUT_ID) or f"{task}-{rollout}"
    return f"{own}-a{attempt}" if attempt else str(own)


@dataclass(slots=True)
class PlanSummary:
    """What a plan comes to."""

    tasks: dict[int, int] = field(default_factory=dict)
    """Task index -> number of rollouts."""
    servers: dict[str, set[str]] = field(default_factory=dict)
    """Environment server -> agents of the rows that go there."""
    rerouted: int = 0
    """Rollouts whose row named another agent than the one that was asked for."""

    @property
    def rollouts(self) -> int:
        return sum(self.tasks.values())


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run is going to do. `attempts()` reads the sources anew each time: no row is kept in memory."""

    sources: Sequence[Source]
    router: Router
    limit: int | None = None
    repeats: int = 1
    params: Mapping[str, Any] = field(default_factory=dict)
    """Laid over each row's `responses_create_params`, key by key."""

    def __post_init__(self) -> None:
        check_limit(self.limit)
        if self.repeats < 1:
            raise UsageError(f"`--repeats` must be at least 1, got {self.repeats}")

    def attempts(self, on_problem: Callable[[ConfigError], None] | None = None) -> Iterator[Attempt]:
        """All attempts in order. A row that cannot be used goes to `on_problem`, or is raised without one."""
        tasks: dict[tuple[str | None, bytes], int] = {}
        counters: dict[int, int] = {}
        for position, source_row in enumerate(read(self.sources, self.limit)):
            identity = (source_row.source.declared_by, source_row.fingerprint)
            first = tasks.setdefault(identity, position)
            try:
                row, route = self._prepared(source_row)
            except ConfigError as error:
                placed = type(error)(
                    error.what, where=source_row.where, hint=error.hint, details=error.details
                )
                if on_problem is None:
                    raise placed from None
                on_problem(placed)
                continue
            task = first if row.get(TASK_INDEX) is None else row[TASK_INDEX]
            for _ in range(source_row.source.repeats * self.repeats):
                rollout = counters.get(task, 0)
                counters[task] = rollout + 1
                yield Attempt({**row, TASK_INDEX: task, ROLLOUT_INDEX: rollout}, route)

    def check(self) -> PlanSummary:
        """Read everything once. Raises one ConfigError that lists the rows which cannot be used."""
        problems: list[ConfigError] = []
        summary = PlanSummary()
        ids: set[str] = set()
        for attempt in self.attempts(problems.append):
            task, _ = rollout_key(attempt.row)
            summary.tasks[task] = summary.tasks.get(task, 0) + 1
            agents = summary.servers.setdefault(attempt.route.server, set())
            if attempt.route.agent is not None:
                agents.add(attempt.route.agent)
            self._claim(attempt, ids)
        if problems:
            raise _in_one(problems)
        if self.router.forced is not None:
            summary.rerouted = self._count_rerouted()
        return summary

    def _prepared(self, source_row: SourceRow) -> tuple[Row, Route]:
        row, source = dict(source_row.row), source_row.source
        row.pop(ATTEMPT_INDEX, None)
        if is_materialized(row):
            if self.params:
                raise ConfigError("sampling flags cannot change a row that names a taskset")
            return row, self.router.route(row)
        if source.declared_by is not None:
            row.pop("agent_ref", None)
            row["task_source"] = source.declared_by
        elif source.fallback is not None and row.get("agent_ref") is None and row.get("task_source") is None:
            row["task_source"] = source.fallback
        route = self.router.route(row)
        reference = row.get("agent_ref")
        if route.agent is not None and (reference is None or reference["name"] != route.agent):
            row["agent_ref"] = {"name": route.agent}
        if self.params:
            row["responses_create_params"] = {**row["responses_create_params"], **self.params}
        return row, route

    def _claim(self, attempt: Attempt, ids: set[str]) -> None:
        """Caller-supplied ids must not meet: the id names the rollout in URLs and files."""
        own = attempt.row.get(ROLLOUT_ID)
        if own is None:
            return
        if own in ids:
            raise ConfigError(
                f"two rollouts would have the id `{own}`",
                hint=f"`{ROLLOUT_ID}` must be unique: leave it out of rows that are repeated",
            )
        ids.add(own)

    def _count_rerouted(self) -> int:
        names = (source_row.row.get("agent_ref") for source_row in read(self.sources, self.limit))
        return sum(isinstance(name, dict) and name.get("name") != self.router.forced for name in names)


def _in_one(problems: Sequence[ConfigError]) -> ConfigError:
    first = problems[0]
    if len(problems) == 1:
        return first
    lines = [f"{problem.where}: {problem.what}" for problem in problems[:_SHOWN_PROBLEMS]]
    if len(problems) > _SHOWN_PROBLEMS:
        lines.append(f"and {len(problems) - _SHOWN_PROBLEMS} more")
    return type(first)(f"{len(problems)} rows cannot be used", hint=first.hint, details=lines)
