"""The files of a run are whole at every moment, and nothing old is lost before it must be."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from gymctl.errors import PrerequisiteError, RunError
from gymctl.paths import RunPaths
from gymctl.rollouts.store import LineFile, RunStore


def store(tmp_path: Path) -> RunStore:
    return RunStore(RunPaths(tmp_path / "out" / "x.jsonl"))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_records_go_to_the_file_they_belong_to(tmp_path: Path) -> None:
    run = store(tmp_path)
    assert run.prepare([{"n": 1}, {"n": 2}]) == 2
    run.begin()
    await run.append({"reward": 1.0, "text": "a\u2028b"})
    await run.append({"_ng_failure_class": "x"})
    await run.append({"_ng_failure_class": "x", "_ng_no_persist": True})
    run.close()
    assert names(tmp_path / "out") == ["x", "x.jsonl", "x_failures.jsonl", "x_materialized_inputs.jsonl"]
    assert names(tmp_path / "out" / "x") == ["journal.jsonl", "passport.json", "rows.sha256"]
    assert (tmp_path / "out/x.jsonl").read_bytes().count(b"\n") == 1
    assert list(run.records()) == [{"reward": 1.0, "text": "a\u2028b"}]
    assert [row for _, row in run.inputs()] == [{"n": 1}, {"n": 2}]


def test_a_run_that_never_begins_leaves_the_old_one_untouched(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    old = {name: f"old {name}" for name in ("x.jsonl", "x_failures.jsonl", "x_materialized_inputs.jsonl")}
    for name, text in old.items():
        (tmp_path / "out" / name).write_text(text)
    run = store(tmp_path)
    run.prepare([{"n": 1}])
    run.close()
    assert {name: (tmp_path / "out" / name).read_text() for name in names(tmp_path / "out")} == old


def test_a_fresh_run_replaces_results_failures_and_metrics(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    for name in ("x.jsonl", "x_failures.jsonl", "x_aggregate_metrics.json"):
        (tmp_path / "out" / name).write_text("old")
    run = store(tmp_path)
    run.prepare([{"n": 1}])
    replaced = run.begin()
    run.close()
    assert sorted(path.name for path in replaced) == [
        "x.jsonl",
        "x_aggregate_metrics.json",
        "x_failures.jsonl",
    ]
    assert names(tmp_path / "out") == ["x", "x.jsonl", "x_materialized_inputs.jsonl"]
    assert (tmp_path / "out/x.jsonl").read_bytes() == b""


def test_a_folder_as_output_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out" / "x.jsonl").mkdir(parents=True)
    with pytest.raises(PrerequisiteError, match="the output is a folder"):
        store(tmp_path).prepare([])


def test_a_parent_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(PrerequisiteError, match="folder cannot be made"):
        store(tmp_path).prepare([])


def test_a_second_run_with_the_same_output_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    first, second = store(tmp_path), store(tmp_path)
    first.prepare([{"n": 1}])
    with pytest.raises(PrerequisiteError, match="another run is writing this output") as caught:
        second.prepare([{"n": 2}])
    assert caught.value.where == str(first.paths.rollouts)
    first.begin()
    second.close()
    assert [row for _, row in first.inputs()] == [{"n": 1}]
    first.close()
    second.prepare([{"n": 2}])
    second.close()
    assert names(tmp_path / "out") == ["x", "x.jsonl", "x_materialized_inputs.jsonl"]


def test_a_file_system_that_takes_nothing_is_refused_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system", "out/.x")

    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(PrerequisiteError, match="cannot be written: Read-only file system"):
        store(tmp_path).prepare([{"n": 1}])


def test_a_line_that_did_not_fit_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = LineFile(tmp_path / "x")
    file.write(b"whole")
    real, left = os.write, [3]

    def torn(descriptor: int, data: memoryview) -> int:
        if not left:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data[: left.pop()])

    monkeypatch.setattr(os, "write", torn)
    with pytest.raises(OSError, match="No space"):
        file.write(b"this one tears")
    monkeypatch.undo()
    assert (tmp_path / "x").read_bytes() == b"whole\n"
    file.write(b"after")
    file.close()
    assert (tmp_path / "x").read_bytes() == b"whole\nafter\n"


async def test_a_full_disk_ends_the_run_with_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = store(tmp_path)
    run.prepare([{}])
    run.begin()
    await run.append({"n": 1})

    def full(descriptor: int, data: memoryview) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(RunError, match="No space left on device") as caught:
        await run.append({"n": 2})
    monkeypatch.undo()
    assert "x.jsonl" in str(caught.value.where)
    run.close()
    assert list(run.records()) == [{"n": 1}]


async def test_a_large_record_is_written_whole_although_the_task_is_cancelled(tmp_path: Path) -> None:
    run = store(tmp_path)
    run.prepare([{}])
    run.begin()
    record = {"text": "x" * 3_000_000}
    task = asyncio.create_task(run.append(record, size=3_000_000))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await run.append({"n": 2})
    run.close()
    assert list(run.records()) == [record, {"n": 2}]


def test_the_aggregate_file_is_old_or_new_never_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = store(tmp_path)
    run.prepare([{}])
    run.begin()
    run.write_aggregate(b"[1]")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError):
        run.write_aggregate(b"[2]")
    monkeypatch.undo()
    run.close()
    assert run.paths.aggregate.read_bytes() == b"[1]"
    assert not [name for name in names(tmp_path / "out") if name.startswith(".")]


@pytest.mark.parametrize("name", ["x.jsonl", "x_failures.jsonl", "x_aggregate_metrics.json"])
def test_a_device_or_pipe_is_never_replaced(tmp_path: Path, name: str) -> None:
    """As root, `-o /dev/null` would take the machine's /dev/null away."""
    (tmp_path / "out").mkdir()
    os.mkfifo(tmp_path / "out" / name)
    with pytest.raises(PrerequisiteError, match="a device, a pipe or a socket"):
        store(tmp_path).prepare([{"n": 1}])
    assert (tmp_path / "out" / name).is_fifo()


def test_what_a_killed_run_left_aside_goes_with_the_next_one_there(tmp_path: Path) -> None:
    theirs = (".run_materialized_inputs.jsonl.999999", ".run.rows.sha256.999999")
    others = (".other_materialized_inputs.jsonl.999999", ".run.rows.sha256.kept")
    for name in (*theirs, *others):
        (tmp_path / name).write_text("{}")
    one = RunStore(RunPaths(tmp_path / "run.jsonl"))
    one.take()
    one.discard()
    left = {path.name for path in tmp_path.iterdir()}
    assert left.isdisjoint(theirs)
    assert left.issuperset(others)
