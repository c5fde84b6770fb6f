"""What lies below `<cache>/gymctl`, how old it is, and which of it a process uses.

    envs/ sdk/        environments of local processes, and the container half of gymctl for them
    prepare/          packages of prepare scripts
    releases/         published packages that serve as search roots
    benchmarks/ …/    whatever else a part of gymctl keeps: each entry of a folder is a thing of its own, with
                      the file `<name>.json` that says of some that they are whole

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

from gymctl.counts import counted
from gymctl.images.scratch import is_locked
from gymctl.paths import benchmarks_dir, cache_dir
from gymctl.runtime.disk import size_of

HALF_MADE_DAYS = 1.0
"""An entry whose name begins with a dot is being made; after a day nobody is making it any more."""
DAY = 86400.0
BUSY_DAYS = 1 / 24
"""A command that has just begun to use an entry still needs it, whatever is asked."""
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
    for path in sorted({*cache_dir().glob("*/*"), *benchmarks_dir().glob("*")}):
        is_part_of_another = path.suffix == ".json" and path.with_suffix("").is_dir()
        if path.name.endswith(LOCK) or is_part_of_another:
            continue
        with suppress(OSError):
            status = path.lstat()
            if status.st_uid == os.getuid():
                days = max(0.0, now - status.st_mtime) / DAY
                size = size_of(path) + (size_of(_beside(path)) if _beside(path).is_file() else 0)
                found.append(Entry(path.parent.name, path, days, size))
    return found


def _beside(path: Path) -> Path:
    """The file that says of an entry that it is whole."""
    return path.with_name(f"{path.name}.json")


def old(found: list[Entry], days: float) -> Iterator[tuple[Entry, str]]:
    """Those that were not used for so many days or never finished, if no process uses them; and why."""
    told = _told_to_processes()
    for entry in found:
        is_old = entry.days >= max(days, BUSY_DAYS)
        if entry.is_half_made:
            is_old = entry.days >= HALF_MADE_DAYS and not is_locked(entry.path)
        if is_old and str(entry.path).encode() not in told:
            unused = f"not used for {counted(round(entry.days), 'day')}"
            yield entry, "never finished" if entry.is_half_made else unused


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
        _beside(entry.path).unlink(missing_ok=True)
        entry.path.rename(aside)
        shutil.rmtree(aside) if aside.is_dir() and not aside.is_symlink() else aside.unlink()
    except OSError as error:
        return str(error.strerror)
    return None
