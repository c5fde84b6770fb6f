"""Where a command lays out what it makes: locked while it runs, so that what a killed one left is found."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "gymctl-build-"
COMPARED = "gymctl-compare-"
CHECK = "gymctl-check-"
"""Empty; says that the images whose names have what comes next are being compared."""
BUNDLE = ".gymctl-bundle-"
UNBUNDLE = ".gymctl-unbundle-"
SURELY_LOCKED_SECONDS = 60.0
"""A folder is locked right after it is made, but not at once."""
_ASIDE = re.compile(r"\.(.+)\.removed-\d+")


@contextmanager
def folder(prefix: str = PREFIX, beside: Path | None = None) -> Iterator[Path]:
    """A folder of this user's alone, gone at the end: below `beside`, or where temporary files lie. What
    commands that were killed left there under this prefix goes first: it may hold the login of an index."""
    for left in abandoned(prefix, beside):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=beside, ignore_cleanup_errors=True) as made:
        descriptor = os.open(made, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield Path(made)
        finally:
            os.close(descriptor)


def abandoned(prefix: str = PREFIX, place: Path | None = None) -> Iterator[Path]:
    """Folders of this user's commands that were killed, also those that `discard` was not done with."""
    where = place or Path(tempfile.gettempdir())
    for path in sorted({*where.glob(f"{prefix}*/"), *where.glob(f".{prefix}*.removed-*/")}):
        with suppress(OSError):
            status = path.lstat()
            is_old = time.time() - status.st_ctime > SURELY_LOCKED_SECONDS or discarded(path) is not None
            if status.st_uid == os.getuid() and not path.is_symlink() and is_old and not is_locked(path):
                yield path


def discard(path: Path) -> None:
    """Remove a folder: out of sight first, so that half of it is never there under its name. A command that
    ends meanwhile leaves it beside, where the next one finds it."""
    aside = path if discarded(path) else path.with_name(f".{path.name}.removed-{os.getpid()}")
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.rename(aside)
        shutil.rmtree(aside)
    finally:
        os.close(descriptor)


def discarded(path: Path) -> str | None:
    """The name that a folder had before it was put aside to be removed; None where it was not."""
    named = _ASIDE.fullmatch(path.name)
    return named and named[1]


def is_checking(mark: str) -> bool:
    """Whether the comparison with this mark is going on."""
    return any(is_locked(path) for path in Path(tempfile.gettempdir()).glob(f"{CHECK}{mark}-*"))


def is_locked(path: Path) -> bool:
    """Whether a process holds a file or folder; one that is not ours to open counts as held."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
