"""What every server is: a config, a client for its neighbours, a start, an end, and routes."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any, ClassVar, get_type_hints

from pydantic import BaseModel, ConfigDict
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from gymctl.contract.part import PART_PATH, PART_VARIABLE, ServerPart
from gymctl.servers.stack.app import assemble
from gymctl.servers.stack.client import ServerClient
from gymctl.servers.stack.deferred import Streams
from gymctl.servers.stack.idempotency import Answers
from gymctl.servers.stack.prefix import PrefixRule
from gymctl.servers.stack.ray import joined

Endpoint = Callable[[Request], Coroutine[Any, Any, Response]]


class ServerConfig(BaseModel):
    """The level-3 block of a server. Subclass it and add fields; keys that nobody declares are ignored."""

    model_config = ConfigDict(extra="ignore")

    name: str
    entrypoint: str = "app.py"
    host: str | None = None
    port: int | None = None
    num_workers: int | None = None


class Server:
    """Base of the four kinds. An author writes a subclass and ends app.py with `app = Name.app()`.

    The annotation of `config` decides which class the server's block is validated with.
    """

    config: Any
    """The server's block. A subclass annotates it with its own class: `config: WeatherConfig`."""
    needs: ClassVar[type[ServerConfig]] = ServerConfig
    """What this kind reads from its block; the class of `config` must extend it."""
    has_session: ClassVar[bool] = True
    ray_enabled: ClassVar[bool] = False
    """True: the server is connected to a Ray cluster before its first request (stack/ray.py)."""
    prefix: ClassVar[PrefixRule] = PrefixRule.NONE

    def __init__(self, part: ServerPart) -> None:
        self.part = part
        self.client = ServerClient(part)
        self.answers = Answers()
        self.streams = Streams()
        self.bodies: dict[str, Any] = {}
        """By path of a POST route: the type of its body."""
        self.config = type(self).config_class().model_validate({**part.settings, "name": part.name})

    @classmethod
    def config_class(cls) -> type[ServerConfig]:
        declared = get_type_hints(cls)["config"]
        if declared is Any:
            return cls.needs
        if not (isinstance(declared, type) and issubclass(declared, cls.needs)):
            raise TypeError(f"{cls.__name__}.config is a {declared}, which must extend {cls.needs.__name__}")
        return declared

    @classmethod
    def app(cls) -> ServerApp:
        """The ASGI app of this class; it reads its part file when it is first called or built."""
        return ServerApp(cls)

    @property
    def label(self) -> str:
        """`<Class>___<instance id>`: the name of the cookie, and of this server in error bodies."""
        return f"{type(self).__name__}___{self.part.name}"

    async def startup(self) -> None:
        """For authors: runs before the first request, with `self.client` usable."""

    async def shutdown(self) -> None:
        """For authors: runs after the last request."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """What lasts as long as the server does; base classes put what they own around this."""
        cluster = joined(self.part.ray_address, type(self).__module__) if self.ray_enabled else nullcontext()
        async with self.client.transport, cluster:
            try:
                yield
            finally:
                await self.streams.close()
                await self.answers.close()

    def layers(self) -> list[Middleware]:
        """ASGI layers of this kind, around its routes and inside the error border; none costs nothing."""
        return []

    def routes(self, app: Starlette) -> None:
        """Add the routes. Subclasses call `super().routes(app)` and then add their own."""

    def routed(self, app: Starlette) -> None:
        """For base classes: all routes are there, those of the author too."""

    def post(
        self,
        app: Starlette,
        path: str,
        endpoint: Endpoint,
        *,
        takes: Any = dict[str, Any],
        is_once_per_key: bool = False,
    ) -> None:
        """A plain route: request in, response out.

        takes: the type of the body, for `/gymctl/openapi.json`; the endpoint checks it by itself.
        is_once_per_key: a repeat with the same `Idempotency-Key` gets the first answer, and `DELETE` with the
        key takes the request back.
        """
        self.bodies[path] = takes
        if is_once_per_key:
            route = Route(path, self.answers.wrap(endpoint), methods=["POST", "DELETE"])
        else:
            route = Route(path, endpoint, methods=["POST"])
        app.router.routes.append(route)

    def get(self, app: Starlette, path: str, endpoint: Endpoint) -> None:
        app.router.routes.append(Route(path, endpoint, methods=["GET"]))

    def openapi(self) -> dict[str, Any]:
        """What `GET /openapi.json` answers: only what a client may offer to a model."""
        return {"openapi": "3.1.0", "info": {"title": self.part.name, "version": "1"}, "paths": {}}


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
