"""One command changes a project at a time, and none while others rely on its servers.

held   for the moments in which a command starts or stops servers
Use    for as long as a run needs the servers as they are: else a second evaluation with another model would
       change them under the first, whose score would be made of both
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
        _sign(descriptor, command)
        yield
    finally:
        os.close(descriptor)


class Use:
    """Held by whoever relies on a project's servers; given back when the process ends, however it ends."""

    def __init__(self, path: Path) -> None:
        """Alone where possible, else beside others who share. Raises PrerequisiteError when somebody who will
        stop the servers at the end (an evaluation that started them) has it alone."""
        self.path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self.is_alone = self._try(fcntl.LOCK_EX)
        """The servers may be changed: nobody else relies on them."""
        if not self.is_alone and not self._try(fcntl.LOCK_SH):
            self.close()
            raise in_use(path, _holder(path))

    @property
    def signed_by(self) -> str:
        """The command that the servers belong to; still there when it was killed."""
        return os.pread(self._descriptor, 100, 0).decode("utf-8", "replace").partition("\n")[0]

    def sign(self, command: str) -> None:
        """Say whose the servers are."""
        if self.is_alone:
            _sign(self._descriptor, command)

    def share(self) -> None:
        """From now on others may rely on the servers, too."""
        self.is_alone = False
        fcntl.flock(self._descriptor, fcntl.LOCK_SH)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __enter__(self) -> Use:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _try(self, operation: int) -> bool:
        try:
            fcntl.flock(self._descriptor, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@contextmanager
def shared(path: Path) -> Iterator[None]:
    """For a run that starts and stops nothing: nobody changes the servers meanwhile."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        with suppress(BlockingIOError):  # whoever has it alone keeps the servers as they are
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def in_use(path: Path, holder: str = "an evaluation") -> PrerequisiteError:
    return PrerequisiteError(
        f"project `{path.parent.name}` is in use by {holder}",
        where=str(path.parent),
        hint="wait until it has ended, or start another project beside it: --project NAME",
    )


def _sign(descriptor: int, command: str) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{command}\n{os.getpid()}\n{time.time():.0f}\n".encode(), 0)


def _holder(path: Path) -> str:
    lines = path.read_text("utf-8", "replace").split("\n")
    try:
        command, pid, since = lines[0], int(lines[1]), float(lines[2])
        return f"`gymctl {command}` (process {pid}, since {max(0, time.time() - since):.0f} s)"
    except (IndexError, ValueError):
        return "another command"


def _busy(path: Path) -> PrerequisiteError:
    return PrerequisiteError(
        f"project `{path.parent.name}` is being changed by {_holder(path)}",
        where=str(path),
        hint="wait until it is done, or stop it with Ctrl+C",
    )
