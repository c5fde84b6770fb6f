"""The numbers of CONTRACT 10.1-10.3, to the last digit, and properties that hold for any rows."""

from __future__ import annotations

import math
import random
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymctl.metrics.aggregate import aggregate


def row(
    task: int, rollout: int, reward: float, output_tokens: int | None = None, **more: Any
) -> dict[str, Any]:
    usage = {} if output_tokens is None else {"response": {"usage": {"output_tokens": output_tokens}}}
    return {"_ng_task_index": task, "_ng_rollout_index": rollout, "reward": reward, **usage, **more}


FOUR = [row(0, 0, 1, 5), row(0, 1, 0, 7), row(1, 0, 1, 9), row(1, 1, 1, 11)]


def test_an_empty_list_gives_the_empty_answer() -> None:
    assert aggregate([]).model_dump() == {
        "group_level_metrics": [],
        "agent_metrics": {},
        "key_metrics": {},
        "perf_summary": None,
        "repeat_level_metrics": [],
    }


def test_worked_example_pools_all_rollouts() -> None:
    agent = aggregate(FOUR).agent_metrics
    assert (agent["mean/reward"], agent["median/reward"], agent["std/reward"]) == (0.75, 1.0, 0.5)
    assert (agent["mean/output_tokens"], agent["std/output_tokens"]) == (8.0, 2.581988897471611)
    assert agent["num_repeats"] == 2
    assert agent["mean_across_repeats/mean/reward"] == 0.75
    assert agent["std_across_repeats/mean/reward"] == 0.3535533905932738
    assert agent["se_across_repeats/mean/reward"] == 0.25
    assert agent["ci_low_95_across_repeats/mean/reward"] == -2.4265511840436735
    assert agent["ci_high_95_across_repeats/mean/reward"] == 3.9265511840436735


def test_worked_example_groups_by_task() -> None:
    group = aggregate(FOUR).group_level_metrics[0]
    assert (group["mean/reward"], group["std/reward"]) == (0.5, 0.7071067811865476)
    assert group["rollout_infos"][1] == {
        "rollout_id": "0:1",
        "_ng_task_index": 0,
        "_ng_rollout_index": 1,
        "reward": 0,
        "output_tokens": 7,
    }


def test_worked_example_lists_repeats_with_unclipped_intervals() -> None:
    first, second = aggregate(FOUR).repeat_level_metrics
    assert (first["mean/reward"], first["sem/output_tokens"]) == (1.0, 2.0)
    assert (first["p25/output_tokens"], first["p75/output_tokens"]) == (6.0, 8.0)
    assert first["ci_low_95/reward"] == first["ci_high_95/reward"] == 1.0
    assert (second["mean/reward"], second["sem/reward"]) == (0.5, 0.5)
    assert second["ci_low_95/reward"] == -5.853102368087347
    assert second["ci_high_95/reward"] == 6.853102368087347


def test_a_masked_row_leaves_every_quality_statistic() -> None:
    rows = [dict(row_) for row_ in FOUR]
    rows[1]["mask_sample"] = True
    answer = aggregate(rows)
    coverage = {
        "coverage/measured_rollouts": 3,
        "coverage/masked_rollouts": 1,
        "coverage/measured_tasks": 2,
        "coverage/fully_masked_tasks": 0,
    }
    assert answer.agent_metrics["mean/reward"] == 1.0
    assert answer.agent_metrics["mean/output_tokens"] == 8.333333333333334
    assert answer.agent_metrics["num_repeats"] == 2
    assert coverage.items() <= answer.agent_metrics.items()
    assert coverage.items() <= answer.key_metrics.items()
    group = answer.group_level_metrics[0]
    assert group["num_rollouts"] == group["expected_num_rollouts"] == 1
    assert (
        answer.repeat_level_metrics[1]["sample_count"],
        answer.repeat_level_metrics[1]["missing_count"],
    ) == (1, 1)
    assert not any("mask_sample" in key for key in answer.agent_metrics)


def test_all_masked_leaves_only_the_coverage_numbers() -> None:
    answer = aggregate([row(0, 0, 1, mask_sample=True), row(3, 0, 0, mask_sample=1)])
    assert answer.agent_metrics == answer.key_metrics
    assert answer.agent_metrics == {
        "coverage/measured_rollouts": 0,
        "coverage/masked_rollouts": 2,
        "coverage/measured_tasks": 0,
        "coverage/fully_masked_tasks": 2,
    }
    assert answer.group_level_metrics == answer.repeat_level_metrics == []


def test_golden_exchange_of_a_single_row() -> None:
    answer = aggregate([{"_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 1.0}])
    golden = (
        b'{"group_level_metrics":[{"_ng_task_index":0,"mean/reward":1.0,"max/reward":1.0,"min/reward":1.0,'
        b'"median/reward":1.0,"std/reward":0.0,"sample":{"agent_ref":{"name":"agent"}},"num_rollouts":1,'
        b'"expected_num_rollouts":1,"missing_num_rollouts":0,"reward_profile_completion_pct":100.0,'
        b'"rollout_infos":[{"rollout_id":"0:0","_ng_task_index":0,"_ng_rollout_index":0,"reward":1.0}]}],'
        b'"agent_metrics":{"mean/reward":1.0,"max/reward":1.0,"min/reward":1.0,"median/reward":1.0,'
        b'"std/reward":0.0,"num_repeats":1},"key_metrics":{"mean/reward":1.0},"perf_summary":null,'
        b'"repeat_level_metrics":[]}'
    )
    assert orjson.dumps(answer.model_dump()) == golden


def test_columns_are_public_numbers_and_usage() -> None:
    mixed = row(0, 0, 1.0, 7, _hidden=3, passed=True, note="x", nothing=None, nested={"a": 1})
    agent = aggregate([mixed]).agent_metrics
    assert {key for key in agent if key.startswith("mean/")} == {
        "mean/reward",
        "mean/passed",
        "mean/output_tokens",
    }
    assert agent["mean/passed"] == 1.0


def test_a_column_with_one_value_among_several_rows_has_no_std() -> None:
    agent = aggregate([row(0, 0, 1.0, passed=1), row(1, 0, 0.0)]).agent_metrics
    assert "std/reward" in agent
    assert "std/passed" not in agent


def test_missing_indices_count_as_zero() -> None:
    groups = aggregate([{"reward": 1.0}, {"_ng_task_index": None, "reward": 0.0}]).group_level_metrics
    assert [group["_ng_task_index"] for group in groups] == [0]
    assert groups[0]["num_rollouts"] == 2


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf, "nan", "1.0", None, 10**400])
def test_what_is_no_finite_number_is_left_out_whatever_the_order(poison: object) -> None:
    rows = [row(0, 0, 1.0), row(1, 0, 0.0), row(2, 0, 0.5) | {"reward": poison}]
    random.Random(1).shuffle(rows)
    agent = aggregate(rows).agent_metrics
    assert (agent["mean/reward"], agent["max/reward"], agent["min/reward"]) == (0.5, 1.0, 0.0)


def test_median_of_odd_and_even_counts() -> None:
    odd = aggregate([row(i, 0, value) for i, value in enumerate([3, 1, 2])])
    even = aggregate([row(i, 0, value) for i, value in enumerate([4, 1, 3, 2])])
    assert (odd.agent_metrics["median/reward"], even.agent_metrics["median/reward"]) == (2.0, 2.5)


rows_strategy = st.lists(
    st.builds(
        lambda task, rollout, reward, masked: row(task, rollout, reward, mask_sample=masked),
        st.integers(0, 5),
        st.integers(0, 3),
        st.floats(-10, 10),
        st.booleans(),
    ),
    max_size=30,
)


@given(rows_strategy, st.randoms())
def test_order_of_rows_has_no_influence(rows: list[dict[str, Any]], shuffler: random.Random) -> None:
    shuffled = list(rows)
    shuffler.shuffle(shuffled)
    first, second = aggregate(rows), aggregate(shuffled)
    assert first.agent_metrics == second.agent_metrics
    assert first.repeat_level_metrics == second.repeat_level_metrics


@given(rows_strategy)
def test_counts_sum_and_every_number_is_finite(rows: list[dict[str, Any]]) -> None:
    answer = aggregate(rows)
    measured = sum(not row_["mask_sample"] for row_ in rows)
    assert sum(group["num_rollouts"] for group in answer.group_level_metrics) == measured
    for block in (answer.agent_metrics, *answer.group_level_metrics, *answer.repeat_level_metrics):
        assert all(math.isfinite(value) for value in block.values() if isinstance(value, float))
        if "mean/reward" in block:
            assert block["min/reward"] <= block["mean/reward"] <= block["max/reward"]
