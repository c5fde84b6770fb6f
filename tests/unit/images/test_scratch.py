"""The folder of a build: this user's alone, locked while it is used, found when its process was killed."""

from __future__ import annotations

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
    monkeypatch.setattr(scratch, "SURELY_LOCKED_SECONDS", 0.0)
    with scratch.folder() as running:
        assert running.stat().st_mode & 0o777 == 0o700
        assert list(scratch.abandoned()) == [killed]
    assert not running.exists()


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
