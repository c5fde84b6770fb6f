"""Where the file for a client goes."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gymctl.cli.export_attach import _write
from gymctl.errors import PrerequisiteError, UsageError


def test_a_device_or_pipe_is_refused_and_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(UsageError, match="a pipe"):
        _write(pipe, "text")
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert list(tmp_path.iterdir()) == [pipe]


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError, match="cannot be written"):
        _write(tmp_path / "none" / "attach.yaml", "text")
