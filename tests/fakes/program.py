"""The gymctl program as a user runs it, for end-to-end tests in either runtime."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def own_head() -> str:
    """The override that gives a project's head a port of its own: that of every day may be taken."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"++head_server.port={probe.getsockname()[1]}"


def gymctl(
    *arguments: str | Path, cwd: Path, environ: Mapping[str, str] | None = None, timeout: float = 600
) -> subprocess.CompletedProcess[str]:
    """Run one command to its end in `cwd`."""
    return subprocess.run(
        [sys.executable, "-m", "gymctl", *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, **(environ or {})},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def start(*arguments: str, cwd: Path) -> subprocess.Popen[str]:
    """Start one command in `cwd` and go on."""
    return subprocess.Popen(
        [sys.executable, "-m", "gymctl", *arguments],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line]


def processes_below(folder: Path) -> list[int]:
    """Processes that name `folder` in their command line or environment: ours that were left behind."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in text:
            found.append(int(entry.name))
    return found
