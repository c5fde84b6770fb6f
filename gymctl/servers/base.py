"""What every server is: a config, a client for its neighbours, a start, an end, and routes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar, get_type_hints

from pydantic import BaseModel, ConfigDict
from starlette.applications import Starlette
from starlette.routing import Route

from gymctl.contract.part import ServerPart
from gymctl.servers.app import Endpoint, ServerApp
from gymctl.servers.client import ServerClient
from gymctl.servers.idempotency import Answers
from gymctl.servers.prefix import PrefixRule


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
    prefix: ClassVar[PrefixRule] = PrefixRule.NONE

    def __init__(self, part: ServerPart) -> None:
        self.part = part
        self.client = ServerClient(part)
        self.answers = Answers()
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
        async with self.client.transport:
            try:
                yield
            finally:
                await self.answers.close()

    def routes(self, app: Starlette) -> None:
        """Add the routes. Subclasses call `super().routes(app)` and then add their own."""

    def post(self, app: Starlette, path: str, endpoint: Endpoint, *, is_once_per_key: bool = False) -> None:
        """A plain route: request in, response out.

        is_once_per_key: a repeat with the same `Idempotency-Key` gets the first answer.
        """
        handler = self.answers.wrap(endpoint) if is_once_per_key else endpoint
        app.router.routes.append(Route(path, handler, methods=["POST"]))

    def get(self, app: Starlette, path: str, endpoint: Endpoint) -> None:
        app.router.routes.append(Route(path, endpoint, methods=["GET"]))

    def openapi(self) -> dict[str, Any]:
        """What `GET /openapi.json` answers: only what a client may offer to a model."""
        return {"openapi": "3.1.0", "info": {"title": self.part.name, "version": "1"}, "paths": {}}
