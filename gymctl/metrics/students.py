"""Student's t and the beta distribution without numpy or scipy: what confidence intervals need.

The regularised incomplete beta function I_x(a, b) is evaluated by the continued fraction of Abramowitz and
Stegun 26.5.8 (NIST DLMF 8.17.22) with the modified Lentz method (Thompson and Barnett, J. Comput. Phys. 64,
1986, 490-509). Its prefactor x^a (1-x)^b / B(a, b) uses Stirling's series for large parameters, as
Didonato and Morris do (ACM TOMS 18, 1992, algorithm 708), because a difference of three `lgamma` loses
digits there. Quantiles are found by Newton steps kept inside a bracket.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

_TINY = 1e-300
_LARGE = 10.0
"""From here on Stirling's series with the terms below is exact to double precision."""
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)


def _stirling_rest(x: float) -> float:
    """lgamma(x) minus (x - 1/2) log x - x + log(2 pi) / 2, for x >= 10."""
    square = x * x
    total = 0.0
    for coefficient in reversed(_STIRLING):
        total = total / square + coefficient
    return total / x


def _log_beta(a: float, b: float) -> float:
    """log B(a, b)."""
    small, large = min(a, b), max(a, b)
    if large < _LARGE:
        return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    if small < _LARGE:
        ratio = -(large - 0.5) * math.log1p(small / large) - small * math.log(large + small) + small
        return math.lgamma(small) + ratio + _stirling_rest(large) - _stirling_rest(large + small)
    rest = _stirling_rest(a) + _stirling_rest(b) - _stirling_rest(a + b)
    whole = a + b
    return (
        0.5 * math.log(2 * math.pi)
        - 0.5 * math.log(b)
        + (a - 0.5) * math.log(a / whole)
        + b * math.log(b / whole)
        + rest
    )


def _log_prefactor(a: float, b: float, x: float, y: float) -> float:
    """log of x^a y^b / B(a, b), where y = 1 - x is given apart so that neither loses digits."""
    log_x = math.log(x) if x < 0.5 else math.log1p(-y)
    log_y = math.log(y) if y < 0.5 else math.log1p(-x)
    if min(a, b) < _LARGE:
        return a * log_x + b * log_y - _log_beta(a, b)
    whole = a + b
    rest = _stirling_rest(a) + _stirling_rest(b) - _stirling_rest(whole)
    near = a * (log_x - math.log(a / whole)) + b * (log_y - math.log(b / whole))
    return near + 0.5 * math.log(a * b / (2 * math.pi * whole)) - rest


def _continued_fraction(a: float, b: float, x: float) -> float:
    """Converges fast for x < (a + 1) / (a + b + 2); needs O(sqrt(max(a, b))) terms."""
    numerator, denominator = 1.0, 1.0 - (a + b) * x / (a + 1.0)
    denominator = 1.0 / (denominator if abs(denominator) > _TINY else _TINY)
    value = denominator
    for m in range(1, 100_000):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            denominator = 1.0 + term * denominator
            denominator = 1.0 / (denominator if abs(denominator) > _TINY else _TINY)
            numerator = 1.0 + term / numerator
            numerator = numerator if abs(numerator) > _TINY else _TINY
            step = numerator * denominator
            value *= step
        if abs(step - 1.0) < 1e-16:
            break
    return value


def incomplete_beta(a: float, b: float, x: float, y: float | None = None) -> float:
    """The regularised incomplete beta function I_x(a, b) for a, b > 0 and 0 <= x <= 1; y is 1 - x."""
    if a <= 0 or b <= 0 or not 0.0 <= x <= 1.0:
        raise ValueError(f"incomplete_beta needs a, b > 0 and 0 <= x <= 1, got a={a}, b={b}, x={x}")
    y = 1.0 - x if y is None else y
    if x == 0.0:
        return 0.0
    if y == 0.0:
        return 1.0
    scale = math.exp(_log_prefactor(a, b, x, y))
    if x <= (a + 1) / (a + b + 2):
        return scale * _continued_fraction(a, b, x) / a
    return 1.0 - scale * _continued_fraction(b, a, y) / b


def _solve(
    excess: Callable[[float], float], slope: Callable[[float], float], low: float, high: float
) -> float:
    """The root of an increasing function in [low, high]: Newton, halved when a step leaves the bracket."""
    x = 0.5 * (low + high)
    for _ in range(200):
        value = excess(x)
        if value == 0.0:
            return x
        low, high = (x, high) if value < 0 else (low, x)
        rise = slope(x)
        following = x - value / rise if rise > 0 else low
        if not low < following < high:
            following = 0.5 * (low + high)
        if abs(following - x) <= 2e-16 * max(abs(x), _TINY):
            return following
        x = following
    return x


def t_tail(t: float, df: float) -> float:
    """P(T > t) for t >= 0 with df degrees of freedom."""
    whole = df + t * t
    return 0.5 * incomplete_beta(0.5 * df, 0.5, df / whole, t * t / whole)


@lru_cache(maxsize=1024)
def t_quantile(probability: float, df: float) -> float:
    """The value that Student's t with `df` degrees of freedom stays under with this probability."""
    if not 0.0 < probability < 1.0 or df <= 0:
        raise ValueError(f"t_quantile needs 0 < probability < 1 and df > 0, got {probability} and {df}")
    if probability < 0.5:
        return -t_quantile(1.0 - probability, df)
    if probability == 0.5:
        return 0.0
    if df == 1:
        return 1 / math.tan(math.pi * (1 - probability))  # two digits better than the tangent near its pole
    if df == 2:
        return (2 * probability - 1) / math.sqrt(2 * probability * (1 - probability))
    tail = 1.0 - probability
    log_scale = _log_beta(0.5 * df, 0.5) + 0.5 * math.log(df)

    def density(t: float) -> float:
        return math.exp(-0.5 * (df + 1) * math.log1p(t * t / df) - log_scale)

    high = 2.0
    while t_tail(high, df) > tail:
        high *= 2
    return _solve(lambda t: tail - t_tail(t, df), density, 0.0, high)


@lru_cache(maxsize=1024)
def beta_quantile(probability: float, a: float, b: float) -> float:
    """The value that a Beta(a, b) variable stays under with this probability."""
    if not 0.0 < probability < 1.0:
        raise ValueError(f"beta_quantile needs 0 < probability < 1, got {probability}")

    def density(x: float) -> float:
        return math.exp(_log_prefactor(a, b, x, 1 - x) - math.log(x) - math.log1p(-x)) if 0 < x < 1 else 0.0

    return _solve(lambda x: incomplete_beta(a, b, x) - probability, density, 0.0, 1.0)
