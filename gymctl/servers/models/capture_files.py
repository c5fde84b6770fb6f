"""Lines that are on disk when the call returns, whichever of a server's processes writes them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """The file, made if needed, open for appending and held against every other writer."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)  # which also lets go of it


def append(path: Path, line: bytes) -> None:
    """One whole line at the end, on disk. What did not fit is taken back."""
    with locked(path) as descriptor:
        write_line(descriptor, line)


def write_line(descriptor: int, line: bytes) -> None:
    end = os.fstat(descriptor).st_size
    rest = memoryview(line + b"\n")
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, end)
        raise


def mark_incomplete(path: Path) -> None:
    with suppress(OSError):  # a disk that takes no line may take no mark either
        path.touch()
