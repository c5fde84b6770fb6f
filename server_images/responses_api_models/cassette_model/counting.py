"""How often the same was asked before: counted in this process, or in all workers of a server together."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections import Counter
from pathlib import Path
from typing import Protocol

_SIZE = 16


class Counting(Protocol):
    def next(self, key: bytes) -> int:
        """0 for the first time that `key` is asked, then 1, …"""
        ...

    def close(self) -> None: ...


class OneWorker:
    def __init__(self) -> None:
        self._seen: Counter[bytes] = Counter()

    def next(self, key: bytes) -> int:
        self._seen[key] += 1
        return self._seen[key] - 1

    def close(self) -> None:
        pass


class ManyWorkers:
    """A file of the keys that were asked, 16 bytes each: a worker reads what the others wrote, then writes.

    It lies in the temporary folder and is named for the supervisor: with a new one, counting starts anew.
    """

    def __init__(self, path: Path) -> None:
        self._seen: Counter[bytes] = Counter()
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self._read = 0

    def next(self, key: bytes) -> int:
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        try:
            while chunk := os.pread(self._descriptor, 1 << 20, self._read):
                whole = len(chunk) - len(chunk) % _SIZE
                self._seen.update(chunk[start : start + _SIZE] for start in range(0, whole, _SIZE))
                self._read += whole
                if whole < len(chunk):
                    os.ftruncate(self._descriptor, self._read)  # a worker was killed while it wrote
            os.write(self._descriptor, key)
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        return self._seen[key]

    def close(self) -> None:
        os.close(self._descriptor)


def of_server(project: str, server: str, workers: int) -> Counting:
    if workers <= 1:
        return OneWorker()
    folder = Path(tempfile.gettempdir())
    return ManyWorkers(folder / f"gymctl-asked-{project}-{server}-{_supervisor()}")


def _supervisor() -> str:
    """The parent of all workers, told apart from one that had the same number before it."""
    parent = os.getppid()
    try:
        started = Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        started = "0"
    return f"{parent}-{started}"
