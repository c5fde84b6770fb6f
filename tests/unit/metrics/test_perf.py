"""`perf_summary`, to the digits of CONTRACT 10.7."""

from __future__ import annotations

from typing import Any

from gymctl.metrics.aggregate import aggregate


def observed(**perf: Any) -> dict[str, Any]:
    return {"reward": 1.0, "ng_perf": perf}


TWO = [
    observed(
        num_turns=2,
        prompt_tokens=100,
        completion_tokens=20,
        total_latency_ms=500,
        token_observability_coverage=1,
    ),
    observed(
        num_turns=4,
        prompt_tokens=300,
        completion_tokens=60,
        total_latency_ms=900,
        token_observability_coverage=1,
    ),
]


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    found = aggregate([{"_ng_task_index": n, **row} for n, row in enumerate(rows)]).perf_summary
    assert found is not None
    return found


def test_the_worked_example() -> None:
    found = summary([*TWO, {"reward": 0.0}, {"reward": 0.0}])
    assert (found["overall_observability_coverage"], found["token_observability_coverage"]) == (0.5, 0.5)
    assert (found["mean_prompt_tokens"], found["median_prompt_tokens"], found["total_prompt_tokens"]) == (
        200,
        200,
        400,
    )
    assert (found["std_num_turns"], found["p90_num_turns"]) == (1.0, 3.8)
    assert (found["min_num_turns"], found["mean_num_turns"], found["max_num_turns"]) == (2, 3, 4)
    assert (found["mean_tokens_per_turn"], found["median_tokens_per_turn"]) == (12.5, 12.5)
    assert (found["total_latency_p50_ms"], found["total_latency_p90_ms"]) == (700, 860)
    assert found["total_latency_mean_ms"] == 700
    assert found["total_latency_p99_ms"] == 896


def test_without_observed_rows_there_is_none() -> None:
    assert aggregate([{"reward": 1.0, "ng_perf": None}]).perf_summary is None


def test_masked_rows_cost_as_much() -> None:
    assert summary([TWO[0] | {"mask_sample": True}])["total_prompt_tokens"] == 100
    assert summary([TWO[0] | {"mask_sample": True}, TWO[1]])["total_prompt_tokens"] == 400


def test_what_no_row_tells_is_null_and_no_turns_is_no_rate() -> None:
    found = summary([observed(num_turns=0, completion_tokens=5, reasoning_tokens=None)])
    assert (found["total_reasoning_tokens"], found["mean_tokens_per_turn"]) == (None, None)
    assert (found["total_completion_tokens"], found["total_latency_p90_ms"]) == (5, None)
    assert found["token_observability_coverage"] == 0
