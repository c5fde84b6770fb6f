"""What the tests of server images share: the image's server over real HTTP, a scripted model, a client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import orjson
import pytest

from gymctl import testing
from gymctl.testing import ScriptedModel, message, serving
from gymctl.testing.scripted import Script
from gymctl.transport import Answer, Transport

IMAGES = Path(__file__).parent
Start = Callable[..., Awaitable[str]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """`await start("resources_servers/counter", "counter", settings, neighbours)` is a server's URL."""
    async with AsyncExitStack() as stack:

        async def begin(
            image: str,
            name: str,
            settings: Mapping[str, Any] | None = None,
            neighbours: Mapping[str, str] | None = None,
        ) -> str:
            made = serving(IMAGES / image, settings, name=name, servers=neighbours)
            return (await stack.enter_async_context(made)).url

        yield begin


@pytest.fixture
async def transport() -> AsyncIterator[Transport]:
    async with Transport() as made:
        yield made


class Client:
    """POST JSON, keep no cookies unless told so."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def post(
        self, url: str, body: Any, *, cookies: Mapping[str, str] | None = None, **more: Any
    ) -> Answer:
        return await self._transport.call("POST", url, orjson.dumps(body), cookies=cookies, **more)


@pytest.fixture
def client(transport: Transport) -> Client:
    return Client(transport)


@pytest.fixture
async def fake_model() -> AsyncIterator[Callable[[Script], Awaitable[ScriptedModel]]]:
    """`await fake_model(lambda body, call: [...])`, or a list of answers: see `gymctl.testing.scripted`."""
    async with AsyncExitStack() as stack:

        async def begin(script: Script) -> ScriptedModel:
            return await stack.enter_async_context(ScriptedModel(script))

        yield begin


def call(name: str, arguments: str, call_id: str = "call_1") -> dict[str, Any]:
    return testing.call(name, arguments, call_id=call_id)


@pytest.fixture
def items() -> Any:
    """Makers of output items: `items.message(text)`, `items.call(name, arguments)`."""

    class Items:
        message = staticmethod(message)
        call = staticmethod(call)

    return Items
