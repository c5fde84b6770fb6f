"""Folders of prepare scripts that run: each is locked by its process, so what a killed one left is found."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gymctl.images import scratch
from gymctl.paths import cache_dir

NEW, RUNNING = ".new-", ".run-"
TOLD = "part.json"
"""Lies in the folders that a container is told by."""


@contextmanager
def folder() -> Iterator[Path]:
    """A folder of our own; below the cache, which every engine on this machine can mount from."""
    parent = _parent()
    parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=parent, prefix=NEW))
    named = made.with_name(made.name.replace(NEW, RUNNING, 1))
    descriptor = os.open(made, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        made.rename(named)  # only now others look at it
        yield named
    finally:
        shutil.rmtree(named, ignore_errors=True)
        os.close(descriptor)


def left() -> list[Path]:
    """The folders whose process is gone, as they are."""
    return [found for found in sorted(_parent().glob(f"{RUNNING}*")) if not scratch.is_locked(found)]


def abandoned() -> Iterator[Path]:
    """The folders whose process is gone, each removed when the next is asked for."""
    for found in sorted(_parent().glob(f"{RUNNING}*")):
        try:
            descriptor = os.open(found, os.O_RDONLY)
        except OSError:
            continue  # it has just ended, or is another user's
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield found
            shutil.rmtree(found, ignore_errors=True)
        except BlockingIOError:
            continue
        finally:
            os.close(descriptor)


def _parent() -> Path:
    return cache_dir() / "prepare"
