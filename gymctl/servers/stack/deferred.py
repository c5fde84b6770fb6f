"""Waiting holds no connection (DESIGN D15): a request that asks for it is answered 202 at
once, and its answer comes later on a stream (contract/deferred.py says how they talk).

Everything below this layer sees an ordinary request: whoever runs it still gets one answer, one cancellation
when nobody waits any more, and, with an idempotency key, one run. Results are kept until their reader says
that it has them. Whose reader is away for `LINGER` is taken for dead: its work is cancelled, and its results
are dropped. Kept per process: one of several workers does not offer it.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gymctl.contract.deferred import (
    APPLIED_HEADER,
    CALL_HEADER,
    PREFER_HEADER,
    READ_HEADER,
    RESPOND_ASYNC,
    RESULTS_PATH,
    SINCE_HEADER,
    STREAM_HEADER,
    Headers,
    Result,
)
from gymctl.servers.stack.border import read_body
from gymctl.transport import KEY_HEADER

logger = logging.getLogger("gymctl.server")

LINGER = 5.0
"""Longer than a reader tries to come back (transport.ASKING_SECONDS)."""
UNREAD_BYTES = 256 * 1024 * 1024
"""A reader that is so far behind gets plain answers, which hold it up."""
PIECE_BYTES = 256 * 1024
SHUTDOWN_SECONDS = 1.0

_STREAM, _CALL, _READ = STREAM_HEADER.encode(), CALL_HEADER.encode(), READ_HEADER.encode()
_KEY = KEY_HEADER.encode()
_WISHES = frozenset({PREFER_HEADER.encode(), _STREAM, _CALL, _READ})


class Streams:
    """The streams of one process, by name."""

    def __init__(self, linger: float = LINGER) -> None:
        self._streams: dict[str, Stream] = {}
        self._linger = linger

    def get(self, name: str) -> Stream | None:
        return self._streams.get(name)

    async def read(self, name: str, after: int, app: ASGIApp, receive: Receive, send: Send) -> None:
        """Send a stream for as long as somebody reads it; made new, for calls of `app`, if not known."""
        stream = self._streams.setdefault(name, Stream(app))
        try:
            await stream.write(after, receive, send)
        finally:
            # The reader has a while to come back.
            loop = asyncio.get_running_loop()
            loop.call_later(self._linger, self._drop_unless_read, name, stream, stream.readers)

    def _drop_unless_read(self, name: str, stream: Stream, readers: int) -> None:
        if stream.readers == readers and self._streams.get(name) is stream:
            del self._streams[name]
            stream.take_back()

    async def close(self) -> None:
        """The server stops: what is still at work is cancelled, and its answers are sent to who reads."""
        streams = list(self._streams.values())
        tasks = [task for stream in streams for task in stream.cancel()]
        if tasks:
            await asyncio.wait(tasks, timeout=SHUTDOWN_SECONDS)
        writers = [writer for stream in streams for writer in stream.end()]
        if writers:
            await asyncio.wait(writers, timeout=SHUTDOWN_SECONDS)


@dataclass(frozen=True, slots=True)
class _Call:
    """A request at work."""

    scope: Scope
    task: asyncio.Task[None]


class Stream:
    """The calls of one caller: those at work, and the results that it has not confirmed yet."""

    def __init__(self, app: ASGIApp) -> None:
        self.since = uuid.uuid4().hex
        self.readers = 0
        """How many connections have read it."""
        self._app = app
        self._written = 0
        self._open: dict[str, _Call] = {}
        self._kept: dict[int, Result] = {}
        self._bytes = 0
        self._last = 0
        self._confirmed = 0
        self._reader: asyncio.Future[None] | None = None
        self._news = asyncio.Event()
        self._is_ended = False
        self._taking_back: set[asyncio.Task[None]] = set()

    @property
    def has_room(self) -> bool:
        return self._bytes <= UNREAD_BYTES and not self._is_ended

    def confirm(self, cursor: int) -> None:
        """The reader has the results up to here."""
        for number in range(self._confirmed + 1, min(cursor, self._last) + 1):
            self._bytes -= len(self._kept.pop(number).body)
            self._confirmed = number

    def begin(self, call: str, scope: Scope, body: bytes) -> None:
        task = asyncio.get_running_loop().create_task(self._work(call, scope, body))
        self._open[call] = _Call(scope, task)

    async def _work(self, call: str, scope: Scope, body: bytes) -> None:
        answer = _Answer()
        try:
            await self._app(scope, _Body(body), answer)
        except (Exception, SystemExit, BaseExceptionGroup):  # below is a border of its own; the server stays
            logger.exception("%s %s failed", scope["method"], scope["path"])
        finally:
            if self._open.pop(call, None) is not None:
                self._keep(call, answer)

    def _keep(self, call: str, answer: _Answer) -> None:
        self._last += 1
        self._kept[self._last] = Result(self._last, call, answer.status, answer.headers, answer.body)
        self._bytes += len(answer.body)
        self._news.set()

    def take_back(self, calls: Iterable[str] | None = None) -> None:
        """Nobody waits for these calls, or for any: their work ends, and there will be no result."""
        found = [self._open.pop(call, None) for call in (list(self._open) if calls is None else calls)]
        gone = [call for call in found if call is not None]
        task = asyncio.get_running_loop().create_task(self._ended(gone))
        self._taking_back.add(task)
        task.add_done_callback(self._taking_back.discard)

    async def _ended(self, calls: list[_Call]) -> None:
        for call in calls:
            call.task.cancel()
            if any(name == _KEY for name, _ in call.scope["headers"]):
                # What goes on behind an idempotency key is taken back as by a caller of its own.
                await self._app({**call.scope, "method": "DELETE"}, _Body(b""), _Answer())

    def cancel(self) -> list[asyncio.Task[None]]:
        """The server stops: all work is cancelled, which is an answer too."""
        tasks = [call.task for call in self._open.values()]
        for task in tasks:
            task.cancel()
        return tasks

    def end(self) -> list[asyncio.Future[None]]:
        """No results will come after those that are there; who still writes them."""
        self._is_ended = True
        self._news.set()
        return [] if self._reader is None else [self._reader]

    async def write(self, after: int, receive: Receive, send: Send) -> None:
        """Send what comes after a cursor, until the connection ends, another takes over, or `end`."""
        self.confirm(after)
        loop = asyncio.get_running_loop()
        me = self._reader = loop.create_future()
        self.readers += 1
        self._news.set()  # an older connection ends
        watch = loop.create_task(self._listen(me, receive))
        try:
            await send(_start(200, ((SINCE_HEADER.encode(), self.since.encode()),)))
            try:
                await self._write(me, self._confirmed, send)
            except asyncio.CancelledError:  # the server stops, and will say `end`
                with suppress(TimeoutError):
                    async with asyncio.timeout(2 * SHUTDOWN_SECONDS):
                        await self._write(me, self._written, send)
            await send({"type": "http.response.body", "body": b""})
        finally:
            watch.cancel()
            me.set_result(None)
            if self._reader is me:
                self._reader = None

    async def _write(self, me: asyncio.Future[None], cursor: int, send: Send) -> None:
        self._written = cursor
        while self._reader is me:
            if self._written < self._last:
                piece, reached = self._piece(self._written)
                self._written = reached
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            elif self._is_ended:
                return
            else:
                self._news.clear()
                await self._news.wait()

    async def _listen(self, me: asyncio.Future[None], receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        if self._reader is me:
            self._reader = None
            self._news.set()

    def _piece(self, cursor: int) -> tuple[bytes, int]:
        """Some records after a cursor, and the cursor that they reach."""
        parts: list[bytes] = []
        size = 0
        while cursor < self._last and size < PIECE_BYTES:
            cursor += 1
            result = self._kept[cursor]
            parts += (result.line(), result.body, b"\n")
            size += len(result.body)
        return b"".join(parts), cursor


class Deferred:
    """Answers 202 to who asks for it, and gives out the streams on which the results come."""

    def __init__(self, app: ASGIApp, streams: Streams | None) -> None:
        """Without `streams` (one of several workers) every request is answered plainly."""
        self._app = app
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        if self._streams is not None and scope["path"].startswith(RESULTS_PATH):
            return await self._results(self._streams, scope, receive, send)
        for name, _ in scope["headers"]:
            if name == _STREAM:
                return await self._asked(scope, receive, send)
        return await self._app(scope, receive, send)

    async def _asked(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A request that may be answered later. The wish is for us, not for whom we call in turn."""
        wishes = {name: value.decode("latin-1") for name, value in scope["headers"] if name in _WISHES}
        scope = {**scope, "headers": [pair for pair in scope["headers"] if pair[0] not in _WISHES]}
        stream = None if self._streams is None else self._streams.get(wishes[_STREAM])
        if stream is not None:
            stream.confirm(_number(wishes.get(_READ, "")))
            if _CALL in wishes and scope["method"] == "POST" and stream.has_room:
                body = await read_body(receive)
                if body is None:
                    return None
                stream.begin(wishes[_CALL], scope, body)
                return await _answer(send, 202, ((APPLIED_HEADER.encode(), RESPOND_ASYNC.encode()),))
        return await self._app(scope, receive, send)

    async def _results(self, streams: Streams, scope: Scope, receive: Receive, send: Send) -> None:
        name, method = scope["path"].removeprefix(RESULTS_PATH), scope["method"]
        if method == "GET":
            after = scope["query_string"].decode("latin-1").rpartition("after=")[2]
            return await streams.read(name, _number(after), self._app, receive, send)
        stream, body = streams.get(name), await read_body(receive)
        if method == "DELETE" and stream is not None and body is not None:
            stream.take_back(body.decode("latin-1").split() if body else None)
        elif method == "POST" and stream is not None and body is not None:
            stream.confirm(_number(body.decode("latin-1")))
        return await _answer(send, 204)


class _Body:
    """`receive` of a request whose caller does not listen: the body, and no news after it."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body

    async def __call__(self) -> Message:
        body, self._body = self._body, None
        if body is None:
            await asyncio.get_running_loop().create_future()
        return {"type": "http.request", "body": body, "more_body": False}


class _Answer:
    """`send` that keeps what would have gone out; a handler that said nothing has failed."""

    def __init__(self) -> None:
        self.status = 500
        self.headers: Headers = ()
        self.body = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = tuple((bytes(name), bytes(value)) for name, value in message.get("headers", ()))
        elif message["type"] == "http.response.body":
            piece = message.get("body", b"")
            self.body = self.body + piece if self.body else piece


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _start(status: int, headers: Headers = ()) -> Message:
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


async def _answer(send: Send, status: int, headers: Headers = ()) -> None:
    await send(_start(status, (*headers, (b"content-length", b"0")) if status != 204 else headers))
    await send({"type": "http.response.body", "body": b""})
