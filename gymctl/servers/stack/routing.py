"""Which endpoint answers: a look-up for plain paths, Starlette's router for everything else.

Starlette tries one route after the other and puts two layers for exceptions around each request. Leaving them
out saves a tenth of a small request to a resources server.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeAlias

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from gymctl.servers.stack.refusals import answer_invalid, answer_refused
from gymctl.servers.stack.wire import InvalidBody

Table: TypeAlias = dict[tuple[str, str], Callable[[Request], Coroutine[Any, Any, Response]]]


def plain(routes: Iterable[BaseRoute]) -> Table:
    """Endpoints by method and path, of the routes whose path has no parameter; the first of a path counts.

    Only coroutine functions of plain routes: Starlette runs others in a thread, an object is an ASGI app for
    it, and a route of another class (FastAPI's) calls its endpoint in a way of its own.
    """
    table: Table = {}
    taken: set[tuple[str, str]] = set()
    for route in routes:
        if not isinstance(route, Route) or "{" in route.path:
            continue
        is_plain = type(route) is Route and inspect.iscoroutinefunction(route.endpoint)
        for place in {(method, route.path) for method in route.methods or ()} - taken:
            taken.add(place)
            if is_plain:
                table[place] = route.endpoint
    return table


class PlainRoutes:
    """Answers what its table has, and passes the rest on."""

    def __init__(self, app: ASGIApp, table: Table) -> None:
        self._app = app
        self._table = table

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        endpoint = self._table.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if endpoint is None:
            return await self._app(scope, receive, send)
        request = Request(scope, receive, send)
        try:
            response = await endpoint(request)
        except InvalidBody as error:
            response = await answer_invalid(request, error)
        except HTTPException as error:
            response = await answer_refused(request, error)
        return await response(scope, receive, send)
