"""The folder of a build: this user's alone, locked while it is used, found when its process was killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from gymctl.images import scratch


def test_a_killed_builds_folder_is_found_and_a_running_ones_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    killed = tmp_path / f"{scratch.PREFIX}killed"
    killed.mkdir()
    (tmp_path / "gymctl-other").mkdir()
    assert list(scratch.abandoned()) == [], "it may have been made just now"
    monkeypatch.setattr(scratch, "SURELY_LOCKED_SECONDS", -1.0)
    assert list(scratch.abandoned()) == [killed]
    with scratch.folder() as running:
        assert running.stat().st_mode & 0o777 == 0o700
        assert not killed.exists(), "it goes with the next command of its kind"
        with scratch.folder():
            assert running.is_dir()
            assert list(scratch.abandoned()) == []
    assert not running.exists()
    assert (tmp_path / "gymctl-other").is_dir()


def test_what_a_killed_command_left_beside_its_output_goes_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{scratch.BUNDLE}killed").mkdir()
    (tmp_path / f"{scratch.BUNDLE}killed" / "images.tar").write_bytes(b"large")
    (tmp_path / "mine").mkdir()
    monkeypatch.setattr(scratch, "SURELY_LOCKED_SECONDS", 0.0)
    with scratch.folder(scratch.BUNDLE, tmp_path) as one, scratch.folder(scratch.BUNDLE, tmp_path) as other:
        assert sorted(tmp_path.iterdir()) == sorted([one, other, tmp_path / "mine"])
    assert list(tmp_path.iterdir()) == [tmp_path / "mine"]


def test_what_is_put_aside_and_not_removed_is_found_at_once_and_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(path: Path) -> None:
        raise KeyboardInterrupt

    killed = tmp_path / f"{scratch.BUNDLE}killed"
    killed.mkdir()
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", stop)
        with pytest.raises(KeyboardInterrupt):
            scratch.discard(killed)
    assert not killed.exists()
    (aside,) = scratch.abandoned(scratch.BUNDLE, tmp_path)
    assert scratch.discarded(aside) == killed.name
    descriptor = os.open(aside, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    assert list(scratch.abandoned(scratch.BUNDLE, tmp_path)) == [], "another command removes it"
    os.close(descriptor)
    scratch.discard(aside)
    assert list(tmp_path.iterdir()) == []
