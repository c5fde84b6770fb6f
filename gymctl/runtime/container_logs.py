"""Log lines of containers, through the engine's socket: in order of time, or as they come when followed.

Not through `docker compose logs`: some versions put escape codes before every line, also into a pipe.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import threading
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from typing import Any

import docker.errors
import requests.exceptions

from gymctl.engine import Engine
from gymctl.runtime.logs import LogLine, LogQuery


def last(engine: Engine, container: str, count: int) -> list[str]:
    """The last lines of one container; none when it is gone. Blocking."""
    try:
        content = engine.api.api.logs(container, tail=count)
    except docker.errors.APIError:
        return []
    return content.decode("utf-8", "replace").splitlines()


async def read(
    engine: Engine, containers: Sequence[tuple[str, str]], query: LogQuery
) -> AsyncGenerator[LogLine]:
    """Lines of containers, given as (server, container id)."""
    if query.follow:
        async with contextlib.aclosing(_follow(engine, containers, query)) as lines:
            async for line in lines:
                yield line
    else:
        for line in await asyncio.to_thread(_merged, engine, containers, query):
            yield line


def _merged(engine: Engine, containers: Iterable[tuple[str, str]], query: LogQuery) -> list[LogLine]:
    streams = [
        [(stamp, server, text) for stamp, text in _stamped(engine.api.api.logs(container, **_options(query)))]
        for server, container in containers
    ]
    return [LogLine(server, text) for _, server, text in heapq.merge(*streams)]


def _stamped(content: bytes) -> Iterator[tuple[str, str]]:
    for line in content.decode("utf-8", "replace").splitlines():
        stamp, _, text = line.partition(" ")
        yield stamp, text


def _options(query: LogQuery) -> dict[str, Any]:
    return {
        "timestamps": True,
        "tail": "all" if query.tail is None else query.tail,
        **({} if query.since is None else {"since": query.since}),
    }


async def _follow(
    engine: Engine, containers: Sequence[tuple[str, str]], query: LogQuery
) -> AsyncGenerator[LogLine]:
    """A thread for each container until all have ended: docker-py blocks."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[LogLine | None] = asyncio.Queue()
    streams: list[Any] = []

    def drain(server: str, stream: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            try:
                for text in _lines(stream):
                    loop.call_soon_threadsafe(queue.put_nowait, LogLine(server, text))
            except (requests.exceptions.RequestException, OSError, ValueError):
                pass  # the stream was closed under the reader
            finally:
                loop.call_soon_threadsafe(queue.put_nowait, None)

    try:
        for server, container in containers:
            options = {**_options(query), "timestamps": False}
            stream = await asyncio.to_thread(
                engine.api.api.logs, container, stream=True, follow=True, **options
            )
            streams.append(stream)
            threading.Thread(target=drain, args=(server, stream), daemon=True).start()
        ended = 0
        while ended < len(streams):
            line = await queue.get()
            if line is None:
                ended += 1
            else:
                yield line
    finally:
        for stream in streams:
            stream.close()


def _lines(chunks: Iterable[bytes]) -> Iterator[str]:
    """Whole lines: the engine may cut one anywhere."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.decode("utf-8", "replace").rstrip("\r")
    if rest:
        yield rest.decode("utf-8", "replace")
