"""The sign-flip test against brute force and scipy."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gymctl.metrics import signflip
from gymctl.metrics.signflip import holm, sign_flip

_DIFFERENCES = st.lists(st.fractions(-1, 1, max_denominator=8), min_size=1, max_size=9)


def _by_hand(differences: list[Fraction]) -> float:
    observed = abs(sum(differences))
    sums = [
        abs(sum(sign * one for sign, one in zip(signs, differences, strict=True)))
        for signs in product((1, -1), repeat=len(differences))
    ]
    return sum((total > observed) + (total == observed) / 2 for total in sums) / len(sums)


@given(_DIFFERENCES)
def test_the_p_value_counts_every_pattern_of_signs(differences) -> None:
    found = sign_flip(differences)
    expected = _by_hand(differences) if any(differences) else 1.0
    assert found.is_exact
    assert found.p == pytest.approx(expected, abs=1e-12)


@given(_DIFFERENCES.filter(any))
def test_both_ways_of_counting_agree(differences) -> None:
    sizes = [abs(one) for one in differences if one]
    scale = np.lcm.reduce([size.denominator for size in sizes])
    steps = [int(size * int(scale)) for size in sizes]
    goal = int(abs(sum(differences)) * int(scale))
    assert signflip._counted(steps, goal) == pytest.approx(signflip._listed(steps, goal), abs=1e-12)


def test_the_exact_count_agrees_with_scipys_draws() -> None:
    generator = np.random.default_rng(1)
    differences = generator.integers(-4, 6, size=60) / 4
    drawn = stats.permutation_test(
        (differences,),
        np.sum,
        permutation_type="samples",
        n_resamples=20_000,
        vectorized=False,
        rng=np.random.default_rng(2),
    )
    totals, observed = np.abs(drawn.null_distribution), abs(differences.sum())
    expected = np.mean(totals > observed + 1e-9) + np.mean(abs(totals - observed) < 1e-9) / 2
    found = sign_flip([Fraction(float(one)) for one in differences])
    assert found.is_exact
    assert found.p == pytest.approx(expected, abs=0.01)


def test_drawn_patterns_agree_with_counted_ones_and_can_be_repeated() -> None:
    steps = [Fraction(int(one), 4) for one in np.random.default_rng(3).integers(-4, 6, size=40)]
    exact = sign_flip(steps)
    sizes = sorted(float(abs(one)) for one in steps if one)
    drawn = signflip._drawn(sizes, float(abs(sum(steps))), seed=0, draws=9_999)
    assert exact.is_exact
    assert drawn == pytest.approx(exact.p, abs=0.01)
    assert drawn == signflip._drawn(sizes, float(abs(sum(steps))), seed=0, draws=9_999)


def test_numbers_off_any_grid_are_drawn_and_the_smallest_p_is_not_zero() -> None:
    found = sign_flip([Fraction(float(one)) for one in np.random.default_rng(4).normal(3, 1, size=40)])
    assert not found.is_exact
    assert 0 < found.p < 0.001


def test_the_order_of_tasks_and_the_direction_do_not_matter() -> None:
    values = [Fraction(float(one)) for one in np.random.default_rng(5).normal(0.2, 1, size=30)]
    assert sign_flip(values) == sign_flip(values[::-1]) == sign_flip([-one for one in values])


def test_no_difference_at_all_is_no_evidence() -> None:
    assert sign_flip([Fraction(0)] * 5).p == 1.0
    assert sign_flip([]).p == 1.0


def test_holm_as_worked_by_hand() -> None:
    """4 x 0.005, 3 x 0.01, then what is larger stays at least as large."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.2]) == [0.2]
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_lies_between_the_raw_value_and_bonferroni(values) -> None:
    for raw, adjusted in zip(values, holm(values), strict=True):
        assert raw <= adjusted <= min(1.0, raw * len(values))
