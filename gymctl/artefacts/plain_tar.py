"""One plain form of tar: regular files in the order of their names, fixed times and owners, nothing else.

What is written here has just one way to be written, so a reader can hold every byte of a file to it: a
header that says anything but name and size, a link, a device, a name out of order, padding that is not zero
and bytes after the end are all refused. Any `tar` reads the form.
"""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO

from gymctl.errors import IntegrityError

BLOCK = 512
END = bytes(2 * BLOCK)
CHUNK = 4 << 20
EXECUTABLE = ".sh"
LONGEST = 99
"""Bytes of a name: a longer one would need a second header."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One file inside."""

    name: str
    offset: int
    """Of its first byte, in bytes from the start of the tar."""
    size: int
    sha256: str
    """Of what is there, in hex."""


def header(name: str, size: int) -> bytes:
    """The 512 bytes before a file."""
    info = tarfile.TarInfo(name)
    info.size = size
    info.mode = 0o755 if name.endswith(EXECUTABLE) else 0o644
    if len(name.encode()) > LONGEST:
        raise ValueError(f"{name} is too long a name")
    return info.tobuf(tarfile.GNU_FORMAT)


def padding(size: int) -> bytes:
    return bytes(-size % BLOCK)


def write(stream: IO[bytes], name: str, size: int, chunks: Iterable[bytes]) -> None:
    """Append one file. Names have to come in their order; `end` comes last."""
    stream.write(header(name, size))
    written = 0
    for chunk in chunks:
        stream.write(chunk)
        written += len(chunk)
    if written != size:
        raise ValueError(f"{name} has {written} bytes, {size} were announced")
    stream.write(padding(size))


def end(stream: IO[bytes]) -> None:
    stream.write(END)


def scan(stream: IO[bytes], where: str) -> Iterator[Entry]:
    """Every file of a seekable tar, in order, read once to its end.

    Raises IntegrityError for whatever `write` and `end` do not write; `where` names the tar in it.
    """
    last = ""
    while True:
        block = _exactly(stream, BLOCK, where, last)
        if block == bytes(BLOCK):
            break
        name, size = _parse(block, where, last)
        if name <= last:
            raise IntegrityError(f"{name} is not in its place in the file", where=where)
        offset = stream.tell()
        yield Entry(name, offset, size, _digest(stream, size, where, name))
        if any(_exactly(stream, len(padding(size)), where, name)):
            raise IntegrityError(f"the bytes after {name} are not what they were", where=where)
        last = name
    rest = stream.read(BLOCK + 1)
    if rest != bytes(BLOCK):
        what = "has bytes after its end" if len(rest) > BLOCK or any(rest) else "ends too early"
        raise IntegrityError(f"the file {what}", where=where, hint="get it again")


def chunks(stream: IO[bytes], offset: int, size: int) -> Iterator[bytes]:
    """The bytes of one file of a seekable tar."""
    stream.seek(offset)
    while size:
        chunk = stream.read(min(CHUNK, size))
        if not chunk:
            raise EOFError
        size -= len(chunk)
        yield chunk


def _parse(block: bytes, where: str, last: str) -> tuple[str, int]:
    after = f"after {last}" if last else "at the beginning"
    try:
        info = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
        expected = header(info.name, info.size)
    except (tarfile.HeaderError, ValueError):
        raise IntegrityError(f"the entry {after} is broken", where=where, hint="get it again") from None
    if info.size < 0:
        raise IntegrityError(f"the entry {after} is broken", where=where, hint="get it again")
    if info.islnk() or info.issym() or info.isdev() or info.isdir():
        raise IntegrityError(f"{info.name} is no file", where=where)
    if block != expected:
        raise IntegrityError(f"the entry of {info.name} is not what it was", where=where)
    return info.name, info.size


def _digest(stream: IO[bytes], size: int, where: str, name: str) -> str:
    total = hashlib.sha256()
    while size:
        chunk = stream.read(min(CHUNK, size))
        if not chunk:
            raise IntegrityError(f"the file ends inside {name}", where=where, hint="get it again")
        total.update(chunk)
        size -= len(chunk)
    return total.hexdigest()


def _exactly(stream: IO[bytes], size: int, where: str, last: str) -> bytes:
    block = stream.read(size)
    if len(block) != size:
        after = f"after {last}" if last else "at once"
        raise IntegrityError(f"the file ends {after}", where=where, hint="get it again")
    return block
