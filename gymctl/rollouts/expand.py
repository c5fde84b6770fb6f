"""Rows -> attempts: route, overrides, identity, repeats (CONTRACT 9.4). Checks everything, writes nothing.

`_ng_task_index` is the caller's, else the position of the first identical raw line, so equal lines are one
task with more rollouts. `_ng_rollout_index` is one counter per task. Neither changes with the limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gymctl.contract.rollout import (
    ATTEMPT_INDEX,
    ENVIRONMENT_SERVER,
    ROLLOUT_ID,
    ROLLOUT_INDEX,
    SKILLS,
    TASK_INDEX,
    Row,
    is_materialized,
    rollout_name,
)
from gymctl.errors import ConfigError
from gymctl.rollouts.dataset import Source, SourceRow, check_limit, has_rows, read
from gymctl.rollouts.prompts import Prompt
from gymctl.rollouts.repeats import Repeats, seeded
from gymctl.rollouts.route import Route, Router, Where, named_agent, nowhere
from gymctl.rollouts.summary import PlanSummary, check_names

OnProblem = Callable[[ConfigError], None]
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
    return rollout_name(row)


@dataclass(frozen=True, slots=True)
class _Planned:
    """A row as it will be sent but for its agent and indices, and how often it goes where."""

    row: Row
    where: str
    key: str | None
    targets: tuple[tuple[Route, int | None], ...]
    """None: `num_repeats` says nothing about it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run is going to do. `attempts()` reads the sources anew each time: no row is kept in memory,
    unless the rollouts are interleaved."""

    sources: Sequence[Source]
    router: Router
    limit: int | None = None
    repeats: int | Mapping[str, int] = 1
    """By agent or by the row's own name, `_default` for the others."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """Laid over each row's `responses_create_params`, key by key; a mapping replaces a mapping."""
    is_seeded: bool = False
    """Each rollout is sent its own index as a seed."""
    is_interleaved: bool = False
    """Every task's first rollout comes before any second one."""
    skills: Mapping[str, Any] | None = None
    """`skills_ref` of every row."""
    where: Where = nowhere

    def __post_init__(self) -> None:
        check_limit(self.limit)
        Repeats.of(self.repeats)

    def attempts(self) -> Iterator[Attempt]:
        """All attempts in the order in which they are sent. Raises for the first row that cannot be used."""
        if self.is_interleaved:
            return iter(sorted(self._attempts(), key=lambda attempt: attempt.row[ROLLOUT_INDEX]))
        return self._attempts()

    def check(self) -> PlanSummary:
        """Read everything once. Raises one ConfigError that lists the rows which cannot be used."""
        problems: list[ConfigError] = []
        summary = PlanSummary()
        ids: set[str] = set()
        for planned in self._planned(problems.append):
            self._note(planned, summary)
            summary.repeated_rows += planned.row[TASK_INDEX] in summary.tasks
            for attempt in self._copies(planned, summary.tasks, problems.append):
                summary.planned_by[attempt.route.server] += 1
                agents = summary.servers.setdefault(attempt.route.server, set())
                if attempt.route.agent is not None:
                    agents.add(attempt.route.agent)
                self._claim(attempt, ids)
        if problems:
            raise _in_one(problems)
        if self.limit is None:
            summary.without_rows = [str(one.path) for one in self.sources if not has_rows(one)]
        summary.repeats = self._repeats(summary)
        summary.unused = list(check_names(summary, Repeats.of(self.repeats), self.router, self.where))
        return summary

    def _repeats(self, summary: PlanSummary) -> int:
        if len(summary.agents) < 2:
            return max(summary.tasks.values(), default=1)
        attempts = Counter((attempt.row[TASK_INDEX], attempt.route.agent) for attempt in self._attempts())
        return max(attempts.values(), default=1)

    def _attempts(self) -> Iterator[Attempt]:
        counters: dict[int, int] = {}
        for planned in self._planned(_raise):
            yield from self._copies(planned, counters, _raise)

    def _planned(self, on_problem: OnProblem) -> Iterator[_Planned]:
        tasks: dict[tuple[str | None, Prompt | None], dict[bytes, int]] = {}
        owners = _Owners()
        repeats = Repeats.of(self.repeats)
        for position, source_row in enumerate(read(self.sources, self.limit)):
            source = source_row.source
            alike = tasks.setdefault((source.declared_by, source.prompt), {})
            first = alike.setdefault(source_row.fingerprint, position)
            try:
                row = self._prepared(source_row)
                key, routes = self.router.key(row), self.router.routes(row)
                for route in routes:
                    self.router.check_pairing(route, row)
                task = owners.task_index(source_row, row, first)
            except ConfigError as error:
                on_problem(_placed(error, source_row.where))
                continue
            row[TASK_INDEX] = task
            if (server := self.router.chosen_server(row)) is not None:
                row[ENVIRONMENT_SERVER] = server
            counts = (repeats.count(route.agent, key) for route in routes)
            times = source.repeats
            targets = tuple(
                (route, None if count is None else count * times)
                for route, count in zip(routes, counts, strict=True)
            )
            yield _Planned(row, source_row.where, key, targets)

    def _copies(
        self, planned: _Planned, counters: dict[int, int], on_problem: OnProblem
    ) -> Iterator[Attempt]:
        """The rollouts of one row: all of one agent, then all of the next, under one counter for the task,
        which goes on in `counters`."""
        row, task = planned.row, planned.row[TASK_INDEX]
        named = named_agent(row)
        params = row.get("responses_create_params")
        if params is not None and self.params:
            params = {**params, **self.params}
        for route, count in planned.targets:
            for _ in range(count or 0):
                rollout = counters.get(task, 0)
                counters[task] = rollout + 1
                sent = {**row, ROLLOUT_INDEX: rollout}
                if params is not None and not is_materialized(row):
                    try:
                        sent["responses_create_params"] = (
                            seeded(params, rollout) if self.is_seeded else params
                        )
                    except ConfigError as error:
                        on_problem(_placed(error, planned.where))
                        return
                if route.agent is not None and named != route.agent and not is_materialized(row):
                    sent["agent_ref"] = {"name": route.agent}
                yield Attempt(sent, route)

    def _prepared(self, source_row: SourceRow) -> Row:
        row, source = dict(source_row.row), source_row.source
        row.pop(ATTEMPT_INDEX, None)
        if is_materialized(row):
            self._leave_alone(source)
            return row
        if source.prompt is not None:
            row = source.prompt.applied(row)
        if self.skills is not None:
            row[SKILLS] = self.skills
        if source.declared_by is not None:
            row.pop("agent_ref", None)
            row["task_source"] = source.declared_by
        elif source.fallback is not None and self.router.key(row) is None:
            row["task_source"] = source.fallback
        return row

    def _leave_alone(self, source: Source) -> None:
        """A materialized row is its server's own; nothing of it may be changed."""
        settings = (
            (self.params, "sampling settings"),
            (self.is_seeded, "`num_repeats_add_seed`"),
            (self.skills, "`skills`"),
            (source.prompt, "`prompt_config`"),
        )
        for is_set, what in settings:
            if is_set:
                raise ConfigError(f"{what} cannot change a row that names a taskset")

    def _note(self, planned: _Planned, summary: PlanSummary) -> None:
        own = named_agent(planned.row)
        summary.fanned_out += len(planned.targets) > 1
        for route, count in planned.targets:
            names = [name for name in (route.agent, planned.key) if name is not None]
            summary.names.update(dict.fromkeys(names))
            if count is None:
                summary.without_repeats.update(dict.fromkeys(names[-1:]))
        (first, _), *others = planned.targets
        if not others and own is not None and first.agent is not None and first.agent != own:
            summary.rerouted[own, first.agent] += 1
        params = planned.row.get("responses_create_params")
        for key, value in self.params.items():
            before = params.get(key) if isinstance(params, dict) else None
            if (
                isinstance(before, dict)
                and isinstance(value, Mapping)
                and (lost := before.keys() - value.keys())
            ):
                summary.replaced.setdefault(key, set()).update(lost)

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


class _Owners:
    """Whose each task index is; one byte for a row without an index of its own."""

    def __init__(self) -> None:
        self._by_position = bytearray()
        """1 for each index that a row has by its position."""
        self._told: dict[int, tuple[Path, str]] = {}
        """Index -> the dataset whose rows give it."""
        self._datasets: dict[tuple[Path, str], tuple[Path, str]] = {}

    def task_index(self, source_row: SourceRow, row: Row, first: int) -> int:
        """The caller's, or that of the first identical line. A number that two datasets give, or that a row
        gives and another one has by its position, would mix their rollouts."""
        own = row.get(TASK_INDEX)
        if own is None:
            if first in self._told:
                raise _two_tasks(first, is_own=False)
            self._by_position.extend(bytes(max(0, first + 1 - len(self._by_position))))
            self._by_position[first] = 1
            return first
        dataset = (source_row.path, str(row.get("task_source")))
        dataset = self._datasets.setdefault(dataset, dataset)
        is_taken = own < len(self._by_position) and self._by_position[own]
        if is_taken or self._told.setdefault(own, dataset) != dataset:
            raise _two_tasks(own, is_own=True)
        return int(own)


def _two_tasks(task: int, *, is_own: bool) -> ConfigError:
    return ConfigError(
        f"`{TASK_INDEX}` {task} would be two tasks"
        + ("" if is_own else ": a row before this one says it of itself"),
        hint=f"let all rows of a run have an `{TASK_INDEX}` of their own, or none",
    )


def _raise(problem: ConfigError) -> None:
    raise problem


def _placed(error: ConfigError, place: str) -> ConfigError:
    """With the row's place, unless a setting is wrong rather than the row."""
    return type(error)(error.what, where=error.where or place, hint=error.hint, details=error.details)


def _in_one(problems: Sequence[ConfigError]) -> ConfigError:
    first = problems[0]
    lines = list(dict.fromkeys(f"{problem.where}: {problem.what}" for problem in problems))
    if len(lines) == 1:
        return first
    if len(lines) > _SHOWN_PROBLEMS:
        lines[_SHOWN_PROBLEMS:] = [f"and {len(lines) - _SHOWN_PROBLEMS} more"]
    return type(first)(f"{len(problems)} rows cannot be used", hint=first.hint, details=lines)
