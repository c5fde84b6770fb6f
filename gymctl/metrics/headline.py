"""The number of a run and everything it must not be shown without: interval, coverage, bounds, pass@k.

The point estimate is the mean of task means, because attempts at one task are not independent.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from gymctl.metrics.intervals import Interval, interval
from gymctl.metrics.statistics import exact_sum, mean

SOLVED = 1.0
"""A rollout with at least this reward solved its task."""


@dataclass(slots=True)
class TaskScore:
    """What is kept of one task, however many rollouts it has."""

    planned: int = 0
    scored: int = 0
    solved: int = 0
    total: Fraction | float = 0
    """Sum of rewards, exact, so that the order in which rollouts finish has no influence. A Fraction takes
    more room than the rest of a task, so a float stays one while there is nothing to add to it."""
    lowest: float = math.inf
    highest: float = -math.inf
    cluster: Hashable = None
    """What the task shares with others that are not independent of it; None: nothing."""

    def add(self, reward: float) -> None:
        if float(reward).is_integer() and isinstance(self.total, int):
            self.total += int(reward)
        else:
            self.total = Fraction(self.total) + Fraction(reward) if self.scored else reward
        self.scored += 1
        self.solved += reward >= SOLVED
        self.lowest = min(self.lowest, reward)
        self.highest = max(self.highest, reward)

    @property
    def mean(self) -> float:
        return float(self.total / self.scored)


@dataclass(frozen=True, slots=True)
class PassAt:
    """Unbiased pass@k or pass^k, and how many tasks it rests on: those with at least k scored attempts."""

    k: int
    value: float
    tasks: int


@dataclass(frozen=True, slots=True)
class Headline:
    """A score that carries its gaps."""

    mean: float | None
    """Mean of task means over tasks with a scored rollout; None when nothing was scored."""
    interval: Interval | None
    """None when no honest interval exists: nothing scored, or one task, or no spread, outside of [0, 1]."""
    clusters: int | None
    """How many clusters the interval is over; None: over tasks."""
    pooled: float | None
    """Mean over rollouts, as the aggregate metrics file has it."""
    planned: int
    scored: int
    tasks_planned: int
    tasks_scored: int
    bounds: tuple[float, float] | None
    """Mean of task means if every unscored rollout had been 0, or 1; None when rewards leave [0, 1]."""
    pass_at: tuple[PassAt, ...]
    """At least one of k attempts solves the task. Of a k that no task has, the most that one has instead."""
    pass_all: tuple[PassAt, ...]
    """All of k attempts solve the task (pass^k); for k above 1."""

    @property
    def coverage(self) -> float:
        """Share of the planned rollouts that have a score; 1 for an empty plan."""
        return self.scored / self.planned if self.planned else 1.0


def headline(tasks: Sequence[TaskScore], repeats: int = 1, ks: Sequence[int] = ()) -> Headline:
    """Compute the headline of a run; pass@1 and pass@`repeats`, or pass@k for each of `ks`."""
    with_score = [task for task in tasks if task.scored]
    scored = sum(task.scored for task in with_score)
    means = [task.mean for task in with_score]
    clusters = _clusters(with_score)
    is_unit = all(task.lowest >= 0 and task.highest <= 1 for task in with_score)
    most = max((task.scored for task in with_score), default=0)
    reachable = sorted({min(k, most) for k in (ks or (1, repeats)) if most})
    return Headline(
        mean=mean(means) if means else None,
        interval=interval(means, is_unit=is_unit, clusters=clusters) if means else None,
        clusters=None if clusters is None else len(set(clusters)),
        pooled=float(exact_sum(task.total for task in with_score) / scored) if scored else None,
        planned=sum(task.planned for task in tasks),
        scored=scored,
        tasks_planned=len(tasks),
        tasks_scored=len(with_score),
        bounds=_bounds(tasks) if is_unit and tasks else None,
        pass_at=tuple(found for k in reachable if (found := pass_at(with_score, k)) is not None),
        pass_all=tuple(found for k in reachable if k > 1 and (found := pass_all(with_score, k)) is not None),
    )


def _clusters(tasks: Sequence[TaskScore]) -> list[Hashable] | None:
    """The cluster of each task; a task without one is one of its own. None when no task has one."""
    if all(task.cluster is None for task in tasks):
        return None
    return [(index,) if task.cluster is None else task.cluster for index, task in enumerate(tasks)]


def _bounds(tasks: Sequence[TaskScore]) -> tuple[float, float]:
    def average(unscored: int) -> float:
        shares = (
            (Fraction(task.total) + unscored * max(0, task.planned - task.scored))
            / max(task.planned, task.scored, 1)
            for task in tasks
        )
        return float(exact_sum(shares) / len(tasks))

    return average(0), average(1)


def pass_at(tasks: Sequence[TaskScore], k: int) -> PassAt | None:
    """The chance that at least one of k attempts solves a task, averaged over tasks with k scored attempts.

    The estimator is that of Chen et al. 2021 (arXiv 2107.03374, section 2.1): 1 - C(n - c, k) / C(n, k), with
    exact binomials. None when no task has k scored attempts.
    """
    return _over_tasks(tasks, k, lambda n, c: math.comb(n, k) - math.comb(n - c, k))


def pass_all(tasks: Sequence[TaskScore], k: int) -> PassAt | None:
    """The chance that all of k attempts solve a task: C(c, k) / C(n, k) (Yao et al. 2024, arXiv 2406.12045,
    section 3), averaged as pass@k is."""
    return _over_tasks(tasks, k, lambda _, c: math.comb(c, k))


def _over_tasks(tasks: Sequence[TaskScore], k: int, choices: Callable[[int, int], int]) -> PassAt | None:
    """The mean share of all choices of k among n attempts that are wanted when c of them solved the task."""
    shapes = Counter((task.scored, task.solved) for task in tasks if task.scored >= k)
    count = shapes.total()
    if count == 0:
        return None
    total = math.fsum(times * (choices(n, c) / math.comb(n, k)) for (n, c), times in shapes.items())
    return PassAt(k, total / count, count)
