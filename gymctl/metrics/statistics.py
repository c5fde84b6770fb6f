"""Mean, spread, quartiles and t intervals of numbers, summed exactly so that order never matters.

Numbers near the end of what floats hold leave it when they are summed or squared: then they are scaled first.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction

from gymctl.metrics.students import t_quantile


def number(value: object) -> float | None:
    """A JSON value as a finite float (true is 1), or None: text, null, NaN and infinities are no numbers."""
    if not isinstance(value, (int, float)):
        return None
    try:
        converted = float(value)
    except OverflowError:
        return None
    return converted if math.isfinite(converted) else None


def exact_sum(values: Iterable[float | Fraction]) -> Fraction:
    """Without rounding: numerators are added up for each denominator, of which floats have few."""
    numerators: Counter[int] = Counter()
    for value in values:
        numerator, denominator = value.as_integer_ratio()
        numerators[denominator] += numerator
    return sum((Fraction(top, bottom) for bottom, top in numerators.items()), Fraction(0))


def mean(values: Sequence[float]) -> float:
    """Never outside of the values: the division may round past equal ones."""
    try:
        centre = math.fsum(values) / len(values)
    except OverflowError:
        largest = _largest(values)
        centre = math.fsum(value / largest for value in values) / len(values) * largest
    return min(max(centre, min(values)), max(values))


def sample_std(values: Sequence[float]) -> float:
    """With n - 1 in the denominator; needs two values."""
    return _std(values, len(values) - 1)


def population_std(values: Sequence[float]) -> float:
    """With n in the denominator."""
    return _std(values, len(values))


def _std(values: Sequence[float], count: int) -> float:
    centre = mean(values)
    try:
        found = math.sqrt(math.fsum((value - centre) ** 2 for value in values) / count)
    except OverflowError:
        found = math.inf
    if math.isfinite(found):
        return found
    largest = _largest(values)
    squares = math.fsum((value / largest - centre / largest) ** 2 for value in values)
    return min(math.sqrt(squares / count) * largest, sys.float_info.max)


def _largest(values: Sequence[float]) -> float:
    return max(map(abs, values))


def percentile(ordered: Sequence[float], fraction: float) -> float:
    """Linear interpolation between the neighbours, of values sorted ascending."""
    position = fraction * (len(ordered) - 1)
    below = math.floor(position)
    share = position - below
    if share == 0:
        return ordered[below]
    gap = ordered[below + 1] - ordered[below]
    if math.isinf(gap):
        return ordered[below] * (1 - share) + ordered[below + 1] * share
    return ordered[below] + gap * share


def median(values: Sequence[float]) -> float:
    return percentile(sorted(values), 0.5)


def t_interval(centre: float, standard_error: float, count: int) -> tuple[float, float]:
    """The 95 % interval around a mean of `count` values, never clipped; only the mean when se is 0."""
    half = t_quantile(0.975, count - 1) * standard_error
    return centre - half, centre + half
