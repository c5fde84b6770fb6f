"""A proxy that breaks connections after the request was delivered, at a chosen moment of the answer.

async with breaking(url, "/run", moment="middle") as proxy:
    ...                  # calls to proxy.url reach `url`; the first POST to /run loses its answer
proxy.broken == 1
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Literal

Moment = Literal["working", "before", "middle"]
"""While the server still works; when nothing of its complete answer was passed on; when half of it was."""


class Proxy:
    def __init__(self, target: str, path: str, moment: Moment, times: int) -> None:
        host, _, port = target.removeprefix("http://").rpartition(":")
        self._host, self._port = host, int(port)
        self._path, self._moment, self._times = path, moment, times
        self.broken = 0
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream = await asyncio.open_connection(self._host, self._port)
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                while await self._exchange(reader, writer, *upstream):
                    pass
        finally:
            upstream[1].close()
            writer.transport.abort()

    async def _exchange(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        answers: asyncio.StreamReader,
        server: asyncio.StreamWriter,
    ) -> bool:
        request = await _message(reader)
        server.write(request)
        await server.drain()
        method, path, *_ = request.split(b" ", 2)
        is_wanted = method == b"POST" and path.decode().endswith(self._path) and self.broken < self._times
        if is_wanted:
            self.broken += 1
        if is_wanted and self._moment == "working":
            await asyncio.sleep(0.08)
            return False
        answer = await _message(answers)
        if is_wanted and self._moment == "before":
            return False
        writer.write(answer[: len(answer) // 2] if is_wanted else answer)
        await writer.drain()
        return not is_wanted


async def _message(reader: asyncio.StreamReader) -> bytes:
    """A whole HTTP message with its body, as our servers and clients write it."""
    head = await reader.readuntil(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return head + await reader.readexactly(int(line.partition(b":")[2]))
    return head


@asynccontextmanager
async def breaking(target: str, path: str, *, moment: Moment, times: int = 1) -> AsyncIterator[Proxy]:
    proxy = Proxy(target, path, moment, times)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
