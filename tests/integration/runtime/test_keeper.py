"""The keeper ends what its own command started, and nothing that the next command is starting meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from gymctl.runtime import keeper


def server(parts: Path, start: str) -> subprocess.Popen[bytes]:
    environ = {**os.environ, keeper.VARIABLE: str(parts / "tiny.json"), keeper.START_VARIABLE: start}
    return subprocess.Popen(["sleep", "60"], env=environ, start_new_session=True)


def test_the_keeper_of_a_killed_command_leaves_the_next_start_alone(tmp_path: Path) -> None:
    left_over, new = server(tmp_path, "first"), server(tmp_path, "second")
    try:
        command = [sys.executable, "-I", "-S", keeper.__file__, str(tmp_path), "first"]
        subprocess.run(command, stdin=subprocess.DEVNULL, timeout=60, check=True)  # its starter is gone
        assert left_over.wait(timeout=20) != 0
        assert new.poll() is None
        assert [row.pid for row in keeper.find(tmp_path)] == [new.pid]
        keeper.stop(tmp_path)
        assert new.wait(timeout=20) != 0
    finally:
        for process in (left_over, new):
            process.kill()
            process.wait()
