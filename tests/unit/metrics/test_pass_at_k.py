"""The pass@k family: the contract's worked examples, and what must hold for any scores."""

from __future__ import annotations

import itertools
import math
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymctl.metrics.pass_at_k import by_subset, highest_k, passes, sample_spreads

A = [{"reward": 1, "said": "A"}, {"reward": 0, "said": "B"}, {"reward": 1, "said": "A"}]
B = [{"reward": 0, "said": None}, {"reward": 0, "said": "C"}, {"reward": 1, "said": "D"}]


def said(row: Any) -> Any:
    return row["said"]


def tasks_of(scores: list[list[float]]) -> list[list[dict[str, Any]]]:
    return [[{"reward": score} for score in task] for task in scores]


def test_the_worked_example():
    metrics = passes([A, B], answer=said)
    expected = {
        "pass@1/accuracy": 50.0,
        "pass@2/accuracy": 83.33333333333334,
        "pass@3/accuracy": 100.0,
        "pass@1[avg-of-1]/accuracy": 50.0,
        "pass@1[avg-of-2]/accuracy": 25.0,
        "pass@1[avg-of-3]/accuracy": 50.0,
        "majority@1/accuracy": 50.0,
        "majority@2/accuracy": 25.0,
        "majority@3/accuracy": 75.0,
        "pass@1/no_answer": 16.666666666666668,
        "pass@1[avg-of-3]/accuracy/std_dev_across_runs": 50.0,
        "pass@1[avg-of-3]/accuracy/std_err_across_runs": 28.86751345948129,
    }
    assert {name: metrics[name] for name in expected} == pytest.approx(expected)
    assert metrics["per_sample_aggregate"]["accuracy"] == [50.0, 0.0, 100.0]
    spreads = sample_spreads([A, B])
    assert spreads["pass@1[avg-of-3]/accuracy/avg_sample_std_dev"] == pytest.approx(0.5773502691896258)


def test_continuous_scores():
    metrics = passes(tasks_of([[0.5, 0.75]]))
    assert metrics["pass@1/accuracy"] == 50.0
    assert metrics["pass@2/accuracy"] == 75.0
    assert metrics["pass@1[avg-of-2]/accuracy"] == 62.5
    assert metrics["pass@1[avg-of-2]/accuracy/std_dev_across_runs"] == pytest.approx(17.67766952966369)
    assert metrics["pass@1[avg-of-2]/accuracy/std_err_across_runs"] == pytest.approx(12.5)


def test_without_answers_there_are_no_votes():
    names = passes([A, B])
    assert not [name for name in names if name.startswith("majority@") or "no_answer" in name]


def test_pass_at_k_rests_on_tasks_with_k_attempts():
    metrics = passes(tasks_of([[1, 1], [0]]))
    assert (metrics["pass@1/accuracy"], metrics["pass@2/accuracy"]) == (50.0, 100.0)


def test_what_is_no_number_is_left_out():
    tasks = [[{"reward": 1.0}, {"reward": None}, {"reward": "x"}, {"reward": math.nan}]]
    assert passes(tasks)["pass@1/accuracy"] == 100.0
    assert "pass@2/accuracy" not in passes(tasks)
    assert passes([]) == {} and passes([[{}]]) == {}


def test_scores_of_ones_own():
    metrics = passes([[{"a": 1, "b": 0}]], scores=lambda row: {"first": row["a"], "second": row["b"]})
    assert (metrics["pass@1/first"], metrics["pass@1/second"]) == (100.0, 0.0)


def test_subsets_prefix_their_value_and_leave_samples_out():
    tasks = [
        [{"reward": 1, "level": None}, {"reward": 1, "level": "hard"}],
        [{"reward": 0, "level": "easy"}],
        [{"reward": 0}],
    ]
    metrics = by_subset(tasks, "level", passes)
    assert (metrics["hard/pass@2/accuracy"], metrics["easy/pass@1/accuracy"]) == (100.0, 0.0)
    assert not [name for name in metrics if "per_sample_aggregate" in name]
    assert {name.split("/")[0] for name in metrics} == {"hard", "easy"}


def test_the_highest_k_without_statistics():
    metrics = {**passes([A, B], answer=said), **sample_spreads([A, B])}
    assert highest_k(metrics, "pass@{k}", ["accuracy"]) == {"pass@3/accuracy": metrics["pass@3/accuracy"]}
    assert highest_k(metrics, "pass@1[avg-of-{k}]") == {
        name: metrics[name] for name in ("pass@1[avg-of-3]/accuracy", "pass@1[avg-of-3]/no_answer")
    }
    assert highest_k(metrics, "nothing@{k}") == {}


binary = st.lists(st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=6), min_size=1, max_size=5)
finite = st.floats(min_value=-5, max_value=5)
continuous = st.lists(st.lists(finite, min_size=1, max_size=6), min_size=1, max_size=5)


@given(binary)
def test_pass_at_k_is_the_share_of_choices_with_a_success(scores: list[list[float]]):
    metrics = passes(tasks_of(scores))
    for k in range(1, max(map(len, scores)) + 1):
        shares = [
            fmean(max(choice) for choice in itertools.combinations(task, k))
            for task in scores
            if len(task) >= k
        ]
        assert metrics[f"pass@{k}/accuracy"] == pytest.approx(100 * fmean(shares))


@given(binary, st.randoms(use_true_random=False))
def test_the_order_of_attempts_does_not_matter_for_right_and_wrong(scores, random):
    shuffled = [random.sample(task, len(task)) for task in scores]
    before, after = passes(tasks_of(scores)), passes(tasks_of(shuffled))
    names = [name for name in before if name.startswith("pass@") and "[" not in name]
    assert {name: after[name] for name in names} == {name: before[name] for name in names}


@given(continuous)
def test_more_attempts_of_the_same_tasks_are_never_worse(scores: list[list[float]]):
    size = min(map(len, scores))
    metrics = passes(tasks_of([task[:size] for task in scores]))
    values = [metrics[f"pass@{k}/accuracy"] for k in range(1, size + 1)]
    assert all(after >= before - 1e-9 for before, after in itertools.pairwise(values))


@given(continuous)
def test_averages_lie_between_the_extremes(scores: list[list[float]]):
    flat = [score for task in scores for score in task]
    metrics = passes(tasks_of(scores))
    for name, value in metrics.items():
        if name.startswith("pass@1[avg-of-") and name.endswith("]/accuracy"):
            assert 100 * min(flat) - 1e-9 <= value <= 100 * max(flat) + 1e-9


@given(st.lists(st.tuples(st.sampled_from("ABC"), st.booleans()), min_size=1, max_size=7))
def test_one_voice_decides_when_all_agree(rows):
    answer = rows[0][0]
    agreed = [[{"reward": rows[0][1], "said": answer} for _ in rows]]
    metrics = passes(agreed, answer=said)
    for k in range(1, len(rows) + 1):
        assert metrics[f"majority@{k}/accuracy"] == 100.0 * rows[0][1]
