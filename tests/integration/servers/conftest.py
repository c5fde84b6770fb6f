"""Servers over real HTTP on free ports of 127.0.0.1."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator

import pytest

from gymctl.transport import Transport


@pytest.fixture
async def transport() -> AsyncIterator[Transport]:
    async with Transport() as made:
        yield made


@pytest.fixture
def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]
