"""What a server's hooks add to the aggregate, and where (CONTRACT 10.4)."""

from __future__ import annotations

import math
from typing import Any

import pytest

from gymctl.metrics.aggregate import aggregate
from gymctl.metrics.hooks import MetricHooks
from gymctl.metrics.pass_at_k import passes


def row(task: int, rollout: int, reward: float, **more: Any) -> dict[str, Any]:
    return {"_ng_task_index": task, "_ng_rollout_index": rollout, "reward": reward, **more}


FOUR = [row(0, 0, 1.0), row(0, 1, 0.0), row(1, 0, 1.0), row(1, 1, 1.0)]


class Hooks(MetricHooks):
    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.seen: list[Any] = []

    def compute_metrics(self, tasks):
        self.seen.append([[(line["_ng_task_index"], line["_ng_rollout_index"]) for line in t] for t in tasks])
        return self.answers.get("metrics", {})

    def get_key_metrics(self, agent_metrics):
        keys = self.answers.get("keys")
        return super().get_key_metrics(agent_metrics) if keys is None else {k: agent_metrics[k] for k in keys}

    def compute_repeat_metrics(self, tasks):
        repeat = self.answers.get("repeat")
        return {} if repeat is None else repeat(tasks)


def test_without_hooks_nothing_changes():
    assert aggregate(FOUR, MetricHooks()) == aggregate(FOUR)


def test_metrics_are_merged_and_see_scored_rows_in_order():
    hooks = Hooks(metrics={"pass@1/accuracy": 75.0, "mean/reward": 0.5})
    answer = aggregate([*reversed(FOUR), row(2, 0, 0.0, mask_sample=True)], hooks)
    assert hooks.seen == [[[(0, 0), (0, 1)], [(1, 0), (1, 1)]]]
    assert answer.agent_metrics["pass@1/accuracy"] == 75.0
    assert answer.agent_metrics["mean/reward"] == answer.key_metrics["mean/reward"] == 0.5
    assert answer.key_metrics["coverage/masked_rollouts"] == 1


def test_per_task_metrics_go_to_their_groups():
    per_task = [{"_ng_task_index": 1, "solved": True}, {"_ng_task_index": 9, "solved": False}]
    answer = aggregate(FOUR, Hooks(metrics={"per_task_metrics": per_task}))
    first, second = answer.group_level_metrics
    assert "solved" not in first and second["solved"] is True
    assert second["num_rollouts"] == 2
    assert "per_task_metrics" not in answer.agent_metrics


def test_key_metrics_are_the_servers_choice():
    hooks = Hooks(
        metrics={"pass@1/accuracy": 75.0}, keys=["pass@1/accuracy", "mean_across_repeats/mean/reward"]
    )
    assert aggregate(FOUR, hooks).key_metrics == {
        "pass@1/accuracy": 75.0,
        "mean_across_repeats/mean/reward": 0.75,
    }


def test_repeat_metrics_replace_columns_and_their_statistics():
    hooks = Hooks(repeat=lambda tasks: {"mean/reward": len(tasks) + tasks[0][0]["_ng_rollout_index"]})
    answer = aggregate(FOUR, hooks)
    assert [entry["mean/reward"] for entry in answer.repeat_level_metrics] == [2, 3]
    assert [entry["median/reward"] for entry in answer.repeat_level_metrics] == [1.0, 0.5]
    assert answer.agent_metrics["mean_across_repeats/mean/reward"] == 2.5
    assert answer.agent_metrics["mean/reward"] == 0.75


def test_repeat_metrics_of_a_new_name_get_statistics_unless_they_are_spreads():
    name = "pass@1[avg-of-1]/accuracy"
    hooks = Hooks(
        repeat=lambda tasks: {
            **{key: value for key, value in passes(tasks).items() if key == name},
            f"{name}/std_dev_across_runs": 1.0,
            "ci/ci_lower": 1.0,
            "std/mine": 1.0,
        }
    )
    answer = aggregate(FOUR, hooks)
    assert [entry[name] for entry in answer.repeat_level_metrics] == [100.0, 50.0]
    assert answer.agent_metrics[f"mean_across_repeats/{name}"] == 75.0
    assert answer.agent_metrics[f"std_across_repeats/{name}"] == pytest.approx(35.35533905932738)
    across = [key for key in answer.agent_metrics if key.startswith("mean_across_repeats/")]
    assert across == ["mean_across_repeats/mean/reward", f"mean_across_repeats/{name}"]


@pytest.mark.parametrize("bad", [math.nan, math.inf, None, "x"])
def test_a_name_that_is_not_finite_in_every_repeat_is_dropped(bad):
    values = iter([1.0, bad])
    answer = aggregate(FOUR, Hooks(repeat=lambda tasks: {"mine": next(values)}))
    assert not [entry for entry in answer.repeat_level_metrics if "mine" in entry]
    assert "mean_across_repeats/mine" not in answer.agent_metrics


def test_a_name_that_is_not_finite_in_the_whole_run_is_dropped():
    hooks = Hooks(metrics={"mine": math.nan}, repeat=lambda tasks: {"mine": 1.0})
    assert "mine" not in aggregate(FOUR, hooks).repeat_level_metrics[0]


def test_one_repeat_has_no_repeat_metrics():
    def fail(tasks: Any) -> Any:
        raise AssertionError("asked for repeats of a run that has none")

    assert aggregate([row(0, 0, 1.0)], Hooks(repeat=fail)).repeat_level_metrics == []


def test_hooks_are_not_asked_when_all_is_masked():
    hooks = Hooks()
    aggregate([row(0, 0, 1.0, mask_sample=True)], hooks)
    assert hooks.seen == []
