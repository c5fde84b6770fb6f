"""A server becomes an ASGI app: liveness, rollout prefix, session cookie, error border, routes.

It stands below `base`: what it needs of a server is the protocol `Servable`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, ClassVar, Protocol

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gymctl.contract.part import ServerPart
from gymctl.contract.waiting import WAITING_PATH
from gymctl.servers.stack.border import ErrorBorder
from gymctl.servers.stack.client import ServerClient
from gymctl.servers.stack.deferred import Deferred, Streams
from gymctl.servers.stack.idempotency import Answers
from gymctl.servers.stack.liveness import Liveness
from gymctl.servers.stack.openapi import document
from gymctl.servers.stack.prefix import PrefixRule, RolloutPrefix
from gymctl.servers.stack.refusals import answer_invalid, answer_refused
from gymctl.servers.stack.routing import PlainRoutes, Table, plain
from gymctl.servers.stack.session import SessionCookie, SessionMiddleware
from gymctl.servers.stack.wire import InvalidBody, Json


class Servable(Protocol):
    """What a server must know of itself to be assembled; `base.Server` is one."""

    has_session: ClassVar[bool]
    prefix: ClassVar[PrefixRule]
    part: ServerPart
    client: ServerClient
    answers: Answers
    streams: Streams
    bodies: dict[str, Any]

    @property
    def label(self) -> str: ...
    def running(self) -> AbstractAsyncContextManager[None]: ...
    async def startup(self) -> None: ...
    async def shutdown(self) -> None: ...
    def openapi(self) -> dict[str, Any]: ...
    def layers(self) -> list[Middleware]: ...
    def routes(self, app: Starlette) -> None: ...
    def routed(self, app: Starlette) -> None: ...


def assemble(server: Servable) -> Starlette:
    """Outermost first: liveness pays for nothing below it, and every answer carries the session cookie."""
    part = server.part
    since = server.answers.since if part.workers == 1 else None
    layers = [
        Middleware(Liveness, project=part.project, server=part.name, remembers_since=since),
        Middleware(Deferred, streams=server.streams if part.workers == 1 else None),
        Middleware(RolloutPrefix, rule=type(server).prefix),
    ]
    if server.has_session:
        layers.append(Middleware(SessionMiddleware, cookie=SessionCookie(server.label, part.session_secret)))
    model = part.name if part.kind == "responses_api_models" else None
    layers.append(Middleware(ErrorBorder, server=server.label, model=model))
    layers += server.layers()
    table: Table = {}
    layers.append(Middleware(PlainRoutes, table=table))

    app = Starlette(
        middleware=layers,
        exception_handlers={InvalidBody: answer_invalid, HTTPException: answer_refused},
        lifespan=_lifespan(server),
    )
    app.state.server = server

    async def openapi(request: Request) -> Response:
        return Json(server.openapi())

    async def all_routes(request: Request) -> Response:
        return Json(document(part.name, app.router.routes, server.bodies))

    app.router.routes.append(Route("/openapi.json", openapi, methods=["GET"]))
    app.router.routes.append(Route("/gymctl/openapi.json", all_routes, methods=["GET"]))
    app.router.routes.append(Route(WAITING_PATH, server.client.waits.answer, methods=["GET"]))
    server.routes(app)
    server.routed(app)
    table |= plain(app.router.routes)
    return app


def _lifespan(server: Servable) -> Callable[[Any], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        async with server.running():
            await server.startup()
            try:
                yield
            finally:
                await server.shutdown()

    return lifespan
