"""Which task of one run is which of another: by what it asks, never by its row number.

Each run is read once and kept as one sum per task, however many rollouts it has. With the inputs files of
all runs the whole row is compared (`saved.content_hash`); where one is gone, as for files of other tools,
only what the records repeat of it: the prompt and the tools.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from gymctl.contract.rollout import Row
from gymctl.errors import RunError, UsageError
from gymctl.metrics.paired import Pair
from gymctl.metrics.statistics import number
from gymctl.rollouts import passport
from gymctl.rollouts.passport import Passport
from gymctl.rollouts.saved import SavedRollout, SavedRun, content_hash

REWARD = "reward"
_PARAMS = "responses_create_params"
_SHOWN_FIELDS = 20


@dataclass(frozen=True, slots=True)
class Asked:
    """What of a run is compared. Fields are dotted paths into a record (metric) or a row (the others)."""

    metric: str = REWARD
    cluster: str | None = None
    group: str | None = None


@dataclass(slots=True)
class Task:
    """The attempts at one task in one run."""

    index: int
    cluster: str | None = None
    group: str | None = None
    planned: int = 0
    scored: int = 0
    total: Fraction = Fraction(0)
    squares: Fraction = Fraction(0)
    lowest: float = float("inf")
    highest: float = float("-inf")

    def add(self, value: float) -> None:
        self.scored += 1
        self.total += Fraction(value)
        self.squares += Fraction(value) ** 2
        self.lowest, self.highest = min(self.lowest, value), max(self.highest, value)

    @property
    def mean(self) -> Fraction:
        return self.total / self.scored

    @property
    def variance(self) -> float | None:
        """Of one attempt; None for fewer than two."""
        if self.scored < 2:
            return None
        return float((self.squares - self.total * self.mean) / (self.scored - 1))

    def bound(self, missing: int) -> Fraction:
        """The mean if every attempt without a score had this reward."""
        attempts = max(self.planned, self.scored)
        return (self.total + missing * (attempts - self.scored)) / attempts


@dataclass(slots=True)
class RunTasks:
    """One run by its tasks."""

    path: Path
    tasks: dict[str, Task] = field(default_factory=dict)
    """Content hash -> task."""
    model: str | None = None
    passport: Passport | None = None
    """None: nothing tells what it was made with."""
    unknown: int = 0
    """Rollouts of which nobody can say what was asked."""
    fields: set[str] = field(default_factory=set)
    """Numbers on the records, for the message that a metric is not there."""

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def is_unit(self) -> bool:
        return all(task.lowest >= 0 and task.highest <= 1 for task in self.tasks.values() if task.scored)

    @property
    def scored(self) -> int:
        return sum(task.scored for task in self.tasks.values())


@dataclass(frozen=True, slots=True)
class Matching:
    """Two runs, task by task. Tasks are named by their index in A; `only_b` by that in B."""

    pairs: list[Pair]
    groups: dict[str, list[Pair]]
    only_a: list[int]
    only_b: list[int]
    changed: list[int]
    """At this index both runs have a task, and it asks something else."""
    unscored: list[int]
    """In both runs, but without a score in one of them."""
    coverage_a: float
    """Share of the planned rollouts of common tasks that have a score."""
    coverage_b: float
    bounds: tuple[float, float] | None
    """Lowest and highest B - A over common tasks, whatever the missing rollouts would have scored; None when
    rewards leave [0, 1] or nothing is common."""
    is_unit: bool

    @property
    def left_out(self) -> int:
        return len(self.only_a) + len(self.only_b) + len(self.changed) + len(self.unscored)


def read(runs: Sequence[SavedRun], asked: Asked) -> list[RunTasks]:
    """Every run once, in constant memory but for its tasks. Raises UsageError, ConfigError."""
    is_whole = all(run.has_inputs for run in runs)
    if not is_whole and (asked.cluster or asked.group):
        gone = next(run.paths.inputs for run in runs if not run.has_inputs)
        raise UsageError("fields of a row are read from the inputs file, which is gone", where=str(gone))
    return [_read(run, asked, is_whole=is_whole) for run in runs]


def _read(run: SavedRun, asked: Asked, *, is_whole: bool) -> RunTasks:
    found = RunTasks(run.paths.rollouts, passport=_passport(run))
    names: dict[int, str] = {}
    missing = {path for path in (asked.cluster, asked.group) if path}
    row: Row = {}
    for row in run.planned():
        index = _index(row)
        if index not in names:
            names[index] = name = _name(row, is_whole=is_whole)
            task = found.tasks.setdefault(name, Task(index))
            task.cluster = _text(row, asked.cluster, missing) or task.cluster
            task.group = _text(row, asked.group, missing) or task.group
        found.tasks[names[index]].planned += 1
    if missing and row:
        raise UsageError(
            f"no row has `{min(missing)}`",
            where=str(run.paths.inputs),
            hint=f"rows have {', '.join(sorted(key for key in row if not key.startswith('_ng_')))}",
        )
    plan = frozenset(names)
    for rollout in run.rollouts():
        if rollout.key[0] not in plan and not _place(found, names, rollout):
            found.unknown += 1
            continue
        _add(found, found.tasks[names[rollout.key[0]]], rollout, asked.metric)
    if found.unknown and not found.scored and not run.has_inputs:
        raise UsageError(
            "tasks cannot be told apart: the inputs file is gone, and the records do not repeat their prompt",
            where=str(run.paths.inputs),
            hint="put the inputs file of the run back",
        )
    if not found.scored and asked.metric != REWARD:
        near = f"numbers there: {', '.join(sorted(found.fields))}" if found.fields else None
        raise UsageError(f"no record has a number `{asked.metric}`", where=str(run.paths.rollouts), hint=near)
    return found


def _passport(run: SavedRun) -> Passport | None:
    try:
        return passport.read(run.paths.passport)
    except RunError:  # of a newer gymctl: its rollouts can be compared all the same
        return None


def _place(found: RunTasks, names: dict[int, str], rollout: SavedRollout) -> bool:
    """Without a row in an inputs file, the records say what was asked, and what was tried is the plan."""
    index = rollout.key[0]
    if index not in names:
        name = _prompt_hash(rollout.record)
        if name is None:
            return False
        names[index] = name
    found.tasks.setdefault(names[index], Task(index)).planned += 1
    return True


def _add(found: RunTasks, task: Task, rollout: SavedRollout, metric: str) -> None:
    record = rollout.record
    if rollout.outcome.reward is None:
        return
    if found.model is None:
        found.model = _model(record)
    value = rollout.outcome.reward if metric == REWARD else number(at(record, metric))
    if value is not None:
        task.add(value)
    elif len(found.fields) < _SHOWN_FIELDS:
        found.fields.update(key for key, value in record.items() if _is_metric(key, value))


def match(a: RunTasks, b: RunTasks) -> Matching:
    """Pair the tasks of two runs. The order of rows and records has no influence."""
    common = sorted(a.tasks.keys() & b.tasks.keys())
    both = [(a.tasks[name], b.tasks[name]) for name in common]
    pairs: list[Pair] = []
    groups: dict[str, list[Pair]] = {}
    unscored: list[int] = []
    for name, (one, two) in zip(common, both, strict=True):
        if not one.scored or not two.scored:
            unscored.append(one.index)
            continue
        pair = _pair(name, one, two)
        pairs.append(pair)
        groups.setdefault(one.group if one.group is not None else "(none)", []).append(pair)
    only_a = {task.index for name, task in a.tasks.items() if name not in b.tasks}
    only_b = {task.index for name, task in b.tasks.items() if name not in a.tasks}
    is_unit = a.is_unit and b.is_unit
    return Matching(
        pairs=pairs,
        groups=groups,
        only_a=sorted(only_a - only_b),
        only_b=sorted(only_b - only_a),
        changed=sorted(only_a & only_b),
        unscored=sorted(unscored),
        coverage_a=_coverage(one for one, _ in both),
        coverage_b=_coverage(two for _, two in both),
        bounds=_bounds(both) if is_unit and both else None,
        is_unit=is_unit,
    )


def _pair(name: str, one: Task, two: Task) -> Pair:
    variances = one.variance, two.variance
    spread = noise = None
    if variances[0] is not None and variances[1] is not None:
        spread = variances[0] + variances[1]
        noise = variances[0] / one.scored + variances[1] / two.scored
    return Pair(name, one.mean, two.mean, one.cluster, spread, noise)


def _coverage(tasks: Iterable[Task]) -> float:
    planned = scored = 0
    for task in tasks:
        planned += max(task.planned, task.scored)
        scored += task.scored
    return scored / planned if planned else 1.0


def _bounds(both: Sequence[tuple[Task, Task]]) -> tuple[float, float] | None:
    if any(not max(task.planned, task.scored) for pair in both for task in pair):
        return None
    lows = sum((two.bound(0) - one.bound(1) for one, two in both), Fraction(0))
    highs = sum((two.bound(1) - one.bound(0) for one, two in both), Fraction(0))
    return float(lows / len(both)), float(highs / len(both))


def at(value: Any, path: str) -> Any:
    """The value at a dotted path; a key that holds the dots itself comes first; None when it is not there."""
    if isinstance(value, Mapping) and path in value:
        return value[path]
    for key in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def _text(row: Row, path: str | None, missing: set[str]) -> str | None:
    value = at(row, path) if path else None
    if value is None:
        return None
    missing.discard(path or "")
    return str(value)


def _name(row: Row, *, is_whole: bool) -> str:
    return (None if is_whole else _prompt_hash(row)) or content_hash(row)


def _prompt_hash(row: Row) -> str | None:
    params = row.get(_PARAMS)
    if not isinstance(params, dict) or params.get("input") is None:
        return None
    return content_hash({_PARAMS: params})


def _index(row: Row) -> int:
    return int(row.get("_ng_task_index") or 0)


def _model(record: Row) -> str | None:
    name = at(record, "response.model")
    return name[:60] if isinstance(name, str) and name.isprintable() and name else None


def _is_metric(key: str, value: object) -> bool:
    return not key.startswith("_ng_") and number(value) is not None
