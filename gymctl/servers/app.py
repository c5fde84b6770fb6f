"""A server class becomes an ASGI app: liveness, rollout prefix, session cookie, error border, routes."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gymctl.contract.part import PART_PATH, PART_VARIABLE, ServerPart
from gymctl.servers.border import ErrorBorder
from gymctl.servers.liveness import Liveness
from gymctl.servers.prefix import RolloutPrefix
from gymctl.servers.session import SessionCookie, SessionMiddleware
from gymctl.servers.wire import InvalidBody, Json

if TYPE_CHECKING:
    from gymctl.servers.base import Server

logger = logging.getLogger("gymctl.server")

Endpoint = Callable[[Request], Coroutine[Any, Any, Response]]

_LOGGED_BYTES = 4096
_LOGGED_ERRORS = 20


def part_path() -> Path:
    return Path(os.environ.get(PART_VARIABLE, PART_PATH))


class ServerApp:
    """What `app = Weather.app()` is. Making it does nothing; the part is read on the first ASGI call."""

    def __init__(self, server_class: type[Server]) -> None:
        self.server_class = server_class
        self._app: Starlette | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._app is None:
            self._app = self.build(ServerPart.model_validate_json(part_path().read_bytes()))
        await self._app(scope, receive, send)

    def build(self, part: ServerPart) -> Starlette:
        """The app for one part. Raises pydantic's ValidationError when the block does not fit the class."""
        return assemble(self.server_class(part))


def assemble(server: Server) -> Starlette:
    """Outermost first: liveness pays for nothing below it, and every answer carries the session cookie."""
    part = server.part
    layers = [
        Middleware(Liveness, project=part.project, server=part.name),
        Middleware(RolloutPrefix, rule=type(server).prefix),
    ]
    if server.has_session:
        layers.append(Middleware(SessionMiddleware, cookie=SessionCookie(server.label, part.session_secret)))
    model = part.name if part.kind == "responses_api_models" else None
    layers.append(Middleware(ErrorBorder, server=server.label, model=model))

    app = Starlette(
        middleware=layers,
        exception_handlers={InvalidBody: _answer_invalid, HTTPException: answer_refused},
        lifespan=_lifespan(server),
    )
    app.state.server = server

    async def openapi(request: Request) -> Response:
        return Json(server.openapi())

    server.get(app, "/openapi.json", openapi)
    server.routes(app)
    return app


def _lifespan(server: Server) -> Callable[[Any], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        async with server.running():
            await server.startup()
            try:
                yield
            finally:
                await server.shutdown()

    return lifespan


async def answer_refused(request: Request, error: Exception) -> Response:
    """An explicit HTTP error, an unknown path among them (CONTRACT 3.4)."""
    assert isinstance(error, HTTPException)
    return Json({"detail": error.detail}, status_code=error.status_code, headers=error.headers)


async def _answer_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, InvalidBody)
    errors = [_without_exceptions(item) for item in error.errors]
    body = await request.body()
    logger.warning(
        "422 %s %s: %s; body: %.*r",
        request.method,
        request.url.path,
        [
            {key: item[key] for key in ("type", "loc", "msg") if key in item}
            for item in errors[:_LOGGED_ERRORS]
        ],
        _LOGGED_BYTES,
        body[:_LOGGED_BYTES],
    )
    return Json({"detail": errors}, status_code=422)


def _without_exceptions(item: dict[str, Any]) -> dict[str, Any]:
    """Pydantic puts the exception of a failed validator into `ctx`; JSON takes its text."""
    context = item.get("ctx")
    if not isinstance(context, dict):
        return item
    texts = {key: str(value) if isinstance(value, Exception) else value for key, value in context.items()}
    return {**item, "ctx": texts}
