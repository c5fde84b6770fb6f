"""The terminal of a running evaluation is closed: it drains, and ends as it would after SIGTERM."""

from __future__ import annotations

import os
import pty
import select
import socket
import subprocess
import sys
import time
from pathlib import Path

from fakes.program import processes_below, read_lines

SLOW = "++policy_model.responses_api_models.scripted_model.faults={latency_ms: 400}"
IN_TERMINAL = 'exec "$@" <"$0" >"$0" 2>&1'
"""The first terminal that a session opens is the one whose end it is told of."""


def test_a_closed_terminal_drains_and_leaves_nothing(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        head = f"++head_server.port={probe.getsockname()[1]}"
    command = [
        sys.executable,
        "-m",
        "gymctl",
        "eval",
        "weather",
        "--runtime",
        "process",
        "-o",
        "x.jsonl",
        head,
    ]
    command += [SLOW, "-k", "200", "--concurrency", "4"]
    screen, terminal = pty.openpty()
    process = subprocess.Popen(
        ["sh", "-c", IN_TERMINAL, os.ttyname(terminal), *command], cwd=tmp_path, start_new_session=True
    )
    try:
        rollouts, end = tmp_path / "x.jsonl", time.monotonic() + 120
        while not (rollouts.exists() and rollouts.read_bytes().count(b"\n") >= 4):
            assert process.poll() is None and time.monotonic() < end
            if select.select([screen], [], [], 0.05)[0]:
                os.read(screen, 65536)
        os.close(terminal)
        os.close(screen)
        assert process.wait(timeout=120) == 129
    finally:
        process.kill()
        process.wait()
    assert processes_below(tmp_path) == []
    assert 4 <= len(read_lines(rollouts)) < 1000
    assert (tmp_path / "x_aggregate_metrics.json").exists(), "what is there was scored"
