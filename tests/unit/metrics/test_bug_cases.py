"""BUG_CASES section H: numbers that go wrong elsewhere, with the figures of the log."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import pytest

from gymctl.cli.table import RunFacts, result_json
from gymctl.metrics.aggregate import aggregate
from gymctl.metrics.headline import TaskScore, headline
from gymctl.metrics.headline import pass_at as of_tasks
from gymctl.metrics.outcomes import outcome
from gymctl.metrics.pass_at_k import Attempt, passes
from gymctl.metrics.pass_at_k import pass_at as of_attempts
from gymctl.metrics.statistics import median
from gymctl.metrics.tally import Tally

Row = dict[str, Any]


def rows_of(rewards: list[list[object]]) -> list[Row]:
    return [
        {"_ng_task_index": task, "_ng_rollout_index": rollout, "reward": reward}
        for task, attempts in enumerate(rewards)
        for rollout, reward in enumerate(attempts)
    ]


def tally_of(rewards: list[list[object]], rows: list[Row]) -> Tally:
    made = Tally(repeats=max(map(len, rewards), default=1))
    for task, attempts in enumerate(rewards):
        made.plan(task, len(attempts))
    for row in rows:
        made.add(row, outcome(row), row)
    return made


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(
    ("rewards", "mean", "unusable"),
    [([1, 0, math.nan], 0.5, 1), ([1, "nan", 0], 0.5, 1), ([], None, 0), (["inf", 1], 1.0, 1)],
)
def test_b114_what_is_not_finite_is_left_out_and_listed_in_any_order(
    rewards: list[object], mean: float | None, unusable: int, seed: int
) -> None:
    """BUG_CASES B114: and there is no value, rather than 0 or NaN, when nothing is left."""
    tasks = [[reward] for reward in rewards]
    rows = rows_of(tasks)
    random.Random(seed).shuffle(rows)
    made = tally_of(tasks, rows)
    assert made.headline().mean == mean
    assert made.failed.total() == unusable
    assert sum(map(len, made.examples.values())) == unusable
    shown = result_json(made, RunFacts(title="t", model=None, seconds=1.0, min_coverage=0.0))
    assert json.loads(json.dumps(shown, allow_nan=False))["reward"] == mean
    numbers = aggregate(rows).model_dump()
    json.dumps(numbers, allow_nan=False)
    assert numbers["agent_metrics"].get("mean/reward") == mean


@pytest.mark.parametrize(
    ("n", "c", "k", "expected"),
    [
        (4, 1, 1, 0.25),
        (4, 1, 2, 0.5),
        (4, 1, 4, 1.0),
        (5, 2, 3, 0.9),
        (200, 1, 100, 0.5),
        (1000, 3, 500, 1 - (500 * 499 * 498) / (1000 * 999 * 998)),
    ],
)
def test_b115_pass_at_k_is_the_closed_form(n: int, c: int, k: int, expected: float) -> None:
    """BUG_CASES B115: 0.875375… for the last, exact and without overflow, in any order, in both places."""
    rewards = [1.0] * c + [0.0] * (n - c)
    if n == 1000:
        assert f"{expected:.6f}" == "0.875375"
    for seed in range(3):
        random.Random(seed).shuffle(rewards)
        task = TaskScore(planned=n)
        for reward in rewards:
            task.add(reward)
        found = of_tasks([task], k)
        assert found is not None
        assert found.value == pytest.approx(expected, abs=1e-9)
        assert of_attempts(k, [Attempt(reward, None) for reward in rewards]) == pytest.approx(
            expected, abs=1e-9
        )


def test_b117_a_median_is_of_sorted_values() -> None:
    """BUG_CASES B117."""
    assert (median([3, 1, 2]), median([4, 1, 3, 2])) == (2, 2.5)
    numbers = aggregate(rows_of([[4.0], [1.0], [3.0], [2.0]])).agent_metrics
    assert numbers["median/reward"] == 2.5


@pytest.mark.parametrize("rewards", [[[0.25]], [[1.0, 0.0, 1.0, 0.5]], [[0.25], [0.75], [0.5]]])
def test_b119_one_of_a_kind_has_no_spread_and_no_nan(rewards: list[list[object]]) -> None:
    """BUG_CASES B119: the spread of one value is 0 (CONTRACT 10.3); intervals count tasks, not rollouts."""
    rows = rows_of(rewards)
    numbers = aggregate(rows).model_dump()
    family = passes([[row for row in rows if row["_ng_task_index"] == n] for n in range(len(rewards))])
    shown = result_json(tally_of(rewards, rows), RunFacts("t", None, 1.0, 0.95))
    for document in (numbers, family, shown):
        json.dumps(document, allow_nan=False)
    for group, attempts in zip(numbers["group_level_metrics"], rewards, strict=True):
        assert (group["std/reward"] == 0) == (len(attempts) == 1)
    assert (numbers["agent_metrics"]["std/reward"] == 0) == (len(rows) == 1)


def test_b119_error_bars_are_over_tasks() -> None:
    """BUG_CASES B119: four rollouts of one task say as much about the others as one rollout does."""

    def width(rewards: list[list[float]], *, is_unit: bool = True) -> float | None:
        tasks = []
        for attempts in rewards:
            task = TaskScore(planned=len(attempts))
            for reward in attempts:
                task.add(reward if is_unit else reward * 10)
            tasks.append(task)
        found = headline(tasks).interval
        return None if found is None else found.high - found.low

    one, four = width([[0.5]]), width([[1.0, 0.0, 1.0, 0.0]])
    assert one is not None
    assert one == four
    assert one > 0.8
    assert width([[0.5]], is_unit=False) is None
    three, twelve = width([[0.2], [0.4], [0.9]]), width([[0.2] * 4, [0.4] * 4, [0.9] * 4])
    assert three == twelve
