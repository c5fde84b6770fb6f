"""The place of a run's files: may it be written, is there room, and is no other run at work there?"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from pathlib import Path

from gymctl.errors import PrerequisiteError, RunError
from gymctl.paths import RunPaths

_PROBE_BYTES = 65_536
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class OutputBusyError(PrerequisiteError):
    """Another run is writing this output."""


class OutputLock:
    """Held while a run writes its files; the kernel drops it when the process dies, however it dies."""

    def __init__(self, path: Path) -> None:
        """Raises BlockingIOError when another run holds it, OSError when the file cannot be made."""
        self.path = path
        while True:
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                _lock(self._descriptor)
                if self._is_still_there():
                    return
            except OSError:
                os.close(self._descriptor)
                raise
            os.close(self._descriptor)

    def _is_still_there(self) -> bool:
        """The run that held it before may have removed the file between our two steps."""
        try:
            return os.path.samestat(self.path.stat(), os.fstat(self._descriptor))
        except FileNotFoundError:
            return False

    def release(self) -> None:
        with contextlib.suppress(OSError):
            self.path.unlink()
        os.close(self._descriptor)


def take(paths: RunPaths) -> OutputLock:
    """Make the folder, lock the output and probe it. Raises PrerequisiteError naming the path.

    Nothing of an earlier run is touched.
    """
    folder = paths.rollouts.parent
    _check_kinds(paths, folder)
    lock: OutputLock | None = None
    try:
        lock = OutputLock(folder / f".{paths.rollouts.name}.lock")
        _probe(paths, folder)
    except BlockingIOError:
        raise OutputBusyError(
            "another run is writing this output",
            where=str(paths.rollouts),
            hint="wait until it has ended, or name another file with --output",
        ) from None
    except OSError as error:
        if lock is not None:
            lock.release()
        raise refused(paths, error) from error
    except BaseException:
        if lock is not None:
            lock.release()
        raise
    return lock


def remove_left(side: Path) -> None:
    """Remove what killed processes left as `.name.<pid>`. For who holds the output, alone."""
    stem = side.name.rpartition(".")[0]
    with contextlib.suppress(OSError):
        for path in side.parent.iterdir():
            name, _, pid = path.name.rpartition(".")
            if name == stem and pid.isdecimal():
                path.unlink(missing_ok=True)


def refused(paths: RunPaths, error: OSError) -> PrerequisiteError:
    """The output cannot be written; said before the run begins."""
    folder = paths.rollouts.parent
    name = error.filename if isinstance(error.filename, str) else ""
    # The folder instead of a file of ours that nobody knows.
    where = Path(name) if name and not Path(name).name.startswith(".") else folder
    return PrerequisiteError(
        f"the output cannot be written: {_reason(error)}",
        where=str(where),
        hint=_room(folder) if error.errno in _NO_ROOM else "name another place with --output",
    )


def lost_room(paths: RunPaths, error: OSError) -> RunError:
    """The disk refused in the middle of the run."""
    return RunError(
        f"the run cannot be written any further: {_reason(error)}",
        where=str(error.filename or paths.rollouts),
        hint=f"finished rollouts are safe, and the same command goes on with them; "
        f"{_room(paths.rollouts.parent)}",
    )


def _check_kinds(paths: RunPaths, folder: Path) -> None:
    for path in (paths.rollouts, paths.inputs, paths.failures, paths.aggregate):
        if path.is_dir():
            raise PrerequisiteError(
                "the output is a folder", where=str(path), hint="name a file, like results/run.jsonl"
            )
        if path.exists() and not path.is_file():  # root may replace /dev/null, and every program needs it
            raise PrerequisiteError(
                "the output is a device, a pipe or a socket",
                where=str(path),
                hint="name a file, like results/run.jsonl; --json writes the result to stdout",
            )
    if paths.folder.exists() and not paths.folder.is_dir():
        raise PrerequisiteError(
            "the folder of the run's own files cannot be made: there is a file",
            where=str(paths.folder),
            hint="name another place with --output",
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PrerequisiteError(
            f"the output folder cannot be made: {_reason(error)}", where=str(folder)
        ) from error


def _probe(paths: RunPaths, folder: Path) -> None:
    probe = folder / f".{paths.rollouts.name}.{os.getpid()}.probe"
    try:
        descriptor = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            rest = memoryview(bytes(_PROBE_BYTES))
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    finally:
        probe.unlink(missing_ok=True)
    for path in (paths.rollouts, paths.inputs, paths.failures, paths.aggregate, paths.folder):
        if path.exists() and not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def _lock(descriptor: int) -> None:
    """Raises BlockingIOError when it is held. A file system without locks has none."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS):
            raise


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__


def _room(folder: Path) -> str:
    """How much room is left, where that can be asked."""
    try:
        state = os.statvfs(folder)
    except OSError:
        return "check the folder"
    return f"{state.f_bavail * state.f_frsize / 1e6:,.1f} MB are free in {folder}"
