"""`gymctl clean` and `cache prune` without an engine: what is shown, what is asked, what goes."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from fakes.strikes import strike

from gymctl.runtime import private
from gymctl.runtime.lock import held


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A dead project's folder, one that a command holds, and an environment that is 40 days old."""
    for name in ("dead", "held"):
        paths = tmp_path / ".gymctl" / name
        private.make_folder(paths / "parts")
        private.write(paths / "parts" / "weather.json", "x" * 9000)
        (paths / "lock").touch()
    old = tmp_path / "cache" / "gymctl" / "envs" / "old"
    old.mkdir(parents=True)
    (old / "file").write_bytes(b"x" * 9000)
    os.utime(old, (1, 1))
    (tmp_path / "tmp").mkdir()
    return tmp_path


def gymctl(
    folder: Path, *words: str, answer: bytes | None = None, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """answer: what a person types; None: nobody is there."""
    ours, theirs = pty.openpty()
    try:
        if answer is not None:
            os.write(ours, answer)
        return subprocess.run(
            [sys.executable, "-m", "gymctl", *words],
            cwd=folder,
            env={
                **(environ or os.environ),
                "XDG_CACHE_HOME": str(folder / "cache"),
                "DOCKER_HOST": "unix:///nonexistent",
                "TMPDIR": str(folder / "tmp"),
            },
            stdin=subprocess.DEVNULL if answer is None else theirs,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(theirs)
        os.close(ours)


@pytest.mark.parametrize(
    ("answer", "words", "is_gone"),
    [
        (b"y\n", (), True),
        (b"n\n", (), False),
        (None, (), False),
        (None, ("--yes",), True),
        (None, ("--dry-run", "--yes"), False),
    ],
)
def test_it_removes_after_a_yes_and_otherwise_only_shows(
    folder: Path, answer: bytes | None, words: tuple[str, ...], is_gone: bool
) -> None:
    with held(folder / ".gymctl" / "held" / "lock", "up"):
        done = gymctl(folder, "clean", *words, answer=answer)
    assert done.returncode == 0, done.stderr
    assert ".gymctl/dead" in done.stdout
    assert "held" not in done.stdout
    assert "no Docker engine answers" in done.stderr
    assert (folder / ".gymctl" / "held" / "parts" / "weather.json").exists()
    assert (folder / ".gymctl" / "dead").exists() != is_gone
    assert [path.name for path in (folder / ".gymctl").iterdir() if path.name.startswith(".")] == []


def test_tokens_of_killed_prepare_scripts_go(folder: Path) -> None:
    """But one that told a container is its only trace, and no engine answers."""
    place = folder / "cache" / "gymctl" / "prepare"
    for name in (".run-local", ".run-running", ".run-contained"):
        (place / name).mkdir(parents=True)
        (place / name / "asked.json").write_text('{"args": {"token": "hf-planted"}}')
    (place / ".run-contained" / "part.json").write_text("{}")
    running = os.open(place / ".run-running", os.O_RDONLY)
    try:
        fcntl.flock(running, fcntl.LOCK_EX)
        done = gymctl(folder, "clean", "--yes")
    finally:
        os.close(running)
    assert done.returncode == 0, done.stderr
    assert "a prepare script that was killed" in done.stdout
    assert {path.name for path in place.iterdir()} == {".run-running", ".run-contained"}


def test_a_folder_that_a_signal_leaves_half_removed_goes_with_the_next(folder: Path) -> None:
    struck = strike(folder, "os.rmdir", ".dead.removed-", 1, signal.SIGTERM)
    done = gymctl(folder, "clean", "--yes", environ=struck)
    assert done.returncode == 143
    assert done.stderr.endswith("error: interrupted\n")
    (aside,) = (folder / ".gymctl").glob(".dead.removed-*")
    assert list(aside.iterdir()) == [], "nothing says any more whose it was"
    again = gymctl(folder, "clean", "dead", "--yes")
    assert "a removal that was stopped" in again.stdout
    assert not aside.exists()


def test_json_tells_what_was_removed_and_what_stays(folder: Path) -> None:
    shown = json.loads(gymctl(folder, "clean", "dead", "--json").stdout)
    assert [(row["name"], row["is_removed"]) for row in shown] == [(".gymctl/dead", False)]
    assert shown[0]["size"] >= 9000
    done = json.loads(gymctl(folder, "clean", "dead", "--json", "--yes").stdout)
    assert [(row["name"], row["is_removed"]) for row in done] == [(".gymctl/dead", True)]
    with held(folder / ".gymctl" / "held" / "lock", "up"):
        assert json.loads(gymctl(folder, "clean", "held", "--json").stdout) == []


@pytest.mark.parametrize(
    ("named", "wrong", "hint"),
    [
        (("daed",), "daed", "did you mean `dead`?"),
        (("dead", "weather"), "weather", "there are: dead, held"),
    ],
)
def test_a_project_that_nobody_knows_is_told_before_anything_goes(
    folder: Path, named: tuple[str, ...], wrong: str, hint: str
) -> None:
    done = gymctl(folder, "clean", *named, "--yes")
    assert done.returncode == 2
    assert f"error: no project `{wrong}` is known here\nhint: {hint}\n" in done.stderr
    assert (folder / ".gymctl" / "dead").exists()


def test_where_there_is_no_project_that_is_told(tmp_path: Path) -> None:
    done = gymctl(tmp_path, "clean", "dead")
    assert (done.returncode, done.stdout) == (2, "")
    assert "hint: no project has left anything here\n" in done.stderr


def test_the_cache_is_told_of_and_thinned_out(folder: Path) -> None:
    info = gymctl(folder, "cache", "info")
    assert info.stdout.split("\n")[1].split()[:2] == ["envs", "1"]
    asked = gymctl(folder, "cache", "prune", answer=b"n\n")
    assert "envs/old" in asked.stdout
    assert (folder / "cache" / "gymctl" / "envs" / "old").exists()
    assert gymctl(folder, "cache", "prune", "envs", "--yes").returncode == 0
    assert not (folder / "cache" / "gymctl" / "envs" / "old").exists()
    unknown = gymctl(folder, "cache", "prune", "nothing")
    assert unknown.returncode == 2
    assert "the cache has no part `nothing`" in unknown.stderr
