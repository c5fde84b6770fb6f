"""The reward profile in files, and shards merged into one (CONTRACT 11)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gymctl.errors import ConfigError
from gymctl.paths import RunPaths
from gymctl.rollouts.merge import merge
from gymctl.rollouts.profile import Profile, write_profile
from gymctl.rollouts.saved import SavedRun

Row = dict[str, Any]


def at(task: int, rollout: int, agent: str = "desk", **more: Any) -> Row:
    return {"_ng_task_index": task, "_ng_rollout_index": rollout, "agent_ref": {"name": agent}, **more}


def profile(folder: Path, inputs: list[Row], rollouts: list[Row], *, is_partial: bool = False) -> Profile:
    for name, rows in (("in", inputs), ("x", rollouts)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return write_profile(folder / "x.jsonl", folder / "in.jsonl", is_partial=is_partial)


def groups(folder: Path) -> list[Row]:
    return [json.loads(line) for line in (folder / "x_reward_profiling.jsonl").read_text().splitlines()]


FOUR = [at(task, rollout, prompt=f"p{task}") for task in (0, 1) for rollout in (0, 1)]
REWARDS = [{**row, "reward": reward} for row, reward in zip(FOUR, (1, 0, 1, 1), strict=True)]


def test_a_whole_run_has_a_group_for_each_task_with_its_row(tmp_path: Path) -> None:
    made = profile(tmp_path, FOUR, REWARDS[::-1])
    assert [path.name for path in made.files] == [
        "x_reward_profiling.jsonl",
        "x_agent_metrics.json",
        "x_repeat_level_metrics.json",
    ]
    first, second = groups(tmp_path)
    assert (first["mean/reward"], first["std/reward"]) == (0.5, 0.7071067811865476)
    assert first["sample"] == {"agent_ref": {"name": "desk"}, "prompt": "p0"}
    assert "agent_ref" not in first
    assert (second["num_rollouts"], second["reward_profile_completion_pct"]) == (2, 100.0)
    (agent,) = json.loads((tmp_path / "x_agent_metrics.json").read_text())
    assert (agent["agent_ref"], agent["mean/reward"]) == ({"name": "desk"}, 0.75)
    assert "num_repeats" not in agent
    repeats = json.loads((tmp_path / "x_repeat_level_metrics.json").read_text())
    assert [repeat["mean/reward"] for repeat in repeats] == [1.0, 0.5]
    assert made.summary["reward_profile_completion_pct"] == 100.0


def test_a_partial_run_is_refused_unless_it_is_asked_for(tmp_path: Path) -> None:
    inputs = [*FOUR, at(2, 0)]
    with pytest.raises(ConfigError, match="2 of 5 rows have no rollout") as caught:
        profile(tmp_path, inputs, REWARDS[:3])
    assert "1-1, 2-0" in str(caught.value)
    made = profile(tmp_path, inputs, REWARDS[:3], is_partial=True)
    assert made.summary == {
        "expected_rollout_rows": 5,
        "completed_rollout_rows": 3,
        "missing_rollout_rows": 2,
        "extra_rollout_rows": 0,
        "reward_profile_completion_pct": 60.0,
        "total_input_rows": 3,
        "complete_input_rows": 1,
        "partial_input_rows": 1,
        "missing_input_rows": 1,
    }
    assert groups(tmp_path)[1]["missing_num_rollouts"] == 1


@pytest.mark.parametrize(
    ("rollouts", "what"),
    [
        ([*REWARDS, REWARDS[0]], "1 line repeats a rollout"),
        ([*REWARDS, at(7, 0, reward=1)], "1 rollout has no row"),
    ],
)
def test_what_does_not_join_is_refused(tmp_path: Path, rollouts: list[Row], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        profile(tmp_path, FOUR, rollouts, is_partial=True)


def test_fan_out_has_a_group_for_each_agent_and_masked_agents_keep_their_coverage(tmp_path: Path) -> None:
    inputs = [at(0, 0, "a"), at(0, 1, "b")]
    profile(tmp_path, inputs, [{**inputs[0], "reward": 1}, {**inputs[1], "reward": 0, "mask_sample": True}])
    (group,) = groups(tmp_path)
    assert group["agent_ref"] == {"name": "a"}
    first, second = json.loads((tmp_path / "x_agent_metrics.json").read_text())
    assert first["mean/reward"] == 1.0
    assert second == {
        "agent_ref": {"name": "b"},
        "coverage/measured_rollouts": 0,
        "coverage/masked_rollouts": 1,
        "coverage/measured_tasks": 0,
        "coverage/fully_masked_tasks": 1,
    }


def test_an_agent_without_rollouts_has_no_numbers(tmp_path: Path) -> None:
    profile(tmp_path, [at(0, 0, "a"), at(0, 1, "b")], [at(0, 0, "a", reward=1)], is_partial=True)
    (only,) = json.loads((tmp_path / "x_agent_metrics.json").read_text())
    assert only["agent_ref"] == {"name": "a"}


def test_shards_are_merged_in_order_and_byte_for_byte(tmp_path: Path) -> None:
    shards = []
    lines = [json.dumps(row, indent=None) + " " for row in REWARDS]
    for number in (0, 1):
        path = tmp_path / f"s{number}.jsonl"
        path.write_text("\n".join(lines[1 - number :: 2]))
        shards.append(SavedRun(RunPaths(path)))
    assert merge(shards, tmp_path / "merged.jsonl") == 4
    assert (tmp_path / "merged.jsonl").read_text() == "".join(line.strip() + "\n" for line in lines)
