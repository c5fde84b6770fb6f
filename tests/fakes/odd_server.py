"""A server whose handlers end in every way that no built-in server offers."""

from __future__ import annotations

import asyncio

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from gymctl.contract.part import ServerPart
from gymctl.servers import Json, Server


class Odd(Server):
    """Served in a test: `assemble(Odd(make_part("odd", "resources_servers", "odd")))`."""

    def __init__(self, part: ServerPart) -> None:
        super().__init__(part)
        self.is_slow = asyncio.Event()

    def routes(self, app: Starlette) -> None:
        super().routes(app)
        self.post(app, "/raise", self.fail)
        self.post(app, "/cancelled", self.cancel_itself)
        self.post(app, "/exit", self.leave)
        self.post(app, "/slow", self.slow)
        self.post(app, "/who", self.who)

    async def fail(self, request: Request) -> Response:
        raise ValueError("no")

    async def cancel_itself(self, request: Request) -> Response:
        raise asyncio.CancelledError

    async def leave(self, request: Request) -> Response:
        raise SystemExit(3)

    async def slow(self, request: Request) -> Response:
        self.is_slow.set()
        await asyncio.sleep(30)
        return Json({})

    async def who(self, request: Request) -> Response:
        assert request.client is not None
        host = request.client.host
        return Json({"host": host, "scheme": request.url.scheme, "session": request.session["session_id"]})
