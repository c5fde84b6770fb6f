"""Serve an app on a free port inside this process, over real HTTP: for tests and notebooks."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp

from gymctl.contract.part import HttpSettings, ServerPart
from gymctl.contract.servers import Address, ServerKind
from gymctl.errors import ServerError, UsageError
from gymctl.servers.load import load
from gymctl.servers.stack import serve

HOST = "127.0.0.1"
LOOKS, LOOK_SECONDS = 20, 0.002


@asynccontextmanager
async def serving(app: ASGIApp, http: HttpSettings | None = None) -> AsyncIterator[str]:
    """The app's URL, for as long as the block lasts. Raises what the start of a Starlette app raises."""
    if not isinstance(app, Starlette):
        async with _listening(app, "on", http) as url:
            yield url
        return
    # The lifespan is ours: uvicorn ends the whole process when it fails.
    async with app.router.lifespan_context(app), _listening(app, "off", http) as url:
        yield url


@asynccontextmanager
async def _listening(
    app: ASGIApp, lifespan: Literal["on", "off"], http: HttpSettings | None
) -> AsyncIterator[str]:
    sock = serve.listening(HOST, 0)
    server = _QuickServer(serve.settings(app, http, lifespan=lifespan))
    task = asyncio.create_task(server.serve(sockets=[sock]))
    try:
        while not server.started:
            if task.done():
                raise ServerError("the app did not start", details=[str(task.exception() or "")])
            await asyncio.sleep(0.005)
        yield f"http://{HOST}:{sock.getsockname()[1]}"
    finally:
        server.stop()
        await asyncio.wait([task])
        sock.close()


class _QuickServer(serve.QuietServer):
    """Ends when it is told to and all is answered. uvicorn looks ten times a second for the first and lets a
    tenth pass for the other; hundreds of tests stop their servers."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._is_told = asyncio.Event()

    def stop(self) -> None:
        self.should_exit = True
        self._is_told.set()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self._is_told.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        if not await self._is_idle():
            await super().shutdown(sockets)
            return
        for server in self.servers:
            await server.wait_closed()
        await self.lifespan.shutdown()

    async def _is_idle(self) -> bool:
        """Whether nothing is open any more, which takes idle connections a moment."""
        for _ in range(LOOKS):
            if not self.server_state.connections and not self.server_state.tasks:
                return True
            await asyncio.sleep(LOOK_SECONDS)
        return False


@asynccontextmanager
async def serving_folder(
    folder: Path,
    name: str,
    settings: Mapping[str, Any] | None = None,
    neighbours: Mapping[str, str] | None = None,
    *,
    told: Mapping[str, Any] | None = None,
) -> AsyncIterator[str]:
    """The server of a folder `<kind>/<implementation>`. `neighbours`: URLs it may call, by server id.
    `told`: further fields of its part, such as `workers`; it is one process."""
    kind: Any = folder.parent.name
    part = make_part(name, kind, folder.name, settings, neighbours).model_copy(update=told)
    async with serving(load(part, folder)) as url:
        yield url


def make_part(
    name: str,
    kind: ServerKind,
    implementation: str,
    settings: Mapping[str, Any] | None = None,
    neighbours: Mapping[str, str] | None = None,
) -> ServerPart:
    """A part as the host would write it, with project `test`."""
    return ServerPart(
        project="test",
        name=name,
        kind=kind,
        implementation=implementation,
        bind_host=HOST,
        settings={"entrypoint": "app.py", **(settings or {})},
        servers={other: _address(url) for other, url in (neighbours or {}).items()},
        session_secret="a secret for tests",
    )


def _address(url: str) -> Address:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not url.startswith("http://") or host is None or port is None:
        raise UsageError(f"a neighbour's URL must be `http://host:port`, got {url!r}")
    # The kind of a neighbour does not matter to who calls it.
    return Address(kind="resources_servers", implementation="any", host=host, port=port)
