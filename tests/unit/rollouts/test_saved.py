"""A run read back: each rollout once; a success beats failures, and of failures the last one counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymctl.contract.rollout import OUTCOME
from gymctl.errors import ConfigError, UsageError
from gymctl.paths import RunPaths
from gymctl.rollouts.saved import Keys, SavedRun, content_hash


def key(task: int, rollout: int = 0, **more: Any) -> dict[str, Any]:
    return {"_ng_task_index": task, "_ng_rollout_index": rollout, **more}


def failed(task: int, message: str = "", **more: Any) -> dict[str, Any]:
    return key(task, _ng_failure_class="agent_run_error", _ng_failure_message=message, **more)


def write(path: Path, rows: list[dict[str, Any]], tail: str = "") -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + tail)


@pytest.fixture
def run(tmp_path: Path) -> SavedRun:
    paths = RunPaths(tmp_path / "x.jsonl")
    write(paths.inputs, [key(task) for task in range(5)])
    write(paths.rollouts, [key(2, reward=1.0), key(0, reward=0.5)], tail='{"_ng_task_ind')
    write(paths.failures, [failed(2, "first"), failed(1, "one"), failed(3), failed(1, "two")])
    return SavedRun.open(paths.rollouts)


def test_each_rollout_is_read_once(run: SavedRun) -> None:
    found = list(run.rollouts())
    assert [(one.key, one.outcome.reward, one.is_failure_line) for one in found] == [
        ((2, 0), 1.0, False),
        ((0, 0), 0.5, False),
        ((3, 0), None, True),
        ((1, 0), None, True),
    ]
    assert found[3].record["_ng_failure_message"] == "two"
    assert list(run.not_run()) == [(4, 0)]
    assert len(list(run.failures())) == 4
    assert run.duplicates == 0


def test_the_first_of_two_lines_counts_and_the_other_is_told(run: SavedRun) -> None:
    write(run.paths.rollouts, [key(0, reward=1.0), key(0, reward=0.0)])
    assert [one.outcome.reward for one in run.rollouts() if not one.is_failure_line] == [1.0]
    assert run.duplicates == 1


def test_the_class_that_the_collector_saw_is_kept(run: SavedRun) -> None:
    stamp = {"failure": "model", "reason": "429", "started_at": 1.0, "seconds": 2.0}
    write(run.paths.failures, [failed(1, **{OUTCOME: stamp}), failed(3, **{OUTCOME: {"failure": "moon"}})])
    classes = {one.key[0]: (one.outcome.failure, one.outcome.reason) for one in run.rollouts()}
    assert classes[1] == ("model", "429")
    assert classes[3][0] == "environment"


def test_a_stamp_does_not_take_a_reward_away(run: SavedRun) -> None:
    write(run.paths.rollouts, [key(0, reward=1.0, **{OUTCOME: {"failure": "bug"}})])
    assert next(run.rollouts()).outcome.reward == 1.0


def test_a_run_without_a_success_is_a_run(run: SavedRun) -> None:
    run.paths.rollouts.unlink()
    again = SavedRun.open(run.paths.rollouts)
    assert [one.key[0] for one in again.rollouts()] == [2, 3, 1]


def test_no_run_and_broken_lines_are_named(tmp_path: Path, run: SavedRun) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        SavedRun.open(tmp_path / "nope.jsonl")
    with pytest.raises(UsageError, match="is a folder"):
        SavedRun.open(tmp_path)
    run.paths.rollouts.write_text('{"reward": 1}\n[1]\n')
    with pytest.raises(ConfigError) as caught:
        list(run.rollouts())
    assert str(caught.value.where).endswith("x.jsonl:2")


def test_what_a_task_asks_is_its_content() -> None:
    row = {"responses_create_params": {"input": "2+2", "temperature": 0.1}, "answer": 4, **key(3, 1)}
    same = {
        "answer": 4,
        "responses_create_params": {"temperature": 1, "input": "2+2"},
        "agent_ref": {"name": "b"},
    }
    other = {"responses_create_params": {"input": "2+3"}, "answer": 4}
    assert content_hash(row) == content_hash(same) != content_hash(other)


@given(st.dictionaries(st.text(), st.recursive(st.integers() | st.text(), st.lists)), st.randoms())
def test_key_order_is_no_content(row: dict[str, Any], random: Any) -> None:
    items = list(row.items())
    random.shuffle(items)
    assert content_hash(row) == content_hash(dict(items))


_KEYS = st.tuples(
    st.one_of(st.integers(-3, 30), st.integers(200, 400), st.just(2**62)), st.one_of(st.integers(-1, 3))
)


@given(st.lists(_KEYS, max_size=40), st.lists(_KEYS, max_size=20))
def test_keys_are_a_set(added: list[tuple[int, int]], asked: list[tuple[int, int]]) -> None:
    keys = Keys()
    for one in added:
        keys.add(one)
    assert all(one in keys for one in added)
    assert [one in keys for one in asked] == [one in set(added) for one in asked]


def test_a_million_keys_take_a_few_bytes_each_in_any_order() -> None:
    dense, sparse = Keys(), Keys()
    for number in range(20_000):
        dense.add((19_999 - number, 0))
        sparse.add((number, number))
    assert sum(len(row) for row in dense._rows.values()) < 40_000
    assert sum(len(row) for row in sparse._rows.values()) < 20_000 * 16


def test_an_index_that_is_no_number_is_an_error_with_its_line(run: SavedRun) -> None:
    write(run.paths.rollouts, [key(0, reward=1.0), {**key(0), "_ng_task_index": "a"}])
    with pytest.raises(ConfigError, match="`_ng_task_index` must be an integer, got 'a'") as caught:
        list(run.rollouts())
    assert caught.value.where == f"{run.paths.rollouts}:2"
