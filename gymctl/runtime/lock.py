"""One command changes a project at a time; a second one is told who holds it."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gymctl.errors import PrerequisiteError


@contextmanager
def held(path: Path, command: str) -> Iterator[None]:
    """Hold the project's lock. The kernel gives it back when the process ends, however it ends."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _busy(path) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{command}\n{os.getpid()}\n{time.time():.0f}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _busy(path: Path) -> PrerequisiteError:
    lines = path.read_text("utf-8", "replace").split("\n")
    try:
        command, pid, since = lines[0], int(lines[1]), float(lines[2])
        holder = f"`gymctl {command}` (process {pid}, since {max(0, time.time() - since):.0f} s)"
    except (IndexError, ValueError):
        holder = "another command"
    return PrerequisiteError(
        f"project `{path.parent.name}` is being changed by {holder}",
        where=str(path),
        hint="wait until it is done, or stop it with Ctrl+C",
    )
