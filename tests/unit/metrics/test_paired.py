"""Paired intervals, bootstrap and design against scipy; scipy is an oracle only, the product does without."""

from __future__ import annotations

import math
import time
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from unit.metrics import pairs as make

from gymctl.metrics.bootstrap import bootstrap_interval
from gymctl.metrics.comparison import difference
from gymctl.metrics.paired import Clusters, Pair, paired_interval, t_p_value, unpaired_half_width
from gymctl.metrics.power import needed, smallest_visible


def _random(count: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray, list[Pair]]:
    generator = np.random.default_rng(seed)
    a, b = generator.random(count), generator.random(count)
    pairs = [
        Pair(f"{index:05}", Fraction(float(one)), Fraction(float(two)))
        for index, (one, two) in enumerate(zip(a, b, strict=True))
    ]
    return a, b, pairs


@pytest.mark.parametrize("count", [20, 300])
def test_the_interval_is_that_of_the_paired_t_test(count) -> None:
    a, b, pairs = _random(count)
    for confidence in (0.95, 0.9):
        expected = stats.ttest_rel(b, a).confidence_interval(confidence)
        found = paired_interval(pairs, Clusters.of(pairs), is_unit=True, confidence=confidence)
        assert found is not None
        assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-9)
        assert found.method == "t"
    assert t_p_value(Clusters.of(pairs)) == pytest.approx(stats.ttest_rel(b, a).pvalue, rel=1e-9)


def test_the_unpaired_width_is_that_of_welchs_test() -> None:
    a, b, pairs = _random(50)
    expected = stats.ttest_ind(b, a, equal_var=False).confidence_interval()
    assert unpaired_half_width(pairs) == pytest.approx((expected.high - expected.low) / 2, rel=1e-9)


def test_clusters_widen_the_interval_as_the_sandwich_variance_says() -> None:
    differences = np.random.default_rng(2).normal(0.02, 0.2, size=24) + np.repeat([0.2, -0.2, 0.1, -0.1], 6)
    clusters = [str(index // 6) for index in range(24)]
    pairs = make.of(list(differences), clusters)
    residuals = differences - differences.mean()
    sums = residuals.reshape(4, 6).sum(axis=1)
    error = math.sqrt((sums**2).sum() * 4 / 3) / 24
    half = stats.t.ppf(0.975, 3) * error
    found = paired_interval(pairs, Clusters.of(pairs), is_unit=False)
    assert found is not None
    assert found.high - found.low == pytest.approx(2 * half, rel=1e-9)
    plain = make.of(list(differences))
    alone = paired_interval(plain, Clusters.of(plain), is_unit=False)
    assert alone is not None
    assert found.high - found.low > 1.5 * (alone.high - alone.low)


@pytest.mark.parametrize("differing", [0, 1, 2])
def test_where_hardly_a_task_differs_the_interval_is_binomial_and_has_a_width(differing) -> None:
    pairs = make.of([0.5] * differing + [0.0] * (100 - differing))
    found = paired_interval(pairs, Clusters.of(pairs), is_unit=True)
    assert found is not None
    assert found.method == "clopper-pearson"
    none_lost = 1 - 0.0125 ** (1 / 100)
    gained = stats.beta.ppf(
        [0.0125, 0.9875], [differing / 2, differing / 2 + 1], [101 - differing / 2, 100 - differing / 2]
    )
    low = float(gained[0]) if differing else 0.0
    assert found.low == pytest.approx(low - none_lost, rel=1e-6)
    assert found.high == pytest.approx(float(gained[1]), rel=1e-6)


def test_no_interval_where_none_is_honest() -> None:
    one = make.of([0.25])
    assert paired_interval(one, Clusters.of(one), is_unit=True) is None
    equal = make.of([2.0] * 9)
    assert paired_interval(equal, Clusters.of(equal), is_unit=False) is None
    assert bootstrap_interval(Clusters.of(equal)) is None
    same_cluster = make.of([0.1, 0.4, 0.2], ["x"] * 3)
    assert paired_interval(same_cluster, Clusters.of(same_cluster), is_unit=True) is None


def test_the_bootstrap_agrees_with_scipys_bca_on_skewed_differences() -> None:
    differences = np.random.default_rng(3).exponential(1.0, size=60) - 0.8
    expected = stats.bootstrap(
        (differences,), np.mean, n_resamples=20_000, method="BCa", rng=np.random.default_rng(4)
    )
    pairs = make.of(list(differences))
    found = bootstrap_interval(Clusters.of(pairs), draws=20_000)
    assert found is not None
    low, high = expected.confidence_interval
    assert found == pytest.approx((low, high), abs=0.03 * (high - low))


def test_the_bootstrap_of_clusters_is_as_wide_as_their_t_interval_nearly() -> None:
    generator = np.random.default_rng(5)
    differences = generator.normal(0, 0.1, size=200) + np.repeat(generator.normal(0, 0.3, size=50), 4)
    pairs = make.of(list(differences), [str(index // 4) for index in range(200)])
    clusters = Clusters.of(pairs)
    interval, drawn = paired_interval(pairs, clusters, is_unit=False), bootstrap_interval(clusters)
    assert interval is not None
    assert drawn is not None
    assert drawn[1] - drawn[0] == pytest.approx(interval.high - interval.low, rel=0.15)


@given(st.permutations(list(range(12))))
def test_the_order_of_tasks_has_no_influence_on_any_number(order) -> None:
    pairs = make.simulated(np.random.default_rng(6), tasks=12, attempts=3, cluster_size=2)
    found = difference(pairs, is_unit=True, draws=50)
    assert difference([pairs[index] for index in order], is_unit=True, draws=50) == found


def test_the_smallest_visible_difference_has_80_percent_power_by_the_noncentral_t() -> None:
    for count in (10, 30, 200):
        pairs = make.of(list(np.random.default_rng(count).normal(0.1, 0.3, size=count)))
        clusters = Clusters.of(pairs)
        visible = smallest_visible(clusters)
        assert visible is not None
        noncentrality = visible / clusters.standard_error()
        critical = stats.t.ppf(0.975, count - 1)
        power = stats.nct.sf(critical, count - 1, noncentrality) + stats.nct.cdf(
            -critical, count - 1, noncentrality
        )
        assert power == pytest.approx(0.8, abs=0.01)


def test_what_it_takes_is_what_brings_the_visible_difference_down_to_the_observed_one() -> None:
    pairs = make.of([0.3, -0.2, 0.25, -0.15, 0.1, 0.0, -0.1, 0.2] * 5)
    clusters = Clusters.of(pairs)
    visible, told = smallest_visible(clusters), needed(pairs, clusters)
    assert visible is not None
    assert told is not None
    factor = (len(pairs) + told.more_tasks) / len(pairs)
    assert visible / math.sqrt(factor) == pytest.approx(abs(clusters.mean), rel=0.02)
    assert told.attempts is None, "one attempt per task does not tell how much attempts differ"


def test_attempts_help_only_against_their_own_noise() -> None:
    """All of the variance is noise of the attempts here: k = 4 must become 4 x the factor; and with none of
    it no k is enough."""
    values = [0.3, -0.2, 0.25, -0.15, 0.1, 0.0, -0.1, 0.2] * 5
    variance = float(np.var(values, ddof=1))
    noisy = [Pair(one.task, one.a, one.b, None, variance * 4, variance) for one in make.of(values)]
    steady = [Pair(one.task, one.a, one.b, None, 0.0, 0.0) for one in make.of(values)]
    clusters = Clusters.of(noisy)
    visible = smallest_visible(clusters)
    assert visible is not None
    ratio = (visible / abs(clusters.mean)) ** 2
    told = needed(noisy, clusters)
    assert told is not None
    assert told.attempts == math.ceil(4 * ratio)
    assert (found := needed(steady, clusters)) is not None
    assert found.attempts is None


def test_nothing_is_needed_where_the_difference_was_visible() -> None:
    pairs = make.of([0.5, 0.4, 0.45, 0.5, 0.35] * 4)
    assert needed(pairs, Clusters.of(pairs)) is None


def test_thousands_of_tasks_take_seconds_not_minutes() -> None:
    """10,000 tasks are 1.5 - 2.5 s of CPU; the limit only tells seconds from minutes."""
    pairs = make.simulated(np.random.default_rng(8), tasks=4_000, attempts=4)
    start = time.process_time()
    found = difference(pairs, is_unit=True, draws=200)
    assert found is not None
    assert time.process_time() - start < 10
