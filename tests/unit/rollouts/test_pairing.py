"""Tasks are paired by what they ask; what cannot be paired is named, what is missing counts in the bounds."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from fakes import runs

from gymctl.errors import UsageError
from gymctl.rollouts.pairing import Asked, Matching, RunTasks, match, read
from gymctl.rollouts.saved import SavedRun


def _read(*paths: Path, asked: Asked | None = None) -> list[RunTasks]:
    return read([SavedRun.open(path) for path in paths], asked or Asked())


def _match(*paths: Path) -> Matching:
    return match(*_read(*paths))


def test_the_same_tasks_in_another_order_are_the_same_pairs(tmp_path) -> None:
    """Row numbers differ, and so do the lines' places in the file."""
    rewards = {0: [1, 0], 1: [0, 0], 2: [1, 1], 3: [0, 1]}
    a = runs.write(tmp_path, "a", rewards)
    moved = {3 - task: attempts for task, attempts in rewards.items()}
    b = runs.write(tmp_path, "b", moved, questions={3 - task: f"question {task}" for task in rewards})
    records = b.read_text().splitlines(keepends=True)
    random.Random(1).shuffle(records)
    b.write_text("".join(records))
    found = _match(a, b)
    assert len(found.pairs) == 4
    assert {pair.difference for pair in found.pairs} == {0}
    assert found.left_out == 0


def test_what_cannot_be_paired_is_named(tmp_path) -> None:
    a = runs.write(tmp_path, "a", {0: [1], 1: [1], 2: [1], 4: [None], 5: [1]})
    b = runs.write(tmp_path, "b", {0: [1], 1: [1], 3: [1], 4: [1], 5: [1]}, questions={1: "another question"})
    found = _match(a, b)
    assert (found.only_a, found.only_b, found.changed, found.unscored) == ([2], [3], [1], [4])
    assert [pair.difference for pair in found.pairs] == [0, 0]


def test_sampling_parameters_and_agents_do_not_make_another_task(tmp_path) -> None:
    a = runs.write(tmp_path, "a", {0: [1]})
    b = runs.write(tmp_path, "b", {0: [0]}, fields={0: {"agent_ref": {"name": "other"}}})
    assert len(_match(a, b).pairs) == 1


def test_coverage_and_bounds_by_hand(tmp_path) -> None:
    """A: (1 + 1/2) / 2. B: task 0 has 1 of 2 scored, task 1 none; so B is 0 to 1 in task 1."""
    a = runs.write(tmp_path, "a", {0: [1, 1], 1: [1, 0]})
    b = runs.write(tmp_path, "b", {0: [0, None], 1: [None, None]})
    found = _match(a, b)
    assert (found.coverage_a, found.coverage_b) == (1.0, 0.25)
    assert found.bounds == ((0 - 0.75), ((0.5 + 1) / 2 - 0.75))
    assert found.unscored == [1]


def test_no_bounds_for_rewards_that_leave_the_unit_interval(tmp_path) -> None:
    a = runs.write(tmp_path, "a", {0: [3.5], 1: [0]})
    assert _match(a, runs.write(tmp_path, "b", {0: [1], 1: [0]})).bounds is None


def test_files_of_other_tools_without_inputs_are_paired_by_their_prompts(tmp_path) -> None:
    """One of the runs has no inputs file: the prompts in the records must do, in both."""
    a = runs.write(tmp_path, "a", {0: [1, 0], 1: [0, 1]}, fields={0: {"answer": 1}, 1: {"answer": 2}})
    b = runs.write(
        tmp_path,
        "b",
        {5: [1, 1], 6: [0, None]},
        questions={5: "question 0", 6: "question 1"},
        has_inputs=False,
    )
    found = _match(a, b)
    assert [float(pair.difference) for pair in sorted(found.pairs, key=lambda pair: pair.difference)] == [
        -0.5,
        0.5,
    ]
    assert found.coverage_b == 0.75


def test_records_without_a_prompt_and_without_inputs_cannot_be_compared(tmp_path) -> None:
    a = runs.write(tmp_path, "a", {0: [1]})
    b = tmp_path / "b.jsonl"
    runs.lines(b, [{"_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 1.0}])
    with pytest.raises(UsageError, match="tasks cannot be told apart"):
        _read(a, b)


def test_a_metric_is_any_number_on_the_record(tmp_path) -> None:
    a, b = runs.write(tmp_path, "a", {0: [1], 1: [0]}), runs.write(tmp_path, "b", {0: [1], 1: [0]})
    first, _ = _read(a, b, asked=Asked("response.usage.output_tokens"))
    assert sorted(float(task.mean) for task in first.tasks.values()) == [10, 11]
    with pytest.raises(UsageError, match="no record has a number `tokens`") as caught:
        _read(a, b, asked=Asked("tokens"))
    assert caught.value.hint == "numbers there: reward"


def test_clusters_and_groups_come_from_the_rows(tmp_path) -> None:
    fields = {
        task: {"source": {"document": task // 2}, "level": "hard" if task else "easy"} for task in range(4)
    }
    rewards = {task: [1.0, 0.0] for task in range(4)}
    paths = [runs.write(tmp_path, name, rewards, fields=fields) for name in "ab"]
    found = match(*_read(*paths, asked=Asked(cluster="source.document", group="level")))
    assert sorted(str(pair.cluster) for pair in found.pairs) == ["0", "0", "1", "1"]
    assert {name: len(pairs) for name, pairs in found.groups.items()} == {"easy": 1, "hard": 3}
    with pytest.raises(UsageError, match="no row has `document`") as caught:
        _read(*paths, asked=Asked(cluster="document"))
    assert "source" in (caught.value.hint or "")


def test_attempts_tell_how_much_they_differ_among_themselves(tmp_path) -> None:
    a = runs.write(tmp_path, "a", {0: [1, 0, 1, 0]})
    (pair,) = _match(a, runs.write(tmp_path, "b", {0: [1, 1, 1, 1]})).pairs
    assert pair.spread == pytest.approx(1 / 3)
    assert pair.noise == pytest.approx(1 / 12)
