"""Where a process may open few files, an evaluation runs fewer rollouts at once and says so."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

from fakes.contract import free_port
from fakes.program import read_lines


def test_b75_a_low_limit_of_open_files_is_told_and_kept(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gymctl", "eval", "weather", "--runtime", "process", "-o", "x.jsonl"]
    command += ["--concurrency", "1000", "-k", "15", f"++head_server.port={free_port()}"]
    done = subprocess.run(
        ["/bin/sh", "-c", f"ulimit -n 256 && exec {shlex.join(command)}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "warning: 96 rollouts at once, not 1000" in done.stderr
    assert len(read_lines(tmp_path / "x.jsonl")) == 300
    assert not (tmp_path / "x_failures.jsonl").exists() or not read_lines(tmp_path / "x_failures.jsonl")
