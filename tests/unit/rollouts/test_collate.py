"""Declared datasets become one file per type (CONTRACT 8.7)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gymctl.errors import ConfigError
from gymctl.rollouts.collate import Declared, Options, collate, materialized, prepared_paths
from gymctl.rollouts.prompts import Prompt


def row(text: str = "hi", **more: Any) -> dict[str, Any]:
    return {"responses_create_params": {"input": text}, **more}


def dataset(folder: Path, rows: list[dict[str, Any]], name: str = "d", **more: Any) -> Declared:
    folder.mkdir(exist_ok=True)
    path = folder / more.pop("file", f"{name}.jsonl")
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return Declared(more.pop("declared_by", "desk"), name, more.pop("type", "train"), path, **more)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line]


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_rows_are_repeated_in_place_and_say_who_declared_them(tmp_path: Path) -> None:
    one = dataset(tmp_path / "a", [row("1", agent_ref={"name": "old"}), row("2", n=1)], repeats=2)
    two = dataset(tmp_path / "b", [row("3")], name="e", declared_by="tools")
    made = collate([one, two], Options(tmp_path / "out"))
    rows = lines(made.files["train"])
    assert [(r["responses_create_params"]["input"], r["task_source"]) for r in rows] == [
        *[("1", "desk")] * 2,
        *[("2", "desk")] * 2,
        ("3", "tools"),
    ]
    assert all("agent_ref" not in one for one in rows)
    assert rows[2]["n"] == 1
    assert made.rows == {"train": 5}
    assert [note for note in made.notes if "agent_ref" in note] == [
        f"1 row of {one.path} names an agent (`agent_ref`), which is deprecated and was left out: "
        "they go to the agent of `desk`"
    ]
    assert lines(tmp_path / "a" / "d_prepare.jsonl") == rows[:4]
    assert files(tmp_path / "b") == ["e.jsonl", "e_metrics.json", "e_prepare.jsonl"]


def test_each_type_has_a_file_and_figures(tmp_path: Path) -> None:
    one = dataset(tmp_path / "a", [row("1", n=3, tag="x"), row("2", n=4, tag="x")], repeats=2)
    two = dataset(tmp_path / "a", [row("3")], name="v", type="validation")
    made = collate([one, two], Options(tmp_path / "out"))
    assert files(tmp_path / "out") == [
        "train.jsonl",
        "train_metrics.json",
        "validation.jsonl",
        "validation_metrics.json",
    ]
    assert set(made.files) == {"train", "validation"}
    figures = json.loads((tmp_path / "a" / "d_metrics.json").read_bytes())
    assert (figures["name"], figures["type"], figures["num_repeats"]) == ("d", "train", 2)
    assert figures["Number of examples"] == 2
    assert figures["n"] == {
        "Total # non-null values": 2,
        "Average": 3.5,
        "Min": 3.0,
        "Max": 4.0,
        "Median": 3.5,
        "Standard deviation": 0.707,
    }
    assert figures["tag"] == {"unique_count": 1, "total_count": 2}
    assert figures["Number of turns"]["Average"] == 1.0
    assert json.loads((tmp_path / "out" / "train_metrics.json").read_bytes())["Number of examples"] == 4


def test_a_prompt_of_a_benchmark_is_applied(tmp_path: Path) -> None:
    one = dataset(tmp_path / "a", [{"q": "2+2"}], type="benchmark", prompt=Prompt("p.yaml", "{q}?"))
    made = collate([one], Options(tmp_path / "out"))
    (made_row,) = lines(made.files["benchmark"])
    assert made_row["responses_create_params"]["input"] == [{"role": "user", "content": "2+2?"}]


def test_rows_of_a_taskset_are_materialized(tmp_path: Path) -> None:
    """Task ids count the rows of all datasets of the type, before repeats."""
    first = dataset(tmp_path / "a", [row("1"), row("2")], repeats=2)
    tasks = dataset(
        tmp_path / "b",
        [row("3", agent_ref={"name": "x"}, n=1), row("4", _ng_rollout_id="r"), row("5", problem_id=7)],
        taskset="t",
        repeats=2,
    )
    made = collate([first, tasks], Options(tmp_path / "out"))
    rows = lines(made.files["train"])[4::2]
    assert rows == [
        {"task_id": {"taskset": "t", "task_id": "2"}, "task_input": row("3", n=1)},
        {"task_id": {"taskset": "t", "task_id": "3"}, "task_input": row("4"), "_ng_rollout_id": "r"},
        {"task_id": {"taskset": "t", "task_id": "7"}, "task_input": row("5", problem_id=7)},
    ]


def test_the_callers_task_index_names_a_materialized_task() -> None:
    assert materialized(row(_ng_task_index=0), "t", 9)["task_id"]["task_id"] == "0"


def test_a_file_that_is_declared_twice_has_two_prepared_files(tmp_path: Path) -> None:
    path, other = tmp_path / "rows.jsonl", tmp_path / "other.jsonl"
    declared = [
        Declared("a", "x", "train", path),
        Declared("b", "x", "train", path),
        Declared("b", "y", "train", path),
        Declared("b", "y", "validation", path),
        Declared("b", "y", "train", other),
    ]
    assert [path.name for path in prepared_paths(declared, [tmp_path] * 5)] == [
        "rows_prepare.a.jsonl",
        "rows_prepare.b.x.jsonl",
        "rows_prepare.b.y.jsonl",
        "rows_prepare.b.y.2.jsonl",
        "other_prepare.jsonl",
    ]


def test_b111_a_read_only_folder_is_left_alone_and_files_that_are_up_to_date_too(tmp_path: Path) -> None:
    one = dataset(tmp_path / "a", [row()])
    collate([one], Options(tmp_path / "out"))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "a").iterdir()}
    collate([one], Options(tmp_path / "out"))
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "a").iterdir()} == before

    (tmp_path / "a" / "d_prepare.jsonl").unlink()
    (tmp_path / "a" / "d_metrics.json").unlink()
    aside = collate([one], Options(tmp_path / "out", is_beside=False))
    assert files(tmp_path / "a") == ["d.jsonl"]
    assert aside.prepared == [tmp_path / "out" / "d_prepare.jsonl"]
    assert (tmp_path / "out" / "d_metrics.json").exists()


def test_b111_what_cannot_lie_beside_the_dataset_lies_in_the_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a folder of mode 0555; the tests may run as root, who may write there."""
    one = dataset(tmp_path / "a", [row()])
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path / "a")
    made = collate([one], Options(tmp_path / "out"))
    assert files(tmp_path / "a") == ["d.jsonl"]
    assert made.prepared == [tmp_path / "out" / "d_prepare.jsonl"]
    assert "cannot be written" in made.notes[0]


def test_figures_that_differ_fail_and_are_written_beside(tmp_path: Path) -> None:
    one = dataset(tmp_path / "a", [row(n=1), row(n=2)])
    known = tmp_path / "a" / "d_metrics.json"
    known.write_text(json.dumps({"name": "d", "Number of examples": 3, "n": {"Average": 1.503}}))
    with pytest.raises(ConfigError, match="differ from those beside it") as caught:
        collate([one], Options(tmp_path / "out"))
    assert caught.value.where == str(known)
    assert caught.value.details == ("d: Number of examples: 3 there, 2 now",)
    assert json.loads((tmp_path / "a" / "d_metrics_conflict.json").read_bytes())["Number of examples"] == 2
    assert json.loads(known.read_bytes())["Number of examples"] == 3

    collate([one], Options(tmp_path / "out", is_overwriting=True))
    assert json.loads(known.read_bytes())["Number of examples"] == 2


@pytest.mark.parametrize(("there", "is_close"), [(1.505, True), (1.51, False), (1.494, False)])
def test_figures_may_differ_by_rounding(tmp_path: Path, there: float, is_close: bool) -> None:
    one = dataset(tmp_path / "a", [row(n=1), row(n=2)])
    (tmp_path / "a" / "d_metrics.json").write_text(json.dumps({"n": {"Average": there, "Median": 99}}))
    try:
        collate([one], Options(tmp_path / "out"))
    except ConfigError:
        assert not is_close
    else:
        assert is_close


def test_b101_two_datasets_that_number_their_rows_alike_are_refused(tmp_path: Path) -> None:
    one = dataset(tmp_path / "a", [row("1", _ng_task_index=0)])
    two = dataset(tmp_path / "b", [row("2", _ng_task_index=0)], name="e")
    with pytest.raises(ConfigError, match="`d` and `e` both have a task with `_ng_task_index` 0"):
        collate([one, two], Options(tmp_path / "out"))
    assert not (tmp_path / "out" / "train.jsonl").exists()


def test_rows_that_a_check_refuses_are_told_or_fatal(tmp_path: Path) -> None:
    def check(made: dict[str, Any]) -> str | None:
        return None if "n" in made else "n: Field required"

    one = dataset(tmp_path / "a", [row("1", n=1), row("2")], check=check)
    made = collate([one], Options(tmp_path / "out"))
    assert made.notes == [
        f"1 row of `d` does not fit the task data of `desk`\n  {one.path}:2: n: Field required"
    ]
    with pytest.raises(ConfigError, match="1 row of `d` does not fit"):
        collate([one], Options(tmp_path / "out", is_strict=True))


_ROWS = st.lists(
    st.builds(
        lambda text, agent, n: row(text, **({"agent_ref": {"name": agent}} if agent else {}), n=n),
        st.text(max_size=5),
        st.sampled_from([None, "a"]),
        st.one_of(st.none(), st.integers(), st.floats(allow_nan=False), st.text(max_size=3)),
    ),
    min_size=1,
    max_size=5,
)


@example(rows=[row(n=1.7e308), row(n=1.7e308), row(n=-1.7e308), row(n=10**400)], repeats=2)
@given(rows=_ROWS, repeats=st.integers(1, 3))
def test_no_row_is_lost_changed_or_moved(tmp_path_factory: Any, rows: list[Any], repeats: int) -> None:
    folder = tmp_path_factory.mktemp("collate")
    made = collate([dataset(folder / "a", rows, repeats=repeats)], Options(folder / "out"))
    expected = [
        {**{key: value for key, value in one.items() if key != "agent_ref"}, "task_source": "desk"}
        for one in rows
        for _ in range(repeats)
    ]
    assert lines(made.files["train"]) == expected
