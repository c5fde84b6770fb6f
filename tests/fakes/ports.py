"""Ports of this machine that nobody else gets while a test has them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held_port(host: str = "127.0.0.1") -> Iterator[int]:
    """A port at which connections are refused until a server of the test's own listens there.

    It is bound all the while, so the kernel gives it to nobody who asks for any port. Who names it may bind
    it too, if with SO_REUSEADDR, as our servers and asyncio's do.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind((host, 0))
        yield holder.getsockname()[1]
