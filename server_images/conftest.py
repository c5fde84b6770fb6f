"""What the tests of server images share: the image's server over real HTTP, a scripted model, a client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import orjson
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gymctl.servers.inprocess import serving, serving_folder
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
            return await stack.enter_async_context(serving_folder(IMAGES / image, name, settings, neighbours))

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


class FakeModel:
    """Answers `/v1/responses` with the outputs of a script, one per call; remembers what it was asked."""

    def __init__(self, script: Callable[[dict[str, Any], int], Any]) -> None:
        self.script = script
        self.requests: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.cookies: list[dict[str, str]] = []
        self.url = ""

    async def answer(self, request: Request) -> Response:
        body = await request.json()
        self.requests.append(body)
        self.paths.append(request.url.path)
        self.cookies.append(dict(request.cookies))
        output = self.script(body, len(self.requests))
        if isinstance(output, Response):
            return output
        usage = {
            "input_tokens": 10,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": None},
            "total_tokens": 15,
        }
        response = {"id": f"resp_{len(self.requests)}", "object": "response", "usage": usage}
        answer = JSONResponse({**response, **(output if isinstance(output, dict) else {"output": output})})
        answer.set_cookie("Fake___policy_model", f"m{len(self.requests)}", path="/")
        return answer


@pytest.fixture
async def fake_model() -> AsyncIterator[Callable[..., Awaitable[FakeModel]]]:
    """`await fake_model(lambda body, call: [...])`: `call` counts from 1."""
    async with AsyncExitStack() as stack:

        async def begin(script: Callable[[dict[str, Any], int], Any]) -> FakeModel:
            model = FakeModel(script)
            app = Starlette(routes=[Route("/{path:path}", model.answer, methods=["POST"])])
            model.url = await stack.enter_async_context(serving(app))
            return model

        yield begin


def message(text: str) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }


def call(name: str, arguments: str, call_id: str = "call_1") -> dict[str, Any]:
    return {"type": "function_call", "id": "fc_1", "call_id": call_id, "name": name, "arguments": arguments}


@pytest.fixture
def items() -> Any:
    """Makers of output items: `items.message(text)`, `items.call(name, arguments)`."""

    class Items:
        message = staticmethod(message)
        call = staticmethod(call)

    return Items
