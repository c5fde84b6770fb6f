"""`Idempotency-Key`: a request that is repeated gets the first answer, and its work runs once (DESIGN D6).

The work runs in a task of its own, so that it outlives the connection it came over: a caller whose connection
broke asks again with the same key and joins. A caller that gives up says so (`DELETE` with the key), and the
work is cancelled at once; one that vanished is waited for during `LINGER`. Cancelled work is not run again
either: who asks for it later is told.
Kept per process: one of several workers cannot promise it, and says so (see `liveness`).
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from gymctl.servers.stack.unwinding import contained
from gymctl.transport import KEY_HEADER

MAX_ANSWERS = 8192
MAX_BYTES = 64 * 1024 * 1024
LINGER = 3.0
FAILURE_BYTES = 16 * 1024
"""What a remembered failure is taken to weigh: its text, perhaps the body that it quotes."""

Endpoint = Callable[[Request], Coroutine[Any, Any, Response]]


class TakenBack(Exception):
    """The answer to a repeat that comes too late."""


class _Entry:
    def __init__(self, task: asyncio.Future[Response]) -> None:
        self.task = task
        self.waiters = 0
        self.size = 0


class Answers:
    """First answers by key; the oldest finished ones are dropped when there are too many."""

    def __init__(
        self, max_answers: int = MAX_ANSWERS, max_bytes: int = MAX_BYTES, linger: float = LINGER
    ) -> None:
        self.since = time.monotonic()
        """No key that was sent before is known."""
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._bytes = 0
        self._max_answers = max_answers
        self._max_bytes = max_bytes
        self._linger = linger

    def wrap(self, endpoint: Endpoint) -> Endpoint:
        """The endpoint, run at most once per path and key."""

        async def once(request: Request) -> Response:
            key = request.headers.get(KEY_HEADER)
            if request.method == "DELETE":
                return self._take_back(request.scope["path"], key)
            if key is None:
                return await endpoint(request)
            return await self.once(f"{request.scope['path']}\n{key}", lambda: endpoint(request))

        return once

    def _take_back(self, path: str, key: str | None) -> Response:
        entry = self._entries.get(f"{path}\n{key}")
        if entry is not None:
            entry.task.cancel()
        return Response(status_code=204)

    async def once(self, key: str, work: Callable[[], Coroutine[Any, Any, Response]]) -> Response:
        """The answer of the first call with this key, even if that call failed. Concurrent calls join it."""
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry(asyncio.get_running_loop().create_task(contained(work())))
            entry.task.add_done_callback(lambda task: self._settle(key, entry))
        entry.waiters += 1
        try:
            return await asyncio.shield(entry.task)
        finally:
            entry.waiters -= 1
            if not entry.waiters:
                self._left(entry)

    def _left(self, entry: _Entry) -> None:
        """Nobody waits for the answer (any more)."""
        loop = asyncio.get_running_loop()
        if not entry.task.done():
            loop.call_later(self._linger, self._abandon, entry)
        elif not entry.task.cancelled():
            loop.call_soon(_forget_frames, entry)  # not at once: first the failure is logged as it is

    def _settle(self, key: str, entry: _Entry) -> None:
        if entry.task.cancelled():
            # Half done, perhaps: a repeat must not start it anew.
            entry.task = asyncio.get_running_loop().create_future()
            entry.task.set_exception(TakenBack("its caller left and did not ask again in time"))
        failed = entry.task.exception() is not None
        entry.size = FAILURE_BYTES if failed else len(entry.task.result().body)
        self._bytes += entry.size
        self._entries.move_to_end(key)
        self._trim()

    def _trim(self) -> None:
        # Entries still at work stand in front and are passed over; requests in flight bound their number.
        for key in self._surplus():
            self._bytes -= self._entries.pop(key).size

    def _surplus(self) -> list[str]:
        count, size = len(self._entries), self._bytes
        found: list[str] = []
        if count <= self._max_answers and size <= self._max_bytes:
            return found
        for key, entry in self._entries.items():
            if count <= self._max_answers and size <= self._max_bytes:
                break
            if entry.task.done():
                found.append(key)
                count -= 1
                size -= entry.size
        return found

    def _abandon(self, entry: _Entry) -> None:
        if not entry.waiters:
            entry.task.cancel()

    async def close(self) -> None:
        """Cancel what nobody can ask for any more, because the server stops."""
        tasks = [entry.task for entry in self._entries.values() if not entry.task.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._entries.clear()


def _forget_frames(entry: _Entry) -> None:
    """Free what a remembered failure holds: the locals of every frame, the request's body among them."""
    error = entry.task.exception()
    if error is not None:
        _strip(error)
        entry.task = asyncio.get_running_loop().create_future()  # the task keeps a traceback of its own
        entry.task.set_exception(error)
        entry.task.exception()


def _strip(error: BaseException) -> None:
    ahead, seen = [error], {id(error)}  # causes may lead in a circle: `raise error from error`
    while ahead:
        error = ahead.pop()
        error.__traceback__ = None
        parts = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
        for other in (*parts, error.__cause__ or error.__context__):
            if other is not None and id(other) not in seen:
                seen.add(id(other))
                ahead.append(other)
