from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gymctl.contract.servers import ServerTable
from gymctl.errors import PrerequisiteError
from gymctl.paths import ProjectPaths
from gymctl.runtime import lock, private, state
from gymctl.runtime.logs import LogQuery, follow_files, last_lines
from gymctl.runtime.state import ProjectState


def project_state(name: str) -> ProjectState:
    return ProjectState(
        project=name,
        runtime="process",
        head_url="http://127.0.0.1:11000",
        table=ServerTable(servers={}),
        services={},
        inputs="",
    )


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_private_files_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        folder = private.make_folder(tmp_path / "a" / "b")
        private.write(folder / "part.json", "secret")
    finally:
        os.umask(old)
    assert mode(folder) == 0o700
    assert mode(folder / "part.json") == 0o600


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "part.json"
    private.write(path, "old")
    with pytest.raises(UnicodeEncodeError):
        private.write(path, "\ud800")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_projects_key_is_random_and_stays_once_written(tmp_path: Path) -> None:
    first = private.project_secret(tmp_path / "secret")
    assert len(first) == 32
    assert private.project_secret(tmp_path / "secret") != first
    private.write_secret(tmp_path / "secret", first)
    assert mode(tmp_path / "secret") == 0o600
    assert private.project_secret(tmp_path / "secret") == first
    assert private.project_secret(tmp_path / "other") != first


def test_a_second_command_is_told_who_changes_the_project(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with lock.held(path, "up"), pytest.raises(PrerequisiteError) as caught, lock.held(path, "down"):
        pass
    assert "`gymctl up`" in caught.value.what
    assert str(os.getpid()) in caught.value.what
    with lock.held(path, "down"):
        pass


def test_a_project_folder_that_cannot_be_made_is_an_answer(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PrerequisiteError, match="cannot be made here: Not a directory") as caught:
        private.make_folder(tmp_path / "file" / ".gymctl")
    assert caught.value.where == str(tmp_path / "file" / ".gymctl")


def test_servers_are_changed_only_by_who_uses_them_alone(tmp_path: Path) -> None:
    path = tmp_path / "in-use"
    with lock.Use(path) as starter:
        assert starter.is_alone
        starter.sign("eval")
        with pytest.raises(PrerequisiteError, match="in use by `gymctl eval`") as caught:
            lock.Use(path)
        assert "--project" in str(caught.value.hint)
        starter.share()
        with lock.Use(path) as second:
            assert not second.is_alone
    with lock.shared(path), lock.Use(path) as third:
        assert not third.is_alone
    with lock.Use(path) as last:
        assert last.is_alone
        assert last.signed_by == "eval"


def test_state_is_read_back_and_forgotten(tmp_path: Path) -> None:
    for name in ("b", "a"):
        state.save(ProjectPaths.of(name, tmp_path), project_state(name))
    assert [known.project for _, known in state.all_in(tmp_path)] == ["a", "b"]
    state.forget(ProjectPaths.of("a", tmp_path))
    assert [known.project for _, known in state.all_in(tmp_path)] == ["b"]


def test_a_damaged_state_counts_as_none(tmp_path: Path) -> None:
    paths = ProjectPaths.of("a", tmp_path)
    private.make_folder(paths.folder)
    paths.state.write_text('{"project": 3')
    assert state.load(paths) is None


def test_a_project_that_is_being_taken_down_says_so(tmp_path: Path) -> None:
    paths = ProjectPaths.of("a", tmp_path)
    assert state.is_going(paths)
    state.save(paths, project_state("a"))
    assert not state.is_going(paths)
    state.mark_stopping(paths)
    assert state.is_going(paths)


def test_last_lines_of_a_long_file(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("".join(f"line {number}\n" for number in range(100_000)))
    assert last_lines(path, 2) == ("line 99998", "line 99999")
    assert last_lines(path, 0) == ()
    assert last_lines(tmp_path / "none", 5) == ()


async def test_logs_are_read_by_server_and_tail(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n2\n3\nhalf")
    (tmp_path / "b").write_text("4\n")
    files = {"a": tmp_path / "a", "b": tmp_path / "b"}

    async def read(**query: object) -> list[tuple[str, str]]:
        return [(line.server, line.text) async for line in follow_files(files, LogQuery(**query))]  # type: ignore[arg-type]

    assert await read(tail=2) == [("a", "2"), ("a", "3"), ("b", "4")]
    assert await read(servers=("b",)) == [("b", "4")]
    assert await read(tail=0) == []
