"""Where a build lays out its context and secrets: locked while it runs, so that a killed one is found."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "gymctl-build-"
SURELY_LOCKED_SECONDS = 60.0
"""A folder is locked right after it is made, but not at once."""


@contextmanager
def folder() -> Iterator[Path]:
    """A folder of this user's alone, gone at the end."""
    with tempfile.TemporaryDirectory(prefix=PREFIX) as made:
        descriptor = os.open(made, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield Path(made)
        finally:
            os.close(descriptor)


def abandoned() -> Iterator[Path]:
    """Folders of this user's builds that were killed."""
    for path in sorted(Path(tempfile.gettempdir()).glob(f"{PREFIX}*/")):
        with suppress(OSError):
            status = path.lstat()
            is_old = time.time() - status.st_ctime > SURELY_LOCKED_SECONDS
            if status.st_uid == os.getuid() and not path.is_symlink() and is_old and not is_locked(path):
                yield path


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
