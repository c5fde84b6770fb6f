"""A second opinion on an interval: resampling, which assumes no shape of the differences.

Clusters (single tasks where none are declared) are drawn with replacement; the bounds are those of Efron's
bias-corrected and accelerated bootstrap (J. Am. Stat. Assoc. 82, 1987, 171-185). The acceleration comes
from the jackknife; the bias correction of a mean equals it (DiCiccio and Efron, Statistical Science 11,
1996, section 4), so it need not be guessed from the draws, which is the noisy part. Seeded: the same
differences always give the same interval, in whatever order they come.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from statistics import NormalDist

from gymctl.metrics.paired import Clusters
from gymctl.metrics.statistics import percentile

DRAWS = 2_000
_PICKS = 10_000_000
"""Above so many picks fewer draws are made, but never less than half of them: a second of work at most, for
up to ten thousand tasks."""
_NORMAL = NormalDist()


def bootstrap_interval(
    clusters: Clusters, *, confidence: float = 0.95, seed: int = 0, draws: int | None = None
) -> tuple[float, float] | None:
    """The interval of the mean difference; None for fewer than two clusters or differences without spread."""
    totals = [float(total) for total in clusters.totals]
    if len(totals) < 2 or clusters.standard_error() == 0.0:
        return None
    if draws is None:
        draws = min(DRAWS, max(DRAWS // 2, _PICKS // len(totals)))
    means = sorted(_means(totals, clusters.sizes, Random(seed), draws))
    tail = (1 - confidence) / 2
    pull = _acceleration(totals, clusters.sizes)
    low, high = (percentile(means, _corrected(end, pull)) for end in (tail, 1 - tail))
    return low, high


def _means(totals: Sequence[float], sizes: Sequence[int], generator: Random, draws: int) -> list[float]:
    count = len(totals)
    if all(size == 1 for size in sizes):
        return [sum(generator.choices(totals, k=count)) / count for _ in range(draws)]
    indices = range(count)
    drawn = (generator.choices(indices, k=count) for _ in range(draws))
    return [sum(totals[i] for i in picks) / sum(sizes[i] for i in picks) for picks in drawn]


def _acceleration(totals: Sequence[float], sizes: Sequence[int]) -> float:
    whole, tasks = math.fsum(totals), sum(sizes)
    left = [(whole - total) / (tasks - size) for total, size in zip(totals, sizes, strict=True)]
    centre = math.fsum(left) / len(left)
    squares = math.fsum((centre - value) ** 2 for value in left)
    cubes = math.fsum((centre - value) ** 3 for value in left)
    return cubes / (6 * squares**1.5) if squares > 0 else 0.0


def _corrected(tail: float, pull: float) -> float:
    z = pull + _NORMAL.inv_cdf(tail)
    return _NORMAL.cdf(pull + z / (1 - pull * z))
