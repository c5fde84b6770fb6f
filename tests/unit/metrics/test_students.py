"""Quantiles against scipy over a grid."""

from __future__ import annotations

import math

import pytest
from scipy import special, stats

from gymctl.metrics.students import beta_quantile, incomplete_beta, t_quantile

DEGREES = [1, 2, 3, 4, 5, 7, 10, 19, 20, 21, 29, 50, 99, 199, 999, 9_999, 65_535, 1_000_000]


@pytest.mark.parametrize("df", DEGREES)
def test_t_quantile_agrees_with_scipy(df: int) -> None:
    for probability in (0.005, 0.025, 0.1, 0.5, 0.6, 0.9, 0.95, 0.975, 0.99, 0.995, 0.9995):
        assert t_quantile(probability, df) == pytest.approx(
            stats.t.ppf(probability, df), rel=1e-10, abs=1e-10
        )


def test_t_quantile_of_one_degree_is_the_tangent() -> None:
    assert t_quantile(0.975, 1) == pytest.approx(12.706204736174694, rel=1e-15)


@pytest.mark.parametrize("a", [0.5, 1, 2.5, 9.5, 10, 50, 1000, 50_000])
@pytest.mark.parametrize("b", [0.5, 1, 3, 12, 200, 5000])
def test_incomplete_beta_agrees_with_scipy(a: float, b: float) -> None:
    centre = a / (a + b)
    for x in (0.001, 0.2, 0.5, 0.8, 0.999, centre, centre * 0.98, min(1.0, centre * 1.02)):
        assert incomplete_beta(a, b, x) == pytest.approx(special.betainc(a, b, x), rel=1e-10, abs=1e-14)


def test_incomplete_beta_ends() -> None:
    assert incomplete_beta(2, 3, 0.0) == 0.0
    assert incomplete_beta(2, 3, 1.0) == 1.0


@pytest.mark.parametrize(("a", "b"), [(1, 20), (20, 1), (5, 6), (0.5, 0.5), (300, 2), (2, 5000), (400, 600)])
def test_beta_quantile_agrees_with_scipy(a: float, b: float) -> None:
    for probability in (0.025, 0.5, 0.975):
        assert beta_quantile(probability, a, b) == pytest.approx(stats.beta.ppf(probability, a, b), rel=1e-10)


def test_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError):
        t_quantile(1.0, 3)
    with pytest.raises(ValueError):
        t_quantile(0.9, 0)
    with pytest.raises(ValueError):
        incomplete_beta(1, 1, math.nan)
