"""`GET /`, `/livez`, `/readyz`, `/healthz`, `/health`: answered before everything else, with our name."""

from __future__ import annotations

import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gymctl.contract.deferred import RESULTS_HEADER, RESULTS_PATH
from gymctl.transport import MEMORY_HEADER

LIVENESS_PATHS = frozenset({"/", "/livez", "/readyz", "/healthz", "/health"})
PROJECT_HEADER = "x-gymctl-project"
SERVER_HEADER = "x-gymctl-server"


class Liveness:
    """Readiness checks compare the two headers, so that a stranger on our port is never taken for us.

    `/livez` also says since when this process remembers idempotency keys, and that it answers later who asks
    for it; one of several workers says neither, because the next request may reach another.
    """

    def __init__(
        self, app: ASGIApp, project: str, server: str, *, remembers_since: float | None = None
    ) -> None:
        self._app = app
        self._since = remembers_since
        body = b'{"status":"ok"}'
        self._start: Message = {
            "type": "http.response.start",
            "status": 200,
            "headers": [
                (b"content-type", b"application/json"),
                (b"content-length", str(len(body)).encode()),
                (PROJECT_HEADER.encode(), project.encode("utf-8", "replace")),
                (SERVER_HEADER.encode(), server.encode("utf-8", "replace")),
            ],
        }
        self._body: Message = {"type": "http.response.body", "body": body}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] in LIVENESS_PATHS and scope["method"] in ("GET", "HEAD"):
            await send(self._remembering() if scope["path"] == "/livez" else self._start)
            await send(self._body)
            return None
        return await self._app(scope, receive, send)

    def _remembering(self) -> Message:
        if self._since is None:
            return self._start
        seconds = f"{time.monotonic() - self._since:.3f}"
        own = [
            (MEMORY_HEADER.encode(), seconds.encode()),
            (RESULTS_HEADER.encode(), RESULTS_PATH.encode()),
        ]
        return {**self._start, "headers": [*self._start["headers"], *own]}
