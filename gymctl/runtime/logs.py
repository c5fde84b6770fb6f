"""Log lines of a project: the last ones of a server, one merged stream of all, secrets cut out."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from pathlib import Path

TAIL_BYTES = 256 * 1024
POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class LogLine:
    server: str
    text: str


@dataclass(frozen=True, slots=True)
class LogQuery:
    """What `gymctl logs` asks for. since: seconds since the epoch. tail: lines of each server, None = all."""

    servers: tuple[str, ...] = ()
    follow: bool = False
    since: float | None = None
    tail: int | None = None

    def wants(self, server: str) -> bool:
        return not self.servers or server in self.servers


def last_lines(path: Path, count: int) -> tuple[str, ...]:
    """The last lines of a file, however long it is; none when it does not exist."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ()
    return tuple(text.splitlines()[-count:]) if count else ()


async def follow_files(files: Mapping[str, Path], query: LogQuery) -> AsyncGenerator[LogLine]:
    """Lines of log files by server: first those that are there, then, when following, those that come.

    A line without its end is held back until the end is written, so that no secret is cut in two unseen.
    """
    wanted = {server: path for server, path in files.items() if query.wants(server)}
    places: dict[str, int] = {}
    for server, path in wanted.items():
        lines, places[server] = _from(path, 0)
        for line in lines if query.tail is None else lines[-query.tail :] if query.tail else ():
            yield LogLine(server, line)
    while query.follow:
        await asyncio.sleep(POLL_SECONDS)
        for server, path in wanted.items():
            lines, places[server] = _from(path, places[server])
            for line in lines:
                yield LogLine(server, line)


def _from(path: Path, place: int) -> tuple[list[str], int]:
    """Whole lines behind `place`, and where the next ones begin. A file that shrank is read anew."""
    try:
        with path.open("rb") as file:
            if file.seek(0, os.SEEK_END) < place:
                place = 0
            file.seek(place)
            content = file.read()
    except OSError:
        return [], place
    whole, newline, _ = content.rpartition(b"\n")
    if not newline:
        return [], place
    return whole.decode("utf-8", "replace").split("\n"), place + len(whole) + 1
