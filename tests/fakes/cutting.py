"""A proxy that passes bytes on and cuts connections when it is told to.

async with cutting(url) as proxy:
    ...                              # calls to proxy.url reach `url`
    proxy.cut(b"GET /some/path")     # those whose last request began so are aborted
    proxy.is_open = False            # and new ones are, too
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class Cutting:
    def __init__(self, target: str) -> None:
        host, _, port = target.removeprefix("http://").rpartition(":")
        self._host, self._port = host, int(port)
        self._connections: dict[asyncio.StreamWriter, bytes] = {}
        self.url = ""
        self.is_open = True

    def count(self, start: bytes = b"") -> int:
        """How many connections there are whose last request began so."""
        return sum(last.startswith(start) for last in self._connections.values())

    def cut(self, start: bytes = b"") -> int:
        found = [writer for writer, last in self._connections.items() if last.startswith(start)]
        for writer in found:
            writer.transport.abort()
        return len(found)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.is_open:
            writer.transport.abort()
            return
        upstream_reader, upstream = await asyncio.open_connection(self._host, self._port)
        try:
            back = asyncio.create_task(_pass_on(upstream_reader, writer))
            with suppress(ConnectionError):
                while piece := await reader.read(65536):
                    self._connections[writer] = piece[:100]
                    upstream.write(piece)
                    await upstream.drain()
            back.cancel()
        finally:
            self._connections.pop(writer, None)
            upstream.transport.abort()
            writer.transport.abort()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()
    writer.transport.abort()


@asynccontextmanager
async def cutting(target: str) -> AsyncIterator[Cutting]:
    proxy = Cutting(target)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        proxy.cut()
