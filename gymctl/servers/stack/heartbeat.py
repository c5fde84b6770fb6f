"""A slow answer that keeps its connection busy, for callers that take a while of silence for a dead server.

White space may stand before JSON: it goes out while the work lasts, behind a status of 200. Work that fails
after the first of it can only say so in its body, as `{"error": "..."}`; before, it fails as any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.types import Receive, Scope, Send

from gymctl.servers.stack.unwinding import contained
from gymctl.servers.stack.wire import Json, dumps

BEAT = b" "


async def beaten(work: Awaitable[Any], seconds: float, told: Callable[[BaseException], str]) -> Json:
    """The answer of `work`, with a sign of life every so many seconds. told: what is said of a failure."""
    task = asyncio.ensure_future(contained(work))
    try:
        await asyncio.wait([task], timeout=seconds)
    except asyncio.CancelledError:
        task.cancel()
        raise
    return Json(task.result()) if task.done() else _Beaten(task, seconds, told)


class _Beaten(Json):
    def __init__(
        self, task: asyncio.Future[Any], seconds: float, told: Callable[[BaseException], str]
    ) -> None:
        super().__init__(b"")
        del self.headers["content-length"]
        self._task = task
        self._seconds = seconds
        self._told = told

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            while not self._task.done():
                await send({"type": "http.response.body", "body": BEAT, "more_body": True})
                await asyncio.wait([self._task], timeout=self._seconds)
            await send({"type": "http.response.body", "body": self._outcome()})
        finally:
            self._task.cancel()

    def _outcome(self) -> bytes:
        if self._task.cancelled():
            return dumps({"error": "Request was cancelled"})
        error = self._task.exception()
        return self.render(self._task.result()) if error is None else dumps({"error": self._told(error)})
