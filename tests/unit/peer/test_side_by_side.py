"""Two programs' files, field by field (tests/peer)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from peer import known, model
from peer.differences import ABSENT, differences

AGENT = {"name": "desk"}


def write(folder: Path, name: str, *rows: dict[str, Any]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def row(task: int, **more: Any) -> dict[str, Any]:
    return {"_ng_task_index": task, "_ng_rollout_index": 0, "agent_ref": AGENT, **more}


def found(
    folder: Path, left: list[dict[str, Any]], right: list[dict[str, Any]]
) -> list[tuple[str, Any, Any]]:
    write(folder / "l", "x.jsonl", *left)
    write(folder / "r", "x.jsonl", *right)
    return [(one.place, one.left, one.right) for one in differences(folder / "l", folder / "r", "x.jsonl")]


def test_rows_are_joined_by_rollout_and_numbers_may_be_a_rounding_apart(tmp_path: Path) -> None:
    left = [row(0, reward=0.3, output=[{"id": "a"}]), row(1, reward=1.0)]
    right = [row(1, reward=1.0), row(0, reward=0.1 + 0.2, output=[{"id": "a"}])]
    assert found(tmp_path, left, right) == []


@pytest.mark.parametrize(
    ("left", "right", "place"),
    [
        ({"reward": 1.0}, {"reward": 0.5}, "x.jsonl: reward"),
        ({"reward": 1.0}, {"reward": 1}, "x.jsonl: reward"),
        ({"done": True}, {"done": 1}, "x.jsonl: done"),
        (
            {"output": [{"id": "a"}, {"id": "b"}]},
            {"output": [{"id": "a"}, {"id": "c"}]},
            "x.jsonl: output[].id",
        ),
    ],
)
def test_a_value_that_is_another_one_is_told_with_its_place(
    tmp_path: Path, left: dict[str, Any], right: dict[str, Any], place: str
) -> None:
    assert [one[0] for one in found(tmp_path, [row(0, **left)], [row(0, **right)])] == [place]


def test_what_only_one_side_has_is_told(tmp_path: Path) -> None:
    assert found(tmp_path, [row(0, seen=None)], [row(0)]) == [("x.jsonl: seen", None, ABSENT)]
    assert found(tmp_path, [row(0), row(0)], [row(0)]) == [("x.jsonl", row(0), ABSENT)]
    (tmp_path / "r" / "x.jsonl").unlink()
    assert [one.place for one in differences(tmp_path / "l", tmp_path / "r", "x.jsonl")] == ["x.jsonl"]


def test_a_known_difference_is_not_known_the_other_way_round(tmp_path: Path) -> None:
    write(tmp_path / "l", "r.jsonl", row(0))
    write(tmp_path / "r", "r.jsonl", row(0, gymctl_outcome={}))
    for folder in ("l", "r"):
        (tmp_path / folder / "good").mkdir()
        (tmp_path / folder / "r.jsonl").rename(tmp_path / folder / "good" / "r.jsonl")
    one = tmp_path / "l", tmp_path / "r", "good/r.jsonl"
    assert [known.reason(each) for each in differences(*one)] == ["fields of ours"]
    assert [known.reason(each) for each in differences(one[1], one[0], one[2])] == [None]


def test_the_model_answers_by_the_request_alone_and_repeats_differ() -> None:
    task = {"responses_create_params": {"input": [{"role": "user", "content": "Which?"}]}}
    tasks = [{**task, "options": [{"A": "x"}, {"B": "y"}], "expected_answer": "B"}]

    def asked(seed: int) -> dict[str, Any]:
        extra = json.dumps({"seed": seed})
        body = {**task["responses_create_params"], "model": "m", "metadata": {"extra_body": extra}}
        return model.answer(body, tasks)

    assert asked(0) == asked(0)
    assert len({json.dumps(asked(seed)["output"]) for seed in range(8)}) > 1
