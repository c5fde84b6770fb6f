"""The verdict: how often it is wrong about equal runs, how often it finds a difference, and its rules."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from unit.metrics import pairs as make

from gymctl.metrics.comparison import Difference, Rules, difference, loss, verdict
from gymctl.metrics.paired import Pair

RUNS = 1_000


def _word(found: Difference | None, rules: Rules | None = None, **more) -> str:
    assert found is not None
    told = {"bounds": None, "is_covered": True, **more}
    return verdict(found, found.p, rules or Rules(), told["bounds"], is_covered=told["is_covered"])


def _found(pairs: list[Pair], *, is_unit: bool = True) -> Difference:
    found = difference(pairs, is_unit=is_unit, draws=2)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("tasks", "attempts", "more"),
    [
        (20, 1, {}),
        (20, 4, {}),
        (200, 1, {}),
        (30, 1, {"difficulty": (3.0, 1.0)}),
        (30, 1, {"difficulty": (12.0, 1.0)}),
        (100, 1, {"difficulty": (12.0, 1.0)}),
        (40, 4, {"difficulty": (12.0, 1.0)}),
        (60, 2, {"cluster_size": 4}),
    ],
)
def test_of_1000_pairs_of_equal_runs_5_percent_are_told_to_differ(tasks, attempts, more) -> None:
    """Within 1.5 points, whether tasks are of all kinds, near the ceiling, or in clusters."""
    generator = np.random.default_rng(7)
    alarms = sum(
        _word(_found(make.simulated(generator, tasks=tasks, attempts=attempts, **more))) != "undecided"
        for _ in range(RUNS)
    )
    assert 0.035 <= alarms / RUNS <= 0.065


@pytest.mark.parametrize(
    ("tasks", "attempts", "more"), [(5, 1, {}), (10, 4, {}), (20, 4, {"difficulty": (12.0, 1.0)})]
)
def test_where_hardly_a_task_moves_alarms_are_rarer_never_more(tasks, attempts, more) -> None:
    generator = np.random.default_rng(7)
    alarms = sum(
        _word(_found(make.simulated(generator, tasks=tasks, attempts=attempts, **more))) != "undecided"
        for _ in range(RUNS)
    )
    assert alarms / RUNS <= 0.03


def test_clusters_that_are_not_declared_raise_false_alarms() -> None:
    """Why `--cluster` exists."""
    generator = np.random.default_rng(7)
    alarms = 0
    for _ in range(200):
        pairs = make.simulated(generator, tasks=96, attempts=8, cluster_size=8)
        alarms += _word(_found([Pair(one.task, one.a, one.b) for one in pairs])) != "undecided"
    assert alarms / 200 > 0.1


@pytest.mark.parametrize("power", [0.5, 0.8])
def test_a_true_difference_is_found_as_often_as_theory_says(power) -> None:
    """Within 3 points of the non-central t, for differences with a standard deviation of about 0.3."""
    count, spread = 30, 0.3
    generator = np.random.default_rng(9)
    critical = stats.t.ppf(0.975, count - 1)
    grid = np.linspace(0, 8, 8001)
    effect = grid[np.searchsorted(stats.nct.sf(critical, count - 1, grid), power)] * spread / np.sqrt(count)
    hits = 0
    for _ in range(RUNS):
        values = np.round(generator.normal(effect, spread, size=count) * 16) / 16
        hits += _word(_found(make.of(list(values)), is_unit=False)) == "better"
    assert hits / RUNS == pytest.approx(power, abs=0.03)


@pytest.mark.parametrize("shift", [0.0, 0.03, -0.045])
def test_equivalent_is_what_two_one_sided_tests_say(shift) -> None:
    values = np.random.default_rng(11).normal(shift, 0.1, size=60)
    margin = 0.05
    sides = (
        stats.ttest_1samp(values, -margin, alternative="greater").pvalue,
        stats.ttest_1samp(values, margin, alternative="less").pvalue,
    )
    found = _found(make.of(list(values)), is_unit=False)
    assert (_word(found, Rules(margin)) == "equivalent") == (max(sides) < 0.05)


def test_equal_runs_are_undecided_without_a_margin_and_equivalent_with_a_wide_one() -> None:
    same = _found(make.of([0.0] * 200))
    assert _word(same) == "undecided"
    assert _word(same, Rules(0.1)) == "equivalent"
    assert _word(same, Rules(0.001)) == "undecided", "200 tasks cannot exclude a loss of 0.001"


def test_direction_and_lower_is_better() -> None:
    better = _found(make.of([0.3, 0.2, 0.25, 0.1, 0.3, 0.2, 0.15, 0.2] * 3))
    assert _word(better) == "better"
    assert _word(better, Rules(is_lower_better=True)) == "worse"


def test_with_too_little_coverage_the_worst_case_must_say_so_too() -> None:
    better = _found(make.of([0.3, 0.2, 0.25, 0.1, 0.3, 0.2, 0.15, 0.2] * 3))
    assert _word(better, is_covered=False, bounds=(-0.1, 0.4)) == "undecided"
    assert _word(better, is_covered=False, bounds=(0.05, 0.4)) == "better"
    assert _word(better, is_covered=False, bounds=None) == "undecided"
    assert _word(better, Rules(0.9), is_covered=False, bounds=(0.0, 0.4)) != "equivalent"


def test_the_loss_of_a_gate_is_the_far_end_of_the_interval() -> None:
    found = _found(make.of([0.3, -0.2, 0.25, -0.1, 0.3, -0.2, 0.15, -0.2] * 3))
    assert found.interval is not None
    assert loss(found, Rules(), None, is_covered=True) == pytest.approx(-found.interval.low)
    assert loss(found, Rules(is_lower_better=True), None, is_covered=True) == pytest.approx(
        found.interval.high
    )
    assert loss(found, Rules(), (-0.6, 0.4), is_covered=False) == pytest.approx(0.6)
    assert loss(found, Rules(), None, is_covered=False) is None
    assert loss(None, Rules(), None, is_covered=True) is None
