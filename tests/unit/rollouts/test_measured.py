"""A saved run counted again: shards, groups, clusters, votes, columns."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from gymctl.errors import UsageError
from gymctl.metrics.outcomes import outcome
from gymctl.metrics.tally import Tally
from gymctl.paths import RunPaths
from gymctl.rollouts.measured import Measured, Wanted, measure
from gymctl.rollouts.saved import SavedRun

Row = dict[str, Any]


def at(task: int, rollout: int = 0, **more: Any) -> Row:
    return {"_ng_task_index": task, "_ng_rollout_index": rollout, "_ng_environment_server": "env", **more}


def failed(task: int, rollout: int = 0, **more: Any) -> Row:
    return at(task, rollout, _ng_failure_class="agent_run_error", **more)


def write(folder: Path, name: str, inputs: list[Row], rollouts: list[Row], failures: list[Row]) -> SavedRun:
    paths = RunPaths(folder / f"{name}.jsonl")
    for path, rows in ((paths.inputs, inputs), (paths.rollouts, rollouts), (paths.failures, failures)):
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return SavedRun(paths)


def one(folder: Path, rows: list[Row], wanted: Wanted | None = None) -> Measured:
    """A run whose rows are both its plan and its rollouts."""
    return measure([write(folder, "x", rows, rows, [])], wanted or Wanted())


def test_a_run_is_counted_as_it_was_when_it_ended(tmp_path: Path) -> None:
    """BUG_CASES B100: two failures, a retried one, rows not run; also after shuffling the lines."""
    inputs = [at(task, rollout) for task in range(20) for rollout in range(3)]
    ends = [{**row, "reward": (7 * n % 11) / 10} for n, row in enumerate(inputs[:-4])]
    used = {"response": {"usage": {"input_tokens": 5, "output_tokens": 1, "total_tokens": 6}}}
    failures = [failed(0), failed(19, 2), failed(19, 1, **used), failed(19, 1)]
    live = Tally(repeats=3)
    for row in inputs:
        live.plan(row["_ng_task_index"])
    for record in [*ends, failures[1], failures[3]]:
        live.add(record, outcome(record), record)
    for record in (failures[0], failures[2]):
        live.retry(record)
    shuffled = random.Random(5).sample(ends, len(ends))
    for name, records in (("x", ends), ("y", shuffled)):
        again = measure([write(tmp_path, name, inputs, records, failures)], Wanted()).tally
        assert again.headline() == live.headline()
        assert (again.repeats, again.scored, again.failed, again.not_run) == (
            3,
            live.scored,
            live.failed,
            live.not_run,
        )
        assert (again.retried, again.retried_tokens, again.usage) == (2, 6, live.usage)


def test_rollouts_that_were_not_planned_are_left_out_and_told(tmp_path: Path) -> None:
    saved = write(tmp_path, "x", [at(0)], [at(0, reward=1.0), at(7, reward=0.0)], [])
    found = measure([saved], Wanted())
    assert (found.tally.headline().mean, found.tally.headline().coverage) == (1.0, 1.0)
    assert "1 rollout is not in" in found.notices[0]


def test_shards_together_are_the_run(tmp_path: Path) -> None:
    rows = [at(task, reward=task / 10) for task in range(10)]
    whole = measure([write(tmp_path, "whole", rows, rows, [])], Wanted()).tally.headline()
    parts = [write(tmp_path, f"part{n}", rows[n::3], rows[n::3], []) for n in range(3)]
    assert measure(parts, Wanted()).tally.headline() == whole


def test_shards_that_overlap_are_an_error_with_examples(tmp_path: Path) -> None:
    """BUG_CASES B113: a file that was merged from the others would count twice."""
    rows = [at(task, reward=1.0) for task in range(9)]
    parts = [write(tmp_path, "a", rows, rows, []), write(tmp_path, "b", rows, rows[5:], [])]
    with pytest.raises(UsageError) as caught:
        measure(parts, Wanted())
    assert "4 rollouts of this file stand in another one" in str(caught.value)
    assert "5-0 of env" in str(caught.value)
    assert str(parts[1].paths.rollouts) in str(caught.value)


def test_equal_indices_of_different_servers_are_different_tasks(tmp_path: Path) -> None:
    """BUG_CASES B101: two datasets, both with task 0."""
    one_, other = [at(0, reward=1.0)], [{**at(0, reward=0.0), "_ng_environment_server": "other"}]
    parts = [write(tmp_path, "a", one_, one_, []), write(tmp_path, "b", other, other, [])]
    head = measure(parts, Wanted()).tally.headline()
    assert (head.tasks_planned, head.scored, head.mean) == (2, 2, 0.5)


def test_without_its_inputs_a_run_counts_what_is_there_and_says_so(tmp_path: Path) -> None:
    saved = write(tmp_path, "x", [], [at(0, reward=1.0)], [failed(1)])
    saved.paths.inputs.unlink()
    found = measure([saved], Wanted())
    assert (found.tally.planned, found.tally.scored) == (2, 1)
    assert "is not there" in found.notices[0]


def test_lines_that_repeat_a_rollout_count_once_and_are_told(tmp_path: Path) -> None:
    saved = write(tmp_path, "x", [at(0)], [at(0, reward=1.0), at(0, reward=0.0)], [])
    found = measure([saved], Wanted())
    assert (found.tally.headline().mean, found.tally.scored) == (1.0, 1)
    assert "1 line of" in found.notices[0]


def test_groups_by_a_dotted_field_and_by_agent(tmp_path: Path) -> None:
    """BUG_CASES B118: a group may be called like anything, and nothing is overwritten."""
    rows = [
        at(
            n,
            reward=n % 2,
            verifier_metadata={"level": "all" if n < 4 else None},
            agent_ref={"name": f"a{n % 2}"},
        )
        for n in range(6)
    ]
    found = one(tmp_path, rows, Wanted(by="verifier_metadata.level"))
    assert {name: tally.planned for name, tally in found.groups.items()} == {"all": 4, "–": 2}
    assert found.tally.planned == 6
    by_agent = one(tmp_path, rows, Wanted(by="agent")).groups
    assert {name: tally.headline().mean for name, tally in by_agent.items()} == {"a0": 0.0, "a1": 1.0}


@pytest.mark.parametrize(
    "wanted",
    [Wanted(by="levl"), Wanted(cluster="repo"), Wanted(answer="answer")],
    ids=["by", "cluster", "answer"],
)
def test_a_field_that_nothing_has_is_an_error(tmp_path: Path, wanted: Wanted) -> None:
    with pytest.raises(UsageError, match="has a field"):
        one(tmp_path, [at(0, reward=1.0)], wanted)


def test_a_declared_cluster_widens_the_interval(tmp_path: Path) -> None:
    rows = [at(n, reward=float(n // 5 % 2), repo=f"r{n // 5}") for n in range(40)]
    alone, clustered = one(tmp_path, rows).tally.headline(), one(tmp_path, rows, Wanted(cluster="repo"))
    head = clustered.tally.headline()
    assert head.clusters == 8
    assert alone.interval is not None
    assert head.interval is not None
    assert head.interval.high - head.interval.low > 1.5 * (alone.interval.high - alone.interval.low)


@pytest.mark.parametrize("seed", range(3))
def test_ties_and_missing_answers_do_not_depend_on_the_order(tmp_path: Path, seed: int) -> None:
    """BUG_CASES B120: [A, B, B, A] is a tie, None never wins, answers are compared as they stand."""
    answers = [
        [("A", 1), ("B", 0), ("B", 0), ("A", 1)],
        [(None, 1), (None, 1), ("C", 0), (None, 1)],
        [(" c", 0), ("C", 1), (None, 0), (None, 0)],
    ]
    rows = [
        at(task, rollout, reward=reward, answer=answer)
        for task, given in enumerate(answers)
        for rollout, (answer, reward) in enumerate(given)
    ]
    random.Random(seed).shuffle(rows)
    votes = one(tmp_path, rows, Wanted(answer="answer")).votes
    assert votes is not None
    found = votes.at(4)
    assert found is not None
    assert (found.value, found.tasks) == ((0.5 + 0 + 0.5) / 3, 3)
    assert votes.at(5) is None


def test_columns_see_parts_of_a_reward_and_say_how_many_have_them(tmp_path: Path) -> None:
    """BUG_CASES B116: nested parts are counted; a reward that is no number is a failure with its rollout."""
    rewards: list[Row] = [
        {"reward": 1, "reward_components": {"format": 1, "answer": 0}},
        {"reward": 0, "reward_components": {"format": 0}},
        {"reward": "1.0"},
        {"reward": None},
        {"reward": True},
        {},
    ]
    found = one(tmp_path, [at(n, **more) for n, more in enumerate(rewards)], Wanted(columns=True))
    assert found.columns is not None
    columns = {column.name: (column.count, column.mean) for column in found.columns.found()}
    assert columns == {
        "reward": (3, 2 / 3),
        "reward_components/format": (2, 0.5),
        "reward_components/answer": (1, 0.0),
    }
    assert found.tally.examples == {
        "verifier: reward is not a number": ["2-0", "3-0"],
        "verifier: no reward": ["5-0"],
    }


def test_medians_are_of_sorted_values(tmp_path: Path) -> None:
    """BUG_CASES B117, B114: in the middle, whatever the order; text and NaN are no numbers."""
    rows = [
        at(n, reward=1.0, odd=odd, even=even)
        for n, (odd, even) in enumerate([(3, 4), (1, 1), (2, 3), ("nan", 2)])
    ]
    found = one(tmp_path, rows, Wanted(columns=True)).columns
    assert found is not None
    assert {column.name: column.median for column in found.found()} == {
        "reward": 1.0,
        "odd": 2.0,
        "even": 2.5,
    }
