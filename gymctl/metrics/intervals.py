"""The 95 % interval of a score: over tasks, or over clusters of tasks; never of zero width.

Attempts at one task are not independent, so the task means are what is averaged and Student's t is over them.
Tasks that belong together (one document, one repository) are not independent either: with clusters the
standard error is the cluster-robust one, which for clusters of one task each is the ordinary one:

    se^2 = G / (G - 1) * sum over clusters (sum of deviations in the cluster)^2 / n^2,   t with G - 1 degrees

Where few tasks are nearly all won or nearly all lost, t is too narrow (or has no width at all); there the
exact binomial interval of Clopper and Pearson (Biometrika 26, 1934, 404-413) is used over tasks, with the sum
of the task means as the possibly fractional number of successes: of all variables in [0, 1] with a given mean
the 0/1 one varies most, so the interval errs on the wide side. Clusters count there as their effective number
n^2 / sum of (tasks in the cluster)^2 (Kish, Survey Sampling, 1965): the tasks of one are taken for one task.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

from gymctl.metrics.statistics import mean, sample_std, t_interval
from gymctl.metrics.students import beta_quantile

EDGE = 3.0
"""Fewer tasks' worth of reward than this won (or missed): too close to the edge for Student's t."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95 % interval that is never of zero width."""

    low: float
    high: float
    method: Literal["t", "clopper-pearson"]


def interval(
    means: Sequence[float], *, is_unit: bool, clusters: Sequence[Hashable] | None = None
) -> Interval | None:
    """The 95 % interval over task means; None when there is none that would be honest.

    `is_unit` says that rewards lie in [0, 1]. `clusters` names the cluster of each task.
    """
    centre = mean(means)
    spread = _Spread.of_tasks(means) if clusters is None else _Spread.of_clusters(means, clusters)
    if is_unit and (
        spread.standard_error == 0.0 or spread.effective * min(centre, 1 - centre) < EDGE or spread.groups < 2
    ):
        return _clopper_pearson(centre * spread.effective, spread.effective)
    if spread.standard_error == 0.0:
        return None
    low, high = t_interval(centre, spread.standard_error, spread.groups)
    if is_unit:
        low, high = max(low, 0.0), min(high, 1.0)
    return Interval(low, high, "t") if low < high else None


@dataclass(frozen=True, slots=True)
class _Spread:
    standard_error: float
    """0 when it cannot be told."""
    groups: int
    """What is independent: tasks or clusters."""
    effective: float
    """How many equal, independent groups would tell as much."""

    @classmethod
    def of_tasks(cls, means: Sequence[float]) -> _Spread:
        count = len(means)
        spread = sample_std(means) if count > 1 else 0.0
        return cls(spread / math.sqrt(count), count, count)

    @classmethod
    def of_clusters(cls, means: Sequence[float], clusters: Sequence[Hashable]) -> _Spread:
        centre, count = mean(means), len(means)
        deviations: dict[Hashable, list[float]] = {}
        for value, cluster in zip(means, clusters, strict=True):
            deviations.setdefault(cluster, []).append(value - centre)
        groups = len(deviations)
        effective = count * count / sum(len(members) ** 2 for members in deviations.values())
        if groups == 1 or min(means) == max(means):
            return cls(0.0, groups, effective)
        squares = math.fsum(math.fsum(members) ** 2 for members in deviations.values())
        return cls(math.sqrt(groups / (groups - 1) * squares) / count, groups, effective)


def _clopper_pearson(successes: float, count: float) -> Interval:
    low = beta_quantile(0.025, successes, count - successes + 1) if successes > 0 else 0.0
    high = beta_quantile(0.975, successes + 1, count - successes) if successes < count else 1.0
    # A share of 1e-300 successes has a quantile below the smallest step of the search.
    centre = successes / count
    return Interval(min(low, centre), max(high, centre), "clopper-pearson")
