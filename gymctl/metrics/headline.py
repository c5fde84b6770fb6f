"""The number of a run and everything it must not be shown without: interval, coverage, bounds, pass@k.

The point estimate is the mean of task means, because attempts at one task are not independent. Its 95 %
interval is Student's t over the task means. Where few tasks are nearly all won or nearly all lost, t is too
narrow (or has no width at all); there the exact binomial interval of Clopper and Pearson (Biometrika 26,
1934, 404-413) is used over tasks, with the sum of the task means as the possibly fractional number of
successes: of all variables in [0, 1] with a given mean the 0/1 one varies most, so the interval errs on the
wide side.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from gymctl.metrics.statistics import mean, sample_std, t_interval
from gymctl.metrics.students import beta_quantile

SOLVED = 1.0
"""A rollout with at least this reward solved its task."""
EDGE = 3.0
"""Fewer tasks' worth of reward than this won (or missed): too close to the edge for Student's t."""


@dataclass(slots=True)
class TaskScore:
    """What is kept of one task, however many rollouts it has."""

    planned: int = 0
    scored: int = 0
    solved: int = 0
    total: Fraction = Fraction(0)
    """Sum of rewards, exact, so that the order in which rollouts finish has no influence."""
    lowest: float = math.inf
    highest: float = -math.inf

    def add(self, reward: float) -> None:
        self.scored += 1
        self.solved += reward >= SOLVED
        self.total += Fraction(reward)
        self.lowest = min(self.lowest, reward)
        self.highest = max(self.highest, reward)

    @property
    def mean(self) -> float:
        return float(self.total / self.scored)


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95 % interval that is never of zero width."""

    low: float
    high: float
    method: Literal["t", "clopper-pearson"]


@dataclass(frozen=True, slots=True)
class PassAt:
    """Unbiased pass@k and the number of tasks it rests on (those with at least k scored attempts)."""

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
    pooled: float | None
    """Mean over rollouts, as the aggregate metrics file has it."""
    planned: int
    scored: int
    tasks_planned: int
    tasks_scored: int
    bounds: tuple[float, float] | None
    """Mean of task means if every unscored rollout had been 0, or 1; None when rewards leave [0, 1]."""
    pass_at: tuple[PassAt, ...]

    @property
    def coverage(self) -> float:
        """Share of the planned rollouts that have a score; 1 for an empty plan."""
        return self.scored / self.planned if self.planned else 1.0


def headline(tasks: Sequence[TaskScore], repeats: int = 1) -> Headline:
    """Compute the headline of a run; pass@1 and, with several repeats, pass@`repeats`."""
    with_score = [task for task in tasks if task.scored]
    scored = sum(task.scored for task in with_score)
    means = [task.mean for task in with_score]
    is_unit = all(task.lowest >= 0 and task.highest <= 1 for task in with_score)
    point = mean(means) if means else None
    ks = (1,) if repeats <= 1 else (1, repeats)
    return Headline(
        mean=point,
        interval=interval(means, is_unit=is_unit) if means else None,
        pooled=float(sum((task.total for task in with_score), Fraction(0)) / scored) if scored else None,
        planned=sum(task.planned for task in tasks),
        scored=scored,
        tasks_planned=len(tasks),
        tasks_scored=len(with_score),
        bounds=_bounds(tasks) if is_unit and tasks else None,
        pass_at=tuple(found for k in ks if (found := pass_at(with_score, k)) is not None),
    )


def interval(means: Sequence[float], *, is_unit: bool) -> Interval | None:
    """The 95 % interval over task means; `is_unit` says that rewards lie in [0, 1]."""
    count, centre = len(means), mean(means)
    spread = sample_std(means) if count > 1 else 0.0
    if is_unit and (spread == 0.0 or count * min(centre, 1 - centre) < EDGE):
        return _clopper_pearson(centre * count, count)
    if spread == 0.0:
        return None
    low, high = t_interval(centre, spread / math.sqrt(count), count)
    return Interval(max(low, 0.0), min(high, 1.0), "t") if is_unit else Interval(low, high, "t")


def _clopper_pearson(successes: float, count: int) -> Interval:
    low = beta_quantile(0.025, successes, count - successes + 1) if successes > 0 else 0.0
    high = beta_quantile(0.975, successes + 1, count - successes) if successes < count else 1.0
    # A share of 1e-300 successes has a quantile below the smallest step of the search.
    centre = successes / count
    return Interval(min(low, centre), max(high, centre), "clopper-pearson")


def _bounds(tasks: Sequence[TaskScore]) -> tuple[float, float]:
    def average(unscored: int) -> float:
        shares = (
            (task.total + unscored * max(0, task.planned - task.scored)) / max(task.planned, task.scored, 1)
            for task in tasks
        )
        return float(sum(shares, Fraction(0)) / len(tasks))

    return average(0), average(1)


def pass_at(tasks: Sequence[TaskScore], k: int) -> PassAt | None:
    """The chance that at least one of k attempts solves a task, averaged over tasks with k scored attempts.

    The estimator is that of Chen et al. 2021 (arXiv 2107.03374, section 2.1): 1 - C(n - c, k) / C(n, k), with
    exact binomials. None when no task has k scored attempts.
    """
    shapes = Counter((task.scored, task.solved) for task in tasks if task.scored >= k)
    count = shapes.total()
    if count == 0:
        return None
    total = math.fsum(times * _pass_one(n, c, k) for (n, c), times in shapes.items())
    return PassAt(k, total / count, count)


def _pass_one(n: int, c: int, k: int) -> float:
    everything = math.comb(n, k)
    return (everything - math.comb(n - c, k)) / everything
