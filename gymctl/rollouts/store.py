"""The files of a run: probed before anything starts, appended by whole lines, never left half written.

prepare()   before the first side effect: folder made, locked against another run with the same output, room
            and rights probed, inputs written to a side file
begin()     just before the first request: old results removed, inputs moved to their place
append()    one record, one line, out of the process when it returns; cancellation cannot cut it
close()     everything on disk
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from gymctl.contract.rollout import FAILURE_CLASS, NO_PERSIST, Row
from gymctl.errors import PrerequisiteError, RunError
from gymctl.paths import RunPaths
from gymctl.rollouts.encoding import dumps, loads

_PROBE_BYTES = 65_536
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_LARGE_LINE = 1_000_000
"""Bytes of a response from which on it is encoded and written in a thread, so that others are not held up."""


class LineFile:
    """Appends whole lines. A line that did not fit is taken back, so that the file stays readable."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._lock = threading.Lock()

    def write(self, line: bytes) -> None:
        with self._lock:
            end = os.fstat(self._descriptor).st_size
            rest = memoryview(line + b"\n")
            try:
                while rest:
                    rest = rest[os.write(self._descriptor, rest) :]
            except OSError:
                os.ftruncate(self._descriptor, end)
                raise

    def close(self) -> None:
        try:
            os.fsync(self._descriptor)
        finally:
            os.close(self._descriptor)


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


class RunStore:
    """Writes one run; the methods are called in the order above."""

    def __init__(self, paths: RunPaths) -> None:
        self.paths = paths
        self._rollouts: LineFile | None = None
        self._failures: LineFile | None = None
        self._lock: OutputLock | None = None

    @property
    def _side_inputs(self) -> Path:
        return self.paths.inputs.with_name(f".{self.paths.inputs.name}.{os.getpid()}")

    def prepare(self, rows: Iterable[Row]) -> int:
        """Check that the run can be written and write its inputs aside; returns their number.

        Raises PrerequisiteError naming the path. Nothing of an earlier run is touched.
        """
        folder = self.paths.rollouts.parent
        self._check_places(folder)
        try:
            self._lock = OutputLock(folder / f".{self.paths.rollouts.name}.lock")
            self._probe(folder)
            return self._write_inputs(rows)
        except BlockingIOError:
            raise PrerequisiteError(
                "another run is writing this output",
                where=str(self.paths.rollouts),
                hint="wait until it has ended, or name another file with --output",
            ) from None
        except OSError as error:
            self.discard()
            raise PrerequisiteError(
                f"the output cannot be written: {_reason(error)}",
                where=str(self._place(error)),
                hint=_room(folder) if error.errno in _NO_ROOM else "name another place with --output",
            ) from error
        except BaseException:
            self.discard()
            raise

    def begin(self) -> tuple[Path, ...]:
        """Make the run the owner of its files; call it when nothing else can refuse the run any more.

        Returns the files of an earlier run that were replaced.
        """
        old = (self.paths.rollouts, self.paths.failures, self.paths.aggregate)
        existing = tuple(path for path in old if path.exists() and path.stat().st_size > 0)
        try:
            for path in old:
                path.unlink(missing_ok=True)
            self._side_inputs.replace(self.paths.inputs)
            self._rollouts = LineFile(self.paths.rollouts)
        except OSError as error:
            raise self._lost_room(error) from error
        return existing

    def inputs(self) -> Iterator[tuple[bytes, Row]]:
        """The rows as they will be sent, read back one by one."""
        with self.paths.inputs.open("rb") as file:
            for line in file:
                line = line.rstrip(b"\n")
                yield line, loads(line)

    async def append(self, record: Row, size: int = 0) -> None:
        """Write one record to the file it belongs to; done completely, or RunError and the file as before.

        `size` is about how many bytes the record has. A cancellation arrives after the write.
        """
        if record.get(NO_PERSIST):
            return
        if size < _LARGE_LINE:
            self._append_now(record)
            return
        writing = asyncio.ensure_future(asyncio.to_thread(self._append_now, record))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            await asyncio.wait([writing])
            writing.result()
            raise

    def _append_now(self, record: Row) -> None:
        try:
            self._file_of(record).write(dumps(record))
        except OSError as error:
            raise self._lost_room(error) from error

    def write_aggregate(self, document: bytes) -> None:
        """Whole or not at all."""
        side = self.paths.aggregate.with_name(f".{self.paths.aggregate.name}.{os.getpid()}")
        try:
            side.write_bytes(document)
            side.replace(self.paths.aggregate)
        except OSError as error:
            side.unlink(missing_ok=True)
            raise self._lost_room(error) from error

    def records(self) -> Iterator[Row]:
        """The successes that are on disk."""
        if self.paths.rollouts.exists():
            with self.paths.rollouts.open("rb") as file:
                for line in file:
                    yield loads(line)

    def discard(self) -> None:
        """Forget inputs that were written aside for a run that never began, and let others have the place."""
        with contextlib.suppress(OSError):  # a file system that takes nothing may refuse even this
            self._side_inputs.unlink(missing_ok=True)
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    def close(self) -> None:
        """Idempotent. RunError when the disk refuses at the last moment what it took before."""
        files, self._rollouts, self._failures = (self._rollouts, self._failures), None, None
        try:
            for file in files:
                if file is not None:
                    file.close()
        except OSError as error:
            raise self._lost_room(error) from error
        finally:
            self.discard()

    def _file_of(self, record: Row) -> LineFile:
        if record.get(FAILURE_CLASS) is None:
            if self._rollouts is None:
                raise RuntimeError("append before begin")
            return self._rollouts
        if self._failures is None:
            self._failures = LineFile(self.paths.failures)
        return self._failures

    def _place(self, error: OSError) -> Path:
        """The file of the run that an error names; the folder instead of a file of ours that nobody knows."""
        name = error.filename if isinstance(error.filename, str) else ""
        return Path(name) if name and not Path(name).name.startswith(".") else self.paths.rollouts.parent

    def _check_places(self, folder: Path) -> None:
        for path in (self.paths.rollouts, self.paths.inputs, self.paths.failures, self.paths.aggregate):
            if path.is_dir():
                raise PrerequisiteError(
                    "the output is a folder", where=str(path), hint="name a file, like results/run.jsonl"
                )
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PrerequisiteError(
                f"the output folder cannot be made: {_reason(error)}", where=str(folder)
            ) from error

    def _probe(self, folder: Path) -> None:
        probe = folder / f".{self.paths.rollouts.name}.{os.getpid()}.probe"
        try:
            descriptor = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                _write_all(descriptor, bytes(_PROBE_BYTES))
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        finally:
            probe.unlink(missing_ok=True)
        for path in (self.paths.rollouts, self.paths.inputs, self.paths.failures, self.paths.aggregate):
            if path.exists() and not os.access(path, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    def _write_inputs(self, rows: Iterable[Row]) -> int:
        count = 0
        with self._side_inputs.open("wb") as file:
            for row in rows:
                file.write(dumps(row) + b"\n")
                count += 1
            file.flush()
            os.fsync(file.fileno())
        return count

    def _lost_room(self, error: OSError) -> RunError:
        folder = self.paths.rollouts.parent
        return RunError(
            f"the run cannot be written any further: {_reason(error)}",
            where=str(error.filename or self.paths.rollouts),
            hint=f"finished rollouts are safe; {_room(folder)}",
        )


def _lock(descriptor: int) -> None:
    """Raises BlockingIOError when it is held. A file system without locks has none."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS):
            raise


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__


def _room(folder: Path) -> str:
    """How much room is left, where that can be asked."""
    try:
        state = os.statvfs(folder)
    except OSError:
        return "check the folder"
    return f"{state.f_bavail * state.f_frsize / 1e6:,.1f} MB are free in {folder}"
