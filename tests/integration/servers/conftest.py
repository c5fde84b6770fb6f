"""Servers over real HTTP on free ports of 127.0.0.1."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from fakes.ports import held_port

from gymctl.transport import Transport


@pytest.fixture
async def transport() -> AsyncIterator[Transport]:
    async with Transport() as made:
        yield made


@pytest.fixture
def free_port() -> Iterator[int]:
    """Nobody listens there, and nobody else will."""
    with held_port() as port:
        yield port
