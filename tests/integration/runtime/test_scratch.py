"""Folders of prepare scripts: the one of a killed process is found and removed, and no other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gymctl.runtime import scratch

HOLD = "from gymctl.runtime import scratch\nwith scratch.folder() as made: print(made, flush=True); input()"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("GYMCTL_CACHE_DIR", raising=False)


def test_only_the_folder_of_a_killed_process_is_abandoned() -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", HOLD], **pipes) as holder:
        assert holder.stdout is not None
        left = Path(holder.stdout.readline().strip())
        (left / "part.json").write_text("a token")
        with scratch.folder() as mine:
            assert list(scratch.abandoned()) == []
            holder.kill()
            holder.wait()
            assert list(scratch.abandoned()) == [left]
            assert mine.is_dir()
    assert not left.exists()
    assert not mine.exists()
