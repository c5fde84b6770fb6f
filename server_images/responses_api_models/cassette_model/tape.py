"""A cassette as a server uses it: an index in memory, contents read when they are wanted, lines appended."""

from __future__ import annotations

import fcntl
import json
import os
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from asked import Asked, digest, prefixes

from gymctl.contract import cassette
from gymctl.errors import ServerError
from gymctl.servers.stack.wire import dumps, loads

_ROLLOUT = re.compile(r"(?P<task>.+)-(?P<attempt>\d+)(?:-a(?P<again>\d+))?")


class Place(NamedTuple):
    offset: int
    size: int


class Answered(NamedTuple):
    """An answer that is on the tape: how many of its kind came before it, and where it stands."""

    number: int
    place: Place


@dataclass(frozen=True, slots=True)
class Taken:
    """An answer as it went over the wire."""

    status: int
    media_type: str
    body: bytes
    failed_call: str | None = None
    """The header that tells which call made it fail."""

    @property
    def is_stream(self) -> bool:
        return self.media_type.startswith("text/event-stream")


class Tape:
    """One file. `can_write` for a recorder, which shares it with the other workers of its server."""

    def __init__(self, path: Path, *, can_write: bool) -> None:
        self._path = path
        self._descriptor = _opened(path, can_write)
        self._parts: dict[str, Place] = {}
        self._requests: dict[str, Place] = {}
        self._answers: dict[bytes, list[Answered]] = {}
        self._rollouts_of: dict[str, list[str]] = {}
        """By request: who asked it."""
        self._asked_by: dict[str, list[str]] = {}
        """By rollout: its requests."""
        self._beginnings: dict[str, str] = {}
        """By the digest of a conversation's beginning: a request that begins so."""
        self._appending = threading.Lock()
        """Locks on files are the process's: they do not keep its threads apart."""
        self._read()

    def close(self) -> None:
        os.close(self._descriptor)

    @property
    def count(self) -> int:
        return sum(map(len, self._answers.values()))

    def recorded(self, request: str, rollout: str) -> Sequence[Answered]:
        """The answers to a request of exactly this rollout, in the order in which they were given."""
        return self._answers.get(key(request, rollout), ())

    def stand_in(self, request: str, rollout: str) -> Sequence[Answered]:
        """The answers to the same request of the same attempt at an equal task, or of the attempt that
        this one repeats."""
        wanted = _ROLLOUT.fullmatch(rollout)
        if wanted is None:
            return ()
        same = [one for one in self.rollouts_of(request) if _is_like(one, wanted)]
        return self.recorded(request, max(same, key=lambda one: _closeness(one, wanted))) if same else ()

    def rollouts_of(self, request: str) -> Sequence[str]:
        return self._rollouts_of.get(request, ())

    def asked_by(self, rollout: str) -> Sequence[str]:
        return self._asked_by.get(rollout, ())

    def beginning(self, prefix: str) -> str | None:
        return self._beginnings.get(prefix)

    def request(self, name: str) -> cassette.Request:
        return cassette.Request.model_validate(self._line(self._requests[name]))

    def part(self, name: str) -> Any:
        place = self._parts.get(name)
        return None if place is None else self._line(place)["value"]

    def answer(self, place: Place) -> Taken:
        line = self._line(place)
        body = dumps(line["json"]) if "json" in line else line["text"].encode()
        return Taken(line["status"], line["type"], body, line.get("failed_call"))

    def append(self, asked: Asked, rollout: str, number: int, taken: Taken) -> None:
        """Write an answer and what it needs, as whole lines at once. OSError: nothing was written."""
        with self._appending:
            self._append(asked, rollout, number, taken)

    def _append(self, asked: Asked, rollout: str, number: int, taken: Taken) -> None:
        lines = [_part_line(name, part) for name, part in asked.parts.items() if name not in self._parts]
        if asked.digest not in self._requests:
            lines.append(_request_line(asked))
        lines.append(_answer_line(asked.digest, rollout, number, taken))
        start = self._written(b"".join(lines))
        for line in lines:
            self._note(cassette.parsed(line) or {}, Place(start, len(line)))
            start += len(line)

    def _written(self, text: bytes) -> int:
        fcntl.lockf(self._descriptor, fcntl.LOCK_EX)
        try:
            size = os.fstat(self._descriptor).st_size
            head = _head() if size == 0 else b""
            if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
                head = b"\n"  # whoever wrote last was killed meanwhile
            whole = head + text
            if os.write(self._descriptor, whole) != len(whole):
                os.ftruncate(self._descriptor, size)
                raise OSError(28, "the disk is full", str(self._path))
            return size + len(head)
        finally:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN)

    def _read(self) -> None:
        lines = self._lines()
        first = next(lines, None)
        if first is None:
            return
        cassette.check_header(first[0], str(self._path))
        for line, place in lines:
            entry = cassette.parsed(line)
            if entry is not None:
                self._note(entry, place)

    def _lines(self) -> Iterator[tuple[bytes, Place]]:
        offset = 0
        with self._path.open("rb") as file:
            for line in file:
                yield line, Place(offset, len(line))
                offset += len(line)

    def _note(self, entry: dict[str, Any], place: Place) -> None:
        kind = cassette.kind_of(entry)
        if kind == "part":
            self._parts[entry["part"]] = place
        elif kind == "request":
            self._requests[entry["request"]] = place
            for prefix in prefixes(entry["server"], entry["path"], entry["messages"]):
                self._beginnings.setdefault(prefix, entry["request"])
        elif kind == "answer":
            self._note_answer(entry, place)

    def _note_answer(self, entry: dict[str, Any], place: Place) -> None:
        request, rollout, number = entry["answer"], entry["rollout"], entry["n"]
        known = self._answers.setdefault(key(request, rollout), [])
        if not known:
            self._rollouts_of.setdefault(request, []).append(rollout)
            self._asked_by.setdefault(rollout, []).append(request)
        # Of two lines with the same name the later one counts: a failure that was asked again.
        known[:] = sorted([*(one for one in known if one.number != number), Answered(number, place)])

    def _line(self, place: Place) -> Any:
        return loads(os.pread(self._descriptor, place.size, place.offset))


def key(request: str, rollout: str) -> bytes:
    return bytes.fromhex(digest(f"{request}{rollout}".encode(errors="replace")))


def _opened(path: Path, can_write: bool) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND if can_write else os.O_RDONLY
    try:
        descriptor = os.open(path, flags, 0o644)
    except OSError as error:
        raise ServerError(f"the cassette cannot be opened: {error.strerror}", where=str(path)) from error
    if can_write:
        # For as long as it may append, nobody puts another file in this one's place (see `gymctl eval`).
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def _head() -> bytes:
    return cassette.line(cassette.HEADER)


def _part_line(name: str, content: bytes) -> bytes:
    return b'{"part":"%s","value":%s}\n' % (name.encode(), content)


def _request_line(asked: Asked) -> bytes:
    return cassette.line(
        {
            "request": asked.digest,
            "server": asked.server,
            "path": asked.path,
            "settings": asked.settings_digest,
            "messages": list(asked.message_digests),
        }
    )


def _answer_line(request: str, rollout: str, number: int, taken: Taken) -> bytes:
    entry = {"answer": request, "rollout": rollout, "n": number, "status": taken.status}
    entry["type"] = taken.media_type
    if taken.failed_call is not None:
        entry["failed_call"] = taken.failed_call
    return cassette.line(entry)[:-2] + b"," + _content(taken.body) + b"}\n"


def _content(body: bytes) -> bytes:
    """As JSON that a person can read where that gives the same bytes back, else as a text."""
    try:
        if b"\n" not in body and dumps(loads(body)) == body:
            return b'"json":' + body
    except ValueError:
        pass
    return b'"text":' + json.dumps(body.decode("utf-8", "replace"), ensure_ascii=False).encode()


def _is_like(rollout: str, wanted: re.Match[str]) -> bool:
    one = _ROLLOUT.fullmatch(rollout)
    if one is None or one["attempt"] != wanted["attempt"]:
        return False
    return int(one["again"] or 0) <= int(wanted["again"] or 0)


def _closeness(rollout: str, wanted: re.Match[str]) -> tuple[bool, int, str]:
    one = _ROLLOUT.fullmatch(rollout)
    assert one is not None
    return one["task"] == wanted["task"], int(one["again"] or 0), rollout
