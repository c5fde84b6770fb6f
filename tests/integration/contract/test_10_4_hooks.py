"""CONTRACT 10.4: what an author adds to the aggregate."""

from __future__ import annotations

from typing import Any

from fakes.resources import post, served

from gymctl.metrics.pass_at_k import passes
from gymctl.servers import (
    ResourcesServer,
)


class Measured(ResourcesServer):
    def compute_metrics(self, tasks: Any) -> dict[str, Any]:
        return {**passes(tasks), "per_task_metrics": [{"_ng_task_index": 0, "is_hard": True}]}

    def get_key_metrics(self, agent_metrics: Any) -> dict[str, Any]:
        return {"pass@2/accuracy": agent_metrics["pass@2/accuracy"]}

    def compute_repeat_metrics(self, tasks: Any) -> dict[str, Any]:
        return {"pass@1/accuracy": passes(tasks)["pass@1/accuracy"]}


async def test_10_4_hooks_shape_the_aggregate(http):
    rewards = {(0, 0): 1.0, (0, 1): 0.0, (1, 0): 0.0, (1, 1): 0.0}
    rows = [
        {"_ng_task_index": task, "_ng_rollout_index": rollout, "reward": reward}
        for (task, rollout), reward in rewards.items()
    ]
    rows.append({"_ng_task_index": 1, "_ng_rollout_index": 2, "reward": 1.0, "mask_sample": True})
    async with served(Measured) as (url, _):
        _, answer, _ = await post(http, f"{url}/aggregate_metrics", {"verify_responses": rows})
    assert answer["agent_metrics"]["pass@1/accuracy"] == 25.0
    assert answer["agent_metrics"]["mean_across_repeats/pass@1/accuracy"] == 25.0
    assert [entry["pass@1/accuracy"] for entry in answer["repeat_level_metrics"]] == [50.0, 0.0]
    assert answer["group_level_metrics"][0]["is_hard"] is True
    assert "is_hard" not in answer["group_level_metrics"][1]
    assert answer["key_metrics"] == {
        "pass@2/accuracy": 50.0,
        "coverage/measured_rollouts": 4,
        "coverage/masked_rollouts": 1,
        "coverage/measured_tasks": 2,
        "coverage/fully_masked_tasks": 0,
    }
