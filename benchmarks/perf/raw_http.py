"""The cheap ends of a measurement: an echo app, a stub that plays every other server, a load generator.

Raw asyncio protocols with hand-built bytes, so that what is measured never waits. Run as a script it is the
echo: `python raw_http.py PORT` serves a bare ASGI app with uvicorn, the least that any server can cost.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import uvicorn

COUNTER = itertools.count()
KEY_MARK = b"@@KEY@@"


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """The body comes back as it is."""
    parts: list[bytes] = []
    has_more = True
    while has_more:
        message = await receive()
        parts.append(message.get("body", b""))
        has_more = message.get("more_body", False)
    body = b"".join(parts)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@dataclass(frozen=True)
class Message:
    """An HTTP/1.1 message: its head without the empty line, and its body."""

    head: bytes
    body: bytes

    @property
    def path(self) -> str:
        return self.head.split(b" ", 2)[1].decode()

    @property
    def cookie(self) -> bytes:
        """Name and value of the first Set-Cookie."""
        _, _, rest = self.head.partition(b"\r\nset-cookie: ")
        return rest.partition(b";")[0]


class Framed(asyncio.Protocol):
    """Cuts what arrives into messages; all of them say their content-length."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._wanted = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= self._wanted:
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self._received[:end])
            total = end + 4 + content_length(head)
            if len(self._received) < total:
                self._wanted = total
                return
            body = bytes(self._received[end + 4 : total])
            del self._received[:total]
            self._wanted = 0
            self.message(Message(head, body))

    def message(self, message: Message) -> None:
        raise NotImplementedError


def content_length(head: bytes) -> int:
    _, _, rest = head.lower().partition(b"\r\ncontent-length:")
    return int(rest.partition(b"\r\n")[0] or 0)


class Stub(Framed):
    """Plays the neighbours of the server that is measured: `answer` makes a body of path and body."""

    def __init__(self, answer: Callable[[str, bytes], bytes]) -> None:
        super().__init__()
        self._answer = answer

    def message(self, message: Message) -> None:
        body = self._answer(message.path, message.body)
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
        cookie = b"set-cookie: Stub___stub=e30.aWDzTQ.c2lnbmF0dXJl; path=/; httponly\r\n"
        self.transport.writelines((head, cookie, b"content-length: %d\r\n\r\n" % len(body), body))


@dataclass
class Load:
    """Sends one request again and again over a few connections, each waiting for its answer."""

    port: int
    head: bytes
    """Request line and headers; `KEY_MARK` in it becomes another key for each request."""
    body: bytes
    first: Message | None = field(default=None, init=False)
    """The first answer of the last `run`."""

    async def run(self, requests: int, connections: int) -> None:
        """Raises when an answer is not 200."""
        loop = asyncio.get_running_loop()
        self._left, self._open = requests, requests
        self._done: asyncio.Future[None] = loop.create_future()
        self.first = None
        self._head = self.head.rstrip() + b"\r\nhost: perf\r\ncontent-length: %d\r\n\r\n" % len(self.body)
        made = [
            await loop.create_connection(lambda: _Client(self), "127.0.0.1", self.port)
            for _ in range(min(connections, requests))
        ]
        try:
            for _, client in made:
                client.ask()
            await self._done
        finally:
            for transport, _ in made:
                transport.close()

    def next(self) -> tuple[bytes, bytes] | None:
        if not self._left:
            return None
        self._left -= 1
        return self._head.replace(KEY_MARK, b"perf-%d" % next(COUNTER)), self.body

    def answered(self, message: Message) -> None:
        self.first = self.first or message
        self._open -= 1
        if self._done.done():
            return
        if not message.head.startswith(b"HTTP/1.1 200"):
            self.failed(f"answered {message.head.splitlines()[0]!r}: {message.body[:300]!r}")
        elif not self._open:
            self._done.set_result(None)

    def failed(self, reason: str) -> None:
        if not self._done.done():
            self._done.set_exception(RuntimeError(f"{self.head.splitlines()[0].decode()}: {reason}"))


class _Client(Framed):
    def __init__(self, load: Load) -> None:
        super().__init__()
        self._load = load

    def ask(self) -> None:
        request = self._load.next()
        if request is not None:
            self.transport.writelines(request)

    def message(self, message: Message) -> None:
        self._load.answered(message)
        self.ask()

    def connection_lost(self, exc: Exception | None) -> None:
        self._load.failed(f"the connection broke: {exc}")


if __name__ == "__main__":
    uvicorn.run(
        echo,
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        date_header=False,
        server_header=False,
        timeout_keep_alive=30,
    )
