"""The difference between two runs over the tasks that both of them did, and how sure it is.

Attempts at a task are averaged first: the task is what is drawn, not the attempt. The 95 % interval is
Student's t over the differences of the tasks; where tasks come in clusters, over clusters, with the
sandwich variance of Liang and Zeger (Biometrika 73, 1986) times G / (G - 1); for clusters of one task that
is the plain paired t. Where hardly a task differs, t is too narrow (or has no width at all). There, for
rewards in [0, 1], what was gained and what was lost each get the exact binomial interval of
metrics.headline, at 97.5 % each: together they hold with 95 % (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from gymctl.metrics.intervals import EDGE, Interval
from gymctl.metrics.statistics import sample_std
from gymctl.metrics.students import beta_quantile, t_quantile, t_tail


@dataclass(frozen=True, slots=True)
class Pair:
    """One task in two runs: the mean over its scored attempts in each."""

    task: str
    a: Fraction
    b: Fraction
    cluster: str | None = None
    """Tasks of one cluster are not independent; None: a cluster of its own."""
    spread: float | None = None
    """Variance of one attempt in A plus that of one in B; None when either run has a single attempt."""
    noise: float | None = None
    """The same for the means of the attempts."""
    difference: Fraction = field(init=False)
    """B - A."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "difference", self.b - self.a)


@dataclass(frozen=True, slots=True)
class Clusters:
    """The differences, summed within clusters. The order does not depend on that of the pairs."""

    totals: tuple[Fraction, ...]
    sizes: tuple[int, ...]
    mean: float
    """Over tasks."""
    residuals: tuple[float, ...]
    """What each total is above what it would be with every task at the mean."""

    @classmethod
    def of(cls, pairs: Sequence[Pair]) -> Clusters:
        found: dict[tuple[bool, str], tuple[Fraction, int]] = {}
        for pair in pairs:
            key = (pair.cluster is None, pair.task if pair.cluster is None else pair.cluster)
            total, size = found.get(key, (Fraction(0), 0))
            found[key] = total + pair.difference, size + 1
        ordered = [found[key] for key in sorted(found)]
        mean = sum((total for total, _ in ordered), Fraction(0)) / len(pairs)
        return cls(
            tuple(total for total, _ in ordered),
            tuple(size for _, size in ordered),
            float(mean),
            tuple(float(total - size * mean) for total, size in ordered),
        )

    @property
    def tasks(self) -> int:
        return sum(self.sizes)

    @property
    def freedom(self) -> int:
        """Degrees of freedom."""
        return len(self.totals) - 1

    def standard_error(self) -> float:
        """Of the mean; needs two clusters."""
        count = len(self.totals)
        squares = math.fsum(residual * residual for residual in self.residuals)
        return math.sqrt(squares * count / (count - 1)) / self.tasks


def t_p_value(clusters: Clusters) -> float:
    """Two-sided, of the t interval: 0.05 where the 95 % interval ends at 0. Needs a standard error."""
    return 2 * t_tail(abs(clusters.mean) / clusters.standard_error(), clusters.freedom)


def paired_interval(
    pairs: Sequence[Pair], clusters: Clusters, *, is_unit: bool, confidence: float = 0.95
) -> Interval | None:
    """The interval of B - A, never of zero width; None for fewer than two clusters, or no spread in rewards
    that leave [0, 1] (`is_unit` says that they do not)."""
    if clusters.freedom < 1:
        return None
    error = clusters.standard_error()
    moved = math.fsum(abs(float(pair.difference)) for pair in pairs)
    if is_unit and (error == 0.0 or moved * len(clusters.totals) / len(pairs) < EDGE):
        return _edge(pairs, len(clusters.totals), confidence)
    if error == 0.0:
        return None
    half = t_quantile((1 + confidence) / 2, clusters.freedom) * error
    low, high = clusters.mean - half, clusters.mean + half
    return Interval(max(low, -1.0), min(high, 1.0), "t") if is_unit else Interval(low, high, "t")


def _edge(pairs: Sequence[Pair], count: int, confidence: float) -> Interval:
    tail = (1 - confidence) / 4
    differences = [float(pair.difference) for pair in pairs]
    share = count / len(pairs)
    gained = share * math.fsum(max(one, 0.0) for one in differences)
    lost = share * math.fsum(max(-one, 0.0) for one in differences)
    low = _binomial_low(gained, count, tail) - _binomial_high(lost, count, tail)
    high = _binomial_high(gained, count, tail) - _binomial_low(lost, count, tail)
    return Interval(low, high, "clopper-pearson")


def _binomial_low(successes: float, count: int, tail: float) -> float:
    return beta_quantile(tail, successes, count - successes + 1) if successes > 0 else 0.0


def _binomial_high(successes: float, count: int, tail: float) -> float:
    return beta_quantile(1 - tail, successes + 1, count - successes) if successes < count else 1.0


def unpaired_half_width(pairs: Sequence[Pair]) -> float | None:
    """Half of the 95 % interval if the two runs had done different tasks: Welch's t (Biometrika 34, 1947)."""
    count = len(pairs)
    if count < 2:
        return None
    one = sample_std([float(pair.a) for pair in pairs]) ** 2 / count
    two = sample_std([float(pair.b) for pair in pairs]) ** 2 / count
    if one + two == 0.0:
        return None
    freedom = (one + two) ** 2 / ((one**2 + two**2) / (count - 1))
    return t_quantile(0.975, freedom) * math.sqrt(one + two)
