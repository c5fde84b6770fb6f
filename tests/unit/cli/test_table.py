"""The result table, character by character: what is shown, and what must never be shown alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gymctl.cli.progress import block, line
from gymctl.cli.table import RunFacts, duration, result_json, result_lines, span, under_floor
from gymctl.metrics.outcomes import Outcome
from gymctl.metrics.tally import Tally

RECORD = {"response": {"usage": {"input_tokens": 11_640, "output_tokens": 1_400}}}


def facts(**more: Any) -> RunFacts:
    return RunFacts(**{"title": "weather", "model": "luna-4", "seconds": 852.0, "min_coverage": 0.95, **more})


def tally(script: list[list[float | str | None]]) -> Tally:
    """One inner list per task: a reward, a failure class, or None for a rollout that was not run."""
    made = Tally(repeats=max(len(rewards) for rewards in script) if script else 1)
    for task, rewards in enumerate(script):
        made.plan(task, len(rewards))
        for result in rewards:
            if isinstance(result, str):
                made.add({"_ng_task_index": task}, Outcome(None, result, "why"), {})  # type: ignore[arg-type]
            elif result is not None:
                made.add({"_ng_task_index": task}, Outcome(result), RECORD)
    return made


def text(made: Tally, **more: Any) -> str:
    return "\n".join(result_lines(made, facts(**more)))


def test_a_good_run() -> None:
    script: list[list[float | str | None]] = [[1, 1], [1, 0], [0, 0], [1, 0]] * 10 + [[1, "model"], [0, None]]
    made = tally(script)
    assert text(made, why_not_run="interrupted") == (
        "weather · luna-4 · 42 tasks × 2\n"
        "\n"
        " reward      0.500   95 % 0.386 – 0.614     42 tasks, clustered by task\n"
        " coverage    82 of 84 (97.6%)     if the 2 missing were all wrong 0.488, all right 0.512\n"
        " pass@1      0.500   pass@2  0.750     over the 40 tasks with all 2 attempts\n"
        " pass^2      0.250   solved every time\n"
        " outcomes    scored 82 · failed 1 (model 1) · not run 1 (interrupted)\n"
        " tokens      954.5 k in · 114.8 k out\n"
        " time        14 m 12 s    0.1 rollouts/s"
    )


def test_under_the_floor_a_range_replaces_the_number() -> None:
    made = tally([[1], [1], ["infrastructure"], ["infrastructure"]])
    shown = text(made)
    assert shown == (
        "weather · luna-4 · 4 tasks × 1\n"
        "\n"
        " reward      0.500 – 1.000     coverage is under 95%: no single number\n"
        " coverage    2 of 4 (50.0%)     if the 2 missing were all wrong 0.500, all right 1.000\n"
        " outcomes    scored 2 · failed 2 (infrastructure 2)\n"
        " tokens      23.3 k in · 2,800 out\n"
        " time        14 m 12 s    0.0 rollouts/s"
    )
    as_json = result_json(made, facts())
    assert (as_json["reward"], as_json["interval_95"], as_json["pass_at"]) == (None, None, [])
    assert as_json["bounds"] == [0.5, 1.0]


def test_nothing_scored_is_never_a_number() -> None:
    made = tally([["model"], ["model"]])
    assert " reward      0.000 – 1.000     coverage is under 95%: no single number" in text(made)
    assert "no rollout has a score" in text(made, min_coverage=0.0)


def test_a_perfect_small_run_keeps_a_width() -> None:
    assert " reward      1.000   95 % 0.478 – 1.000     5 tasks, exact binomial over tasks" in text(
        tally([[1]] * 5)
    )


def test_rewards_outside_of_the_unit_have_no_bounds() -> None:
    shown = text(tally([[3.0], [3.0], ["model"]]), min_coverage=0.5)
    assert " reward      3.000   no interval: all tasks scored the same     2 tasks" in shown
    assert "bounds unknown: rewards leave 0 – 1" in shown


def test_pooled_and_task_means_that_differ_are_explained() -> None:
    assert "mean over rollouts 0.800" in text(tally([[1, 1, 1, 1], [0]]))
    assert "mean over rollouts" not in text(tally([[1, 1], [0, 0]]))


def test_missing_rollouts_that_the_metrics_file_counts_as_zero_are_explained() -> None:
    shown = text(tally([[1]] * 99 + [[None]]), missing_as_zero=1)
    assert "mean in the metrics file 0.990: 1 missing rollout counts as 0 there" in shown


def test_a_label_never_promises_attempts_that_do_not_exist() -> None:
    """BUG_CASES B122: eight attempts asked for, five scored."""
    shown = text(tally([[1, 0, 0, 1, 0, None, None, None]]), min_coverage=0.5)
    assert (
        " pass@1      0.400   pass@5  1.000     over the one task; pass@8: no task has 8 scored attempts"
        in shown
    )


def test_an_interval_never_looks_as_if_it_had_no_width() -> None:
    assert span(0.25, 0.75) == "0.250 – 0.750"
    assert span(0.50001, 0.50002) == "0.50001 – 0.50002"


def test_lost_rollouts_are_told_with_bounds_and_tasks() -> None:
    """BUG_CASES B121: 10 tasks × 2, three rollouts lost, one task with nothing left."""
    script: list[list[float | str | None]] = [[1, 0]] * 8 + [["infrastructure"] * 2, [1, "infrastructure"]]
    shown = text(tally(script))
    assert " reward      0.450 – 0.600     coverage is under 95%: no single number" in shown
    assert " coverage    17 of 20 (85.0%), 9 of 10 tasks" in shown
    assert "if the 3 missing were all wrong 0.450, all right 0.600" in shown


def test_a_failure_that_counts_as_zero_is_said_to() -> None:
    made = tally([[1]])
    made.plan(1)
    made.add({"_ng_task_index": 1}, Outcome(None, "infrastructure", "oom", counts_as_zero=True), {})
    assert " outcomes    scored 2 (counted as 0: infrastructure 1)" in text(made)


def test_a_scripted_model_is_labelled() -> None:
    last = text(tally([[1]]), is_scripted=True).splitlines()[-1]
    assert last == " scripted model: these answers come from a script, the score says nothing about a model"


def test_an_empty_plan_has_a_table_too() -> None:
    shown = text(tally([]))
    assert "0 tasks" in shown
    assert "no rollout was planned" in shown


def test_json_is_complete_and_plain() -> None:
    value = result_json(tally([[1, 0], [1, "verifier"]]), facts(min_coverage=0.5))
    assert json.loads(json.dumps(value)) == value
    assert value["rollouts"] == {
        "planned": 4,
        "scored": 3,
        "limited": 0,
        "counted_as_zero": {"model": 0, "environment": 0, "verifier": 0, "infrastructure": 0, "bug": 0},
        "malformed_tool_calls": 0,
        "broken_tool_calls": 0,
        "over_a_cap": 0,
        "retried": 0,
        "failed": {"model": 0, "environment": 0, "verifier": 1, "infrastructure": 0, "bug": 0},
        "not_run": 0,
    }
    assert value["coverage_counts"] == {"expected": 4, "scored": 3, "missing": 1, "imputed": 0}
    assert value["pass_all"] == [{"k": 2, "value": 0.0, "tasks": 1}]
    assert value["pass_at"] == [{"k": 1, "value": 0.75, "tasks": 2}, {"k": 2, "value": 1.0, "tasks": 1}]


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.0, "0.0 s"), (59.94, "59.9 s"), (185, "3 m 05 s"), (7620, "2 h 07 m")]
)
def test_durations(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


def test_progress_shows_counts_reward_failures_and_the_slowest() -> None:
    made = tally([[1], [0], ["model"], [None], [None], [None]])
    made.running = {"3-0": 2.0, "4-0": 90.0}
    shown = block(made, now=100.0, elapsed=100.0)
    assert "3 of 6  50%   1 m 40 s left" in shown[0]
    assert shown[1] == " scored 2 · failed 1 · running 2 · waiting 1"
    assert shown[2].startswith(" reward    0.500 so far")
    assert shown[3] == " slowest   3-0 1 m 38 s · 4-0 10.0 s"
    assert shown[4] == " failed    model 1"
    logged = line(made, 100.0)
    assert logged == "  3 of 6 (50%) · reward 0.500 · failed model 1 · running 2 · 1 m 40 s"


def test_progress_of_an_empty_run() -> None:
    assert "0 of 0" in block(Tally(), now=0.0, elapsed=0.0)[0]
    assert "reward –" in line(Tally(), 0.0)


def test_a_coverage_that_is_too_low_names_the_command_that_tells_why() -> None:
    assert under_floor(tally([[1, "model"]]), Path("my runs/x.jsonl")) == (
        "gymctl why 'my runs/x.jsonl' tells the causes; --min-coverage lowers the floor"
    )
    assert under_floor(tally([[1, None]]), Path("x.jsonl")) == "--min-coverage lowers the floor"
