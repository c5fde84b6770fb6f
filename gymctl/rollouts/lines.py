"""Files that survive a crash: lines appended whole, torn ends cut off, documents replaced old or new.

What `write` was given is out of this process when it returns: a kill -9 loses nothing of it. `sync` brings it
through a power failure as well.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from gymctl.rollouts.encoding import loads

BOM = b"\xef\xbb\xbf"
_CHUNK = 65_536


class Line(NamedTuple):
    """One line of a file of JSON lines."""

    number: int
    start: int
    """Where its text begins in the file."""
    text: bytes
    is_ended: bool
    """It has its newline; without one it may be torn."""


def numbered(file: Iterable[bytes]) -> Iterator[Line]:
    """The lines of a file as editors and other tools leave it: a byte order mark, `\\r` before the newline,
    blank lines and a missing last newline are no part of what it says. Lines end at `\\n` only."""
    offset = 0
    for number, raw in enumerate(file, 1):
        start, offset = offset, offset + len(raw)
        text = raw.rstrip(b"\r\n")
        if number == 1 and text.startswith(BOM):
            start += len(BOM)
            text = text.removeprefix(BOM)
        if text and not text.isspace():
            yield Line(number, start, text, raw.endswith(b"\n"))


class LineFile:
    """Appends whole lines. A line that did not fit is taken back, so that the file stays readable."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._lock = threading.Lock()
        self._syncing = threading.Lock()
        """Writing does not wait for the disk; closing waits for one who does."""
        self._is_dirty = True
        self._is_closed = False

    def write(self, line: bytes) -> None:
        with self._lock:
            whole = line + b"\n"
            rest = memoryview(whole)
            self._is_dirty = True
            try:
                while rest:
                    rest = rest[os.write(self._descriptor, rest) :]
            except OSError:
                written = len(whole) - len(rest)
                os.ftruncate(self._descriptor, os.fstat(self._descriptor).st_size - written)
                raise

    def sync(self) -> None:
        """Wait until the disk has it; nothing to wait for when nothing was written since. Thread-safe."""
        with self._syncing:
            self._sync()

    def _sync(self) -> None:
        if self._is_dirty and not self._is_closed:
            self._is_dirty = False
            os.fsync(self._descriptor)

    def close(self) -> None:
        with self._syncing:
            try:
                self._sync()
            finally:
                self._is_closed = True
                os.close(self._descriptor)


def mend(path: Path) -> int:
    """Make a file of JSON lines end with a whole line; returns how many bytes of a torn one were cut off.

    A last line that is whole and only lacks its newline gets it. A file that is not there stays so.
    """
    try:
        file = path.open("r+b")
    except FileNotFoundError:
        return 0
    with file:
        size = file.seek(0, os.SEEK_END)
        start = _start_of_last_line(file, size)
        if start == size:
            return 0
        file.seek(start)
        if _is_whole(file.read()):
            file.write(b"\n")
            return 0
        file.truncate(start)
        return size - start


def _start_of_last_line(file: BinaryIO, size: int) -> int:
    end = size
    while end > 0:
        begin = max(0, end - _CHUNK)
        file.seek(begin)
        found = file.read(end - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0


def _is_whole(line: bytes) -> bool:
    try:
        return isinstance(loads(line.removeprefix(BOM)), dict)
    except (ValueError, RecursionError):
        return False


def replace(path: Path, content: bytes | Iterable[bytes]) -> None:
    """Write a document, or lines without their newlines, whole or not at all; on disk when this returns.

    Mode and owner of an old file are kept.
    """
    side = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with side.open("wb") as file:
            if isinstance(content, bytes):
                file.write(content)
            else:
                file.writelines(line + b"\n" for line in content)
            file.flush()
            with contextlib.suppress(FileNotFoundError):
                old = path.stat()
                os.fchmod(file.fileno(), stat.S_IMODE(old.st_mode))
                with contextlib.suppress(PermissionError):
                    os.fchown(file.fileno(), old.st_uid, old.st_gid)
            os.fsync(file.fileno())
        side.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            side.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Names that were made or replaced survive a power failure; some file systems cannot be asked."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
