"""Holm, equivalence, power and clusters against statsmodels: an oracle only, the product does without."""

from __future__ import annotations

import numpy as np
import pytest
from statsmodels.regression.linear_model import OLS
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestPower
from statsmodels.stats.weightstats import ttost_paired
from unit.metrics import pairs as make

from gymctl.metrics.comparison import Rules, difference, verdict
from gymctl.metrics.paired import Clusters, paired_interval, t_p_value
from gymctl.metrics.power import smallest_visible
from gymctl.metrics.signflip import holm


def test_holm() -> None:
    generator = np.random.default_rng(1)
    for count in (1, 2, 5, 20):
        values = [*(generator.random(count) ** 3), 0.01, 0.01]
        assert holm(values) == pytest.approx(list(multipletests(values, method="holm")[1]))


@pytest.mark.parametrize("margin", [0.02, 0.04, 0.05, 0.06, 0.1])
def test_equivalence(margin) -> None:
    values = np.random.default_rng(11).normal(0.03, 0.1, size=60)
    p, _, _ = ttost_paired(0.5 + values, np.full(60, 0.5), -margin, margin)
    found = difference(make.of(list(values)), is_unit=False, draws=2)
    assert found is not None
    word = verdict(found, found.p, Rules(margin), None, is_covered=True)
    assert (word == "equivalent") == (p < 0.05)


@pytest.mark.parametrize("count", [10, 30, 200])
def test_the_smallest_visible_difference(count) -> None:
    values = np.random.default_rng(count).normal(0.1, 0.3, size=count)
    size = TTestPower().solve_power(nobs=count, alpha=0.05, power=0.8)
    found = smallest_visible(Clusters.of(make.of(list(values))))
    assert found == pytest.approx(size * values.std(ddof=1), rel=0.01)


def test_the_interval_of_clusters() -> None:
    """The sandwich with G / (G - 1), and t with G - 1 degrees of freedom; clusters of several sizes."""
    generator = np.random.default_rng(3)
    groups = np.sort(generator.integers(0, 12, size=90))
    values = generator.normal(0.05, 0.2, size=90) + generator.normal(0, 0.2, size=12)[groups]
    fit = OLS(values, np.ones(90)).fit(cov_type="cluster", cov_kwds={"groups": groups}, use_t=True)
    pairs = make.of(list(values), [str(group) for group in groups])
    found = paired_interval(pairs, Clusters.of(pairs), is_unit=False)
    assert found is not None
    assert (found.low, found.high) == pytest.approx(tuple(fit.conf_int()[0]), rel=1e-9)
    assert t_p_value(Clusters.of(pairs)) == pytest.approx(fit.pvalues[0], rel=1e-9)
