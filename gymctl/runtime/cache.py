"""What lies below `<cache>/gymctl`, how old it is, and which of it a process uses.

    envs/ sdk/        environments of local processes, and the container half of gymctl for them
    prepare/          packages of prepare scripts
    releases/         published packages that serve as search roots
    …/                whatever else a part of gymctl keeps: each entry of a folder is a thing of its own

Whoever uses an entry says so by its time (`used`), so that "not used for 30 days" can be told.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gymctl.images.scratch import is_locked
from gymctl.paths import cache_dir
from gymctl.runtime.disk import size_of

HALF_MADE_DAYS = 1.0
"""An entry whose name begins with a dot is being made; after a day nobody is making it any more."""
DAY = 86400.0
LOCK = "-lock"
"""How files end that only say who makes an entry."""


@dataclass(frozen=True, slots=True)
class Entry:
    part: str
    """The folder that it lies in: `envs`, `releases`, …"""
    path: Path
    days: float
    """Since it was made or used."""
    size: int
    """Bytes."""

    @property
    def is_half_made(self) -> bool:
        return self.path.name.startswith(".")


def used(path: Path) -> None:
    """Note that an entry is used now."""
    with suppress(OSError):  # a cache on a read-only disk
        os.utime(path)


def entries(now: float | None = None) -> list[Entry]:
    """All of this user's, by part and name. Blocking: every file is looked at for its size."""
    now = time.time() if now is None else now
    found: list[Entry] = []
    for path in sorted(cache_dir().glob("*/*")):
        with suppress(OSError):
            status = path.lstat()
            if status.st_uid == os.getuid() and not path.name.endswith(LOCK):
                days = max(0.0, now - status.st_mtime) / DAY
                found.append(Entry(path.parent.name, path, days, size_of(path)))
    return found


def old(found: list[Entry], days: float) -> Iterator[tuple[Entry, str]]:
    """Those that were not used for so many days or never finished, if no process uses them; and why."""
    told = _told_to_processes()
    for entry in found:
        is_old = entry.days >= days
        if entry.is_half_made:
            is_old = entry.days >= HALF_MADE_DAYS and not is_locked(entry.path)
        if is_old and str(entry.path).encode() not in told:
            why = "never finished" if entry.is_half_made else f"not used for {entry.days:.0f} days"
            yield entry, why


def _told_to_processes() -> bytes:
    """Command lines and environments of all processes that we may read: a server's Python, its PYTHONPATH."""
    found: list[bytes] = []
    for place in ("cmdline", "environ"):
        for path in Path("/proc").glob(f"[0-9]*/{place}"):
            with suppress(OSError):
                found.append(path.read_bytes())
    return b"\n".join(found)


def remove(entry: Entry) -> str | None:
    """None when it is gone, else why it stays. What exists below its name is always complete."""
    if is_locked(entry.path):
        return "a command uses it"
    aside = entry.path.with_name(f".{entry.path.name}.removed-{os.getpid()}")
    try:
        entry.path.rename(aside)
        shutil.rmtree(aside) if aside.is_dir() and not aside.is_symlink() else aside.unlink()
    except OSError as error:
        return str(error.strerror)
    return None
