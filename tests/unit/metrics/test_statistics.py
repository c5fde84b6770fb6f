"""Figures of numbers near the end of what floats hold."""

from __future__ import annotations

import sys
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymctl.metrics.statistics import mean, percentile, population_std, sample_std
from gymctl.metrics.tally import Tally, TaskScore

FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(FINITE, min_size=2, max_size=6))
def test_no_finite_numbers_have_an_infinite_figure(values: list[float]) -> None:
    largest = max(map(abs, values))
    exact = sum(map(Fraction, values), Fraction(0)) / len(values)
    assert mean(values) == pytest.approx(float(exact), abs=largest * 1e-12)
    assert 0 <= population_std(values) <= sample_std(values) <= sys.float_info.max
    assert min(values) <= percentile(sorted(values), 0.3) <= max(values)


def test_the_spread_of_large_numbers() -> None:
    assert sample_std([1e308, 1e308, 1e308]) == 0.0
    assert population_std([1e200, 3e200]) == pytest.approx(1e200)
    assert sample_std([0.0, 1.5e308]) == pytest.approx(1.5e308 / 2**0.5)
    assert sample_std([-1.7e308, 1.7e308]) == sys.float_info.max  # which is nearest
    assert percentile([-1.7e308, 1.7e308], 0.5) == 0.0


def test_a_large_reward_does_not_end_the_run() -> None:
    """It raised: its square is beyond all floats."""
    tally = Tally({task: TaskScore(planned=1) for task in range(12)})
    for task in range(12):
        tally._score(tally.tasks[task], 1e200 if task else 0.0)
    assert tally.reward_so_far == (pytest.approx(11 / 12 * 1e200), None)
    assert tally.headline().mean == pytest.approx(11 / 12 * 1e200)
