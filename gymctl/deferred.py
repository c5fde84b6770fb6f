"""The caller's side of answers that come later (contract/deferred.py): one stream per server, many calls.

A call that waits costs a coroutine here, no connection. The stream's connection may break: it is made again,
and goes on where it was. A server that does not come back in time, or comes back as another process, has lost
its calls: all of them fail at once with `StreamLost`.
"""

from __future__ import annotations

import asyncio
import itertools
import resource
import uuid
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Protocol, TypeAlias, TypeVar

import aiohttp

from gymctl.contract.deferred import (
    APPLIED_HEADER,
    CALL_HEADER,
    PREFER_HEADER,
    READ_HEADER,
    RESPOND_ASYNC,
    RESULTS_HEADER,
    RESULTS_PATH,
    SINCE_HEADER,
    STREAM_HEADER,
    Result,
    Results,
)
from gymctl.contract.pools import Shares

PLAIN_CALLS = 128
"""So many calls to one server wait on connections of their own, which is cheaper; more, on a stream."""
SENDERS = 32
"""Requests that are being handed over at once."""
COMING_BACK_SECONDS = 3.0
"""How long a server whose stream broke is waited for."""
RETRY_SECONDS = 0.1
REFUSED_SECONDS = 30.0
"""A server that offers no stream is not asked again for so long."""
IDLE_SECONDS = 1.0
"""After the last call; a server that is stopped would wait for an open stream."""
GOODBYE_SECONDS = 2.0
UNTOLD_BYTES = 16 * 1024 * 1024
"""Results are confirmed with the next request; so much of them even if there is none."""

_BROKEN = (aiohttp.ClientError, OSError, TimeoutError)


class StreamLost(Exception):
    """The process that worked on a call is gone."""


class Said(Protocol):
    """What a server answered to a request."""

    @property
    def status(self) -> int: ...
    def header(self, name: str) -> str | None: ...


S = TypeVar("S", bound=Said)
Send: TypeAlias = Callable[[Mapping[str, str]], Coroutine[Any, Any, S]]
"""Sends a request with some more headers."""


class Stream:
    """Calls to one server whose answers come on one connection."""

    def __init__(self, session: aiohttp.ClientSession, origin: str, senders: int) -> None:
        self._session = session
        self._name = uuid.uuid4().hex
        self._url = f"{origin}{RESULTS_PATH}{self._name}"
        self._numbers = itertools.count(1)
        self._waiting: dict[str, asyncio.Future[Result]] = {}
        self._sending = asyncio.Semaphore(senders)
        self._since: str | None = None
        self._cursor = 0
        self._untold_bytes = 0
        self._taken_back: list[str] = []
        self._reading: asyncio.Task[None] | None = None
        self._is_left = False
        self._idle: asyncio.TimerHandle | None = None
        self._errands: set[asyncio.Task[None]] = set()

    @property
    def is_open(self) -> bool:
        return self._reading is not None and not self._reading.done() and not self._is_left

    async def open(self) -> bool:
        """Whether the server has such a stream for us."""
        try:
            async with asyncio.timeout(COMING_BACK_SECONDS):
                response = await self._get()
        except _BROKEN:
            return False
        if response is None:
            return False
        self._reading = asyncio.get_running_loop().create_task(self._read(response))
        return True

    async def call(self, send: Send[S]) -> S | Result:
        """What `send` gets, called with the headers that ask for a later answer; or that answer.
        Raises StreamLost, and what `send` raises."""
        if not self.is_open:
            return await send({})
        if self._idle is not None:
            self._idle.cancel()
        name = str(next(self._numbers))
        waiting = self._waiting[name] = asyncio.get_running_loop().create_future()
        was_sent = False
        try:
            async with self._sending:
                was_sent = True
                said = await send(self._wishes(name))
            if said.status != 202 or said.header(APPLIED_HEADER) != RESPOND_ASYNC:
                return said
            return await waiting
        except asyncio.CancelledError:
            if was_sent:
                self._take_back(name)
            raise
        finally:
            del self._waiting[name]
            if waiting.done() and not waiting.cancelled():
                waiting.exception()
            if not self._waiting:
                self._idle = asyncio.get_running_loop().call_later(IDLE_SECONDS, self.leave)

    def _wishes(self, name: str) -> dict[str, str]:
        self._untold_bytes = 0
        return {
            PREFER_HEADER: RESPOND_ASYNC,
            STREAM_HEADER: self._name,
            CALL_HEADER: name,
            READ_HEADER: str(self._cursor),
        }

    async def _read(self, response: aiohttp.ClientResponse | None) -> None:
        try:
            while response is not None:
                with suppress(*_BROKEN):
                    async with response:
                        results = Results()
                        async for piece in response.content.iter_any():
                            for result in results.feed(piece):
                                self._deliver(result)
                response = await self._again()
        finally:
            self._lose()

    async def _again(self) -> aiohttp.ClientResponse | None:
        """The stream, where it was left; None when it cannot be had any more."""
        with suppress(TimeoutError):
            async with asyncio.timeout(COMING_BACK_SECONDS):
                while True:
                    with suppress(*_BROKEN):
                        return await self._get()
                    await asyncio.sleep(RETRY_SECONDS)
        return None

    async def _get(self) -> aiohttp.ClientResponse | None:
        response = await self._session.get(self._url, params={"after": str(self._cursor)})
        since = response.headers.get(SINCE_HEADER)
        if response.status != 200 or since is None or self._since not in (None, since):
            response.close()
            return None
        self._since = since
        return response

    def _deliver(self, result: Result) -> None:
        if result.cursor <= self._cursor:
            return
        self._cursor = result.cursor
        self._untold_bytes += len(result.body)
        waiting = self._waiting.get(result.call)
        if waiting is not None and not waiting.done():
            waiting.set_result(result)
        if self._untold_bytes > UNTOLD_BYTES:
            self._untold_bytes = 0
            self._run(self._tell("POST", str(self._cursor).encode()))

    def _lose(self) -> None:
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(StreamLost("the server is gone, and the calls it worked on with it"))

    def _take_back(self, name: str) -> None:
        """Say that nobody waits for a call; all that are given up in one turn of the loop together."""
        if not self._taken_back and self.is_open:
            self._run(self._tell_taken_back())
        self._taken_back.append(name)

    async def _tell_taken_back(self) -> None:
        names, self._taken_back = self._taken_back, []
        await self._tell("DELETE", " ".join(names).encode())

    async def _tell(self, method: str, body: bytes = b"") -> None:
        with suppress(*_BROKEN):
            async with asyncio.timeout(GOODBYE_SECONDS):
                async with self._session.request(method, self._url, data=body) as response:
                    await response.read()

    def _run(self, errand: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(errand)
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    def leave(self) -> None:
        """Read no more. From now on nobody may wait for what would be read."""
        self._is_left = True
        if self._reading is not None:
            self._reading.cancel()

    async def close(self) -> None:
        """Nobody waits for anything any more."""
        if self.is_open:
            await self._tell("DELETE")
        self.leave()
        tasks = [task for task in (self._reading, *self._errands) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


class Streams:
    """The streams from one process to the servers that offer them; made when a server is busy with us."""

    def __init__(self, session: aiohttp.ClientSession, plain_calls: int, senders: int) -> None:
        """`plain_calls` to one server wait on connections of their own. Without `senders` all do."""
        self._session = session
        self._plain_calls = plain_calls
        self._senders = senders
        self._calls: dict[str, int] = {}
        self._opening: dict[str, asyncio.Task[Stream | None]] = {}
        self._refused_until: dict[str, float] = {}

    async def call(self, origin: str, send: Send[S]) -> S | Result:
        """As of Stream; `send` is called with no headers where the answer has to come on its connection."""
        busy = self._calls[origin] = self._calls.get(origin, 0) + 1
        try:
            if busy > self._plain_calls and self._senders:
                stream = await self._stream(origin)
                if stream is not None:
                    return await stream.call(send)
            return await send({})
        finally:
            self._calls[origin] -= 1

    async def _stream(self, origin: str) -> Stream | None:
        opening = self._opening.get(origin)
        if opening is not None and opening.done():
            stream = opening.result()
            if stream is not None and stream.is_open:
                return stream
            opening = None
        loop = asyncio.get_running_loop()
        if opening is None:
            if loop.time() < self._refused_until.get(origin, 0.0):
                return None
            opening = self._opening[origin] = loop.create_task(self._opened(origin))
        return await asyncio.shield(opening)

    async def _opened(self, origin: str) -> Stream | None:
        stream = Stream(self._session, origin, self._senders)
        if await self.is_offered(origin) and await stream.open():
            return stream
        self._refused_until[origin] = asyncio.get_running_loop().time() + REFUSED_SECONDS
        return None

    async def is_offered(self, origin: str) -> bool:
        """Whether the server there can answer later."""
        try:
            async with asyncio.timeout(COMING_BACK_SECONDS):
                async with self._session.get(f"{origin}/livez", allow_redirects=False) as response:
                    return response.headers.get(RESULTS_HEADER) == RESULTS_PATH
        except _BROKEN:
            return False

    async def close(self) -> None:
        """Take back what is open everywhere."""
        opening, self._opening = list(self._opening.values()), {}
        for task in opening:
            task.cancel()
        if opening:
            await asyncio.wait(opening)
        found = [task.result() for task in opening if not task.cancelled() and task.exception() is None]
        async with asyncio.TaskGroup() as group:
            for stream in found:
                if stream is not None:
                    group.create_task(stream.close())


def places(shares: Shares) -> tuple[int, int]:
    """How many calls to one server may hold connections while they wait, and how many are handed over at once
    beyond that: both leave room for what else this process opens."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = () if soft == resource.RLIM_INFINITY else (soft // 3,)
    room = min((bound for bound in (shares.limit, shares.limit_per_host, *files) if bound), default=None)
    if room is None:
        return PLAIN_CALLS, SENDERS
    return min(PLAIN_CALLS, room // 2), min(SENDERS, room // 4)
