"""What a comparison could have seen, and how much more it would take.

A two-sided t test at 5 % finds a true difference of (t(0.975) + t(0.8)) standard errors in 80 % of all
cases (Cohen, Statistical Power Analysis, 1988, chapter 2; with quantiles of t in the place of the normal
ones, for few tasks that comes close to the non-central t).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gymctl.metrics.paired import Clusters, Pair
from gymctl.metrics.statistics import mean
from gymctl.metrics.students import t_quantile

POWER = 0.8
_MOST_ATTEMPTS = 1_000


@dataclass(frozen=True, slots=True)
class Needed:
    """Either of the two would show a difference of the observed size in 80 % of all cases."""

    more_tasks: int
    attempts: int | None
    """k for both runs; None when more attempts alone never suffice, or one attempt tells no spread."""


def smallest_visible(clusters: Clusters) -> float | None:
    """The true difference that this design finds in 80 % of all cases; None without a standard error."""
    if clusters.freedom < 1:
        return None
    error = clusters.standard_error()
    return _factor(clusters.freedom) * error if error > 0 else None


def needed(pairs: Sequence[Pair], clusters: Clusters) -> Needed | None:
    """None when there is no difference to look for, no spread, or the design is large enough already."""
    visible, difference = smallest_visible(clusters), abs(clusters.mean)
    if visible is None or difference == 0.0 or visible <= difference:
        return None
    ratio = (visible / difference) ** 2
    tasks = math.ceil(clusters.tasks * ratio) - clusters.tasks
    return Needed(max(1, tasks), _attempts(pairs, clusters, ratio))


def _attempts(pairs: Sequence[Pair], clusters: Clusters, ratio: float) -> int | None:
    """Attempts only average out their own noise; what differs from task to task stays."""
    spreads = [pair.spread for pair in pairs if pair.spread is not None]
    noises = [pair.noise for pair in pairs if pair.noise is not None]
    if not spreads:
        return None
    variance = clusters.standard_error() ** 2 * clusters.tasks
    stays = max(0.0, variance - mean(noises))
    room = variance / ratio - stays
    if room <= 0 or mean(spreads) == 0.0:
        return None
    attempts = math.ceil(mean(spreads) / room)
    return attempts if attempts <= _MOST_ATTEMPTS else None


def _factor(freedom: int) -> float:
    return t_quantile(0.975, freedom) + t_quantile(POWER, freedom)
