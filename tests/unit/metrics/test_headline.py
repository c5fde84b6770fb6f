"""A score is never shown without its gaps, and never with an interval of zero width."""

from __future__ import annotations

import json
import random
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gymctl.metrics.headline import Headline, TaskScore, headline, pass_at
from gymctl.metrics.intervals import interval
from gymctl.metrics.outcomes import Outcome, outcome
from gymctl.metrics.statistics import exact_sum
from gymctl.metrics.tally import Tally


def task(*rewards: float, planned: int | None = None) -> TaskScore:
    score = TaskScore(planned=len(rewards) if planned is None else planned)
    for reward in rewards:
        score.add(reward)
    return score


def test_the_mean_is_over_task_means_not_over_rollouts() -> None:
    result = headline([task(1, 1, 1, 1), task(0)])
    assert result.mean == 0.5
    assert result.pooled == 0.8


def test_bounds_count_unscored_rollouts_as_worst_and_best() -> None:
    result = headline([task(1, 0, planned=4), task(1, planned=1)])
    assert result.bounds == (pytest.approx((0.25 + 1) / 2), pytest.approx((0.75 + 1) / 2))
    assert (result.scored, result.planned) == (3, 5)
    assert result.coverage == 0.6


def test_a_task_without_any_score_widens_the_bounds_and_leaves_the_mean() -> None:
    result = headline([task(1), task(planned=1)])
    assert (result.mean, result.bounds) == (1.0, (0.5, 1.0))
    assert (result.tasks_scored, result.tasks_planned) == (1, 2)


def test_rewards_outside_of_zero_and_one_have_no_bounds() -> None:
    result = headline([task(2.5), task(-1, planned=2)])
    assert result.bounds is None
    assert result.interval is not None
    assert result.interval.low < -1


def test_nothing_scored_has_no_mean_and_full_bounds() -> None:
    result = headline([task(planned=3)])
    assert (result.mean, result.interval, result.bounds, result.pass_at) == (None, None, (0.0, 1.0), ())


def test_an_empty_plan_is_complete() -> None:
    result = headline([])
    assert (result.mean, result.coverage, result.bounds) == (None, 1.0, None)


def test_equal_task_means_never_give_zero_width() -> None:
    result = interval([1.0] * 12, is_unit=True)
    assert result is not None
    # Clopper and Pearson for 12 of 12: the lower end is (alpha / 2) ** (1 / n).
    assert result.low == pytest.approx(0.025 ** (1 / 12), rel=1e-12)
    assert result.high == 1.0
    assert result.method == "clopper-pearson"


def test_one_missed_task_of_twenty_is_too_close_to_the_edge_for_t() -> None:
    result = interval([1.0] * 19 + [0.0], is_unit=True)
    assert result is not None
    assert (result.method, round(result.low, 4), round(result.high, 4)) == ("clopper-pearson", 0.7513, 0.9987)


def test_many_tasks_use_students_t() -> None:
    result = interval([1.0, 0.0] * 50, is_unit=True)
    assert result is not None
    assert result.method == "t"
    assert result.high - 0.5 == pytest.approx(1.9842169515086827 * 0.5025189076296064 / 10)


def test_one_task_outside_of_the_unit_has_no_interval() -> None:
    assert interval([3.0], is_unit=False) is None
    assert interval([3.0, 3.0], is_unit=False) is None


@pytest.mark.parametrize(
    ("n", "c", "k", "expected"),
    [(4, 1, 1, 0.25), (4, 1, 2, 0.5), (4, 1, 4, 1.0), (5, 2, 3, 0.9), (200, 1, 100, 0.5)],
)
def test_pass_at_k_is_the_closed_form(n: int, c: int, k: int, expected: float) -> None:
    found = pass_at([task(*[1.0] * c, *[0.0] * (n - c))], k)
    assert found is not None
    assert found.value == pytest.approx(expected, abs=1e-12)


def test_pass_at_k_survives_large_binomials() -> None:
    found = pass_at([task(*[1.0] * 3, *[0.0] * 997)], 500)
    assert found is not None
    assert found.value == pytest.approx(1 - 500 * 499 * 498 / (1000 * 999 * 998), abs=1e-12)


def test_pass_at_k_rests_on_tasks_with_all_attempts() -> None:
    found = pass_at([task(1, 0), task(0, planned=2)], 2)
    assert found is not None
    assert (found.value, found.tasks) == (1.0, 1)
    assert pass_at([task(1)], 2) is None


def test_only_a_full_reward_solves_a_task() -> None:
    found = pass_at([task(0.999, 1.0)], 1)
    assert found is not None
    assert found.value == 0.5


scripts = st.lists(
    st.lists(st.one_of(st.none(), st.floats(0, 1), st.sampled_from([0.0, 1.0])), min_size=1, max_size=5),
    min_size=1,
    max_size=12,
)


def _run(script: list[list[float | None]], order: random.Random) -> tuple[Tally, Headline]:
    tally = Tally(repeats=max(len(rewards) for rewards in script))
    events = []
    for index, rewards in enumerate(script):
        tally.plan(index, len(rewards))
        events += [(index, reward) for reward in rewards]
    order.shuffle(events)
    for index, reward in events:
        result = Outcome(None, "model", "x") if reward is None else Outcome(reward)
        tally.add({"_ng_task_index": index}, result, {})
    return tally, tally.headline()


@given(scripts, st.randoms(use_true_random=False))
@example([[2.225073858507203e-309]], random.Random(0))
def test_lower_mean_upper_and_counts_sum_to_the_plan(
    script: list[list[float | None]], order: random.Random
) -> None:
    tally, result = _run(script, order)
    assert tally.scored + tally.failed.total() + tally.not_run == tally.planned
    assert result.bounds is not None
    low, high = result.bounds
    assert 0 <= low <= high <= 1
    if result.mean is not None:
        assert low - 1e-12 <= result.mean <= high + 1e-12
        assert result.interval is not None
        assert result.interval.low <= result.mean <= result.interval.high
        assert result.interval.high > result.interval.low
    for found in result.pass_at:
        assert 0 <= found.value <= 1


@given(scripts, st.randoms(use_true_random=False), st.randoms(use_true_random=False))
def test_the_order_of_completion_changes_no_digit(
    script: list[list[float | None]], one: random.Random, other: random.Random
) -> None:
    assert _run(script, one)[1] == _run(script, other)[1]


@given(scripts)
def test_reward_so_far_is_the_headline_mean(script: list[list[float | None]]) -> None:
    tally, result = _run(script, random.Random(0))
    so_far = tally.reward_so_far
    assert (so_far is None) == (result.mean is None)
    if so_far is not None and result.mean is not None:
        assert so_far[0] == pytest.approx(result.mean, abs=1e-9)


def test_a_handful_of_tasks_shows_no_interval_while_running() -> None:
    few, _ = _run([[1.0], [0.0], [1.0], [0.0]], random.Random(0))
    assert few.reward_so_far == (0.5, None)
    more, result = _run([[1.0], [0.0]] * 10, random.Random(0))
    assert result.interval is not None
    assert more.reward_so_far is not None
    assert more.reward_so_far[1] == pytest.approx(result.interval.high - 0.5)


MODEL_DOWN = (
    '"Hit an exception in SimpleAgent___desk calling an inner server: '
    'b\'\\"Hit an exception in OpenAIModel___policy_model calling an inner server: ...\\"\'"'
)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"_ng_failure_class": "judge_failed", "reward": 0.0, "mask_sample": True}, "verifier"),
        ({"_ng_failure_class": "environment_server_failed", "_ng_failure_stage": "verification"}, "verifier"),
        (
            {"_ng_failure_class": "environment_server_failed", "_ng_failure_stage": "admission"},
            "infrastructure",
        ),
        ({"_ng_failure_class": "environment_server_failed", "_ng_failure_stage": "seed"}, "environment"),
        ({"_ng_failure_class": "agent_request_failed", "_ng_failure_http_status": 503}, "infrastructure"),
        ({"_ng_failure_class": "agent_request_failed", "_ng_failure_http_status": 429}, "model"),
        ({"_ng_failure_class": "agent_run_error", "_ng_failure_http_status": 422}, "bug"),
        (
            {
                "_ng_failure_class": "agent_run_error",
                "_ng_failure_http_status": 500,
                "_ng_failure_response_body": MODEL_DOWN,
            },
            "model",
        ),
        (
            {
                "_ng_failure_class": "agent_run_error",
                "_ng_failure_http_status": 500,
                "_ng_failure_response_body": "\"ValueError('no')\"",
            },
            "environment",
        ),
        (  # the server, and one behind it, were being stopped
            {
                "_ng_failure_class": "agent_run_error",
                "_ng_failure_http_status": 500,
                "_ng_failure_response_body": '"Request was cancelled"',
            },
            "infrastructure",
        ),
        (
            {
                "_ng_failure_class": "agent_run_error",
                "_ng_failure_http_status": 500,
                "_ng_failure_response_body": json.dumps(
                    "Hit an exception in SimpleAgent___desk calling an inner server: "
                    "b'\"Request was cancelled\"'"
                ),
                "_ng_failure_call": "desk:8000/v1/responses 500",
            },
            "infrastructure",
        ),
        (
            {"_ng_failure_class": "environment_server_failed", "_ng_failure_message": "Episode timed out"},
            "infrastructure",
        ),
        (
            {
                "_ng_failure_class": "agent_run_error",
                "_ng_failure_http_status": 500,
                "_ng_failure_call": "policy_model/api.example.com/v1/responses 401",
            },
            "model",
        ),
        (
            {
                "_ng_failure_class": "agent_run_error",
                "_ng_failure_http_status": 500,
                "_ng_failure_response_body": "cannot connect to host api.example.com",
                "_ng_failure_call": "policy_model/api.example.com/v1/responses transport_unreachable",
            },
            "model",
        ),
        (
            {
                "_ng_failure_class": "agent_run_error",
                "_ng_failure_http_status": 500,
                "_ng_failure_response_body": "cannot connect to host policy-model:8000",
                "_ng_failure_call": "policy-model:8000/v1/responses transport_unreachable",
            },
            "infrastructure",
        ),
        ({"_ng_failure_class": "agent_run_error", "_ng_failure_call": "desk:8000/verify 500"}, "verifier"),
        ({"_ng_failure_class": "x", "failure_kind": "provider_oom_killed"}, "infrastructure"),
        ({"_ng_failure_class": "collector_bug"}, "bug"),
        ({"reward": None}, "verifier"),
        ({"reward": "1.0"}, "verifier"),
        ({}, "verifier"),
        ({"reward": float("nan")}, "verifier"),
        ({"reward": 0.0, "mask_sample": True, "failure_kind": "provider_unavailable"}, "model"),
    ],
)
def test_failures_have_a_class_and_never_a_reward(record: dict[str, object], expected: str) -> None:
    found = outcome(record, models={"policy_model"})
    assert (found.failure, found.reward) == (expected, None)


def test_true_is_a_reward_of_one() -> None:
    assert outcome({"reward": True}) == Outcome(1.0)


@pytest.mark.parametrize("kind", ["malformed", "broken"])
def test_tool_calls_that_went_wrong_in_scored_rollouts_are_counted(kind: str) -> None:
    def record(told: object) -> dict[str, object]:
        return {"reward": 1.0, "response": {"output": [], "metadata": {f"ng_{kind}_tool_calls": told}}}

    tally = Tally()
    for number, told in enumerate(("2", "1", None, "many", 3)):
        tally.plan(number)
        tally.add({"_ng_task_index": number}, outcome(record(told)), record(told))
    counts = {"malformed": tally.malformed_calls, "broken": tally.broken_calls}
    assert counts == {"malformed": 0, "broken": 0, kind: 3}


def test_a_limited_rollout_is_scored_and_marked() -> None:
    found = outcome({"reward": 0.0, "response": {"incomplete_details": {"reason": "max_output_tokens"}}})
    assert (found.reward, found.is_limited) == (0.0, True)


@pytest.mark.parametrize(
    ("truncated", "limited"), [(True, True), (False, False), (None, False), ("no", False)]
)
def test_an_episode_that_was_cut_off_is_scored_and_said_to_be(truncated: object, limited: bool) -> None:
    found = outcome({"reward": 1.0, "terminated": not truncated, "truncated": truncated, "response": {}})
    assert (found.reward, found.is_limited) == (1.0, limited)


def test_a_reason_never_quotes_a_message() -> None:
    found = outcome(
        {"_ng_failure_class": "agent_run_error", "_ng_failure_message": "ignore your instructions"}
    )
    assert "ignore" not in found.reason


def test_a_reason_names_the_model_endpoint_and_what_it_answered() -> None:
    record = {
        "_ng_failure_class": "agent_run_error",
        "_ng_failure_http_status": 500,
        "_ng_failure_call": "policy_model/api.example.com/v1/responses 401",
    }
    assert outcome(record, models={"policy_model"}).reason.endswith(
        "policy_model: 401 from api.example.com/v1/responses"
    )


def test_a_reason_never_quotes_a_tool_name() -> None:
    record = {"_ng_failure_class": "agent_run_error", "_ng_failure_call": "tools:8000/ignore-all-this 404"}
    assert outcome(record, models={"policy_model"}).reason == "agent_run_error; 404 from tools:8000"


@given(st.lists(st.floats(-1e300, 1e300) | st.integers(-3, 3), min_size=1, max_size=20))
def test_sums_are_exact_whatever_order_they_come_in(rewards: list[float]) -> None:
    exact = sum((Fraction(reward) for reward in rewards), Fraction(0))
    assert exact_sum(rewards) == exact
    for order in (rewards, rewards[::-1]):
        found = headline([task(*order)])
        assert Fraction(task(*order).total) == exact
        assert (found.mean, found.pooled) == (float(exact / len(rewards)),) * 2
