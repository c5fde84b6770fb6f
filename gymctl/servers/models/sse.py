"""Server-sent events: an answer that is complete, or one that keeps its connection busy until it is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gymctl.servers.stack.unwinding import contained
from gymctl.servers.stack.wire import dumps

KEEP_ALIVE_SECONDS = 15.0
"""Work may take this long before the headers go out; afterwards a sign of life comes as often."""
COMMENT = b": keep-alive\n\n"
MEDIA_TYPE = "text/event-stream"
_HEADERS = {"cache-control": "no-cache"}

T = TypeVar("T")
Frames = Iterable[bytes]


def event(data: Any, name: str | None = None) -> bytes:
    text = b"data: %s\n\n" % dumps(data)
    return text if name is None else b"event: %s\n%s" % (name.encode(), text)


async def replayed(
    work: Awaitable[T],
    frames: Callable[[asyncio.Future[T]], Frames],
    *,
    failed: Callable[[BaseException], Response] | None = None,
    beat: bytes = COMMENT,
) -> Response:
    """The events of `work`, once it is done. `frames` is given the work that is done, or has failed.

    failed: the answer when the work fails while no header is out yet; None leaves this to `frames`, too.
    """
    task = asyncio.ensure_future(contained(work))
    try:
        await asyncio.wait([task], timeout=KEEP_ALIVE_SECONDS)
    except asyncio.CancelledError:
        task.cancel()
        raise
    if not task.done():
        return _KeptAlive(task, frames, beat)
    error = failure(task)
    if error is not None and failed is not None:
        return failed(error)
    return Response(b"".join(frames(task)), media_type=MEDIA_TYPE, headers=_HEADERS)


def failure(task: asyncio.Future[Any]) -> BaseException | None:
    return asyncio.CancelledError("Request was cancelled") if task.cancelled() else task.exception()


class _KeptAlive(Response):
    media_type = MEDIA_TYPE

    def __init__(self, task: asyncio.Future[T], frames: Callable[[asyncio.Future[T]], Frames], beat: bytes):
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]
        self._task = task
        self._frames = frames
        self._beat = beat

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            while not self._task.done():
                await send({"type": "http.response.body", "body": self._beat, "more_body": True})
                await asyncio.wait([self._task], timeout=KEEP_ALIVE_SECONDS)
            await send({"type": "http.response.body", "body": b"".join(self._frames(self._task))})
        finally:
            self._task.cancel()
