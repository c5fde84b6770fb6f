"""A step-style server inside a test, and a client of one session with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import orjson

from gymctl.servers import GymnasiumServer
from gymctl.servers.inprocess import make_part, serving
from gymctl.servers.stack.app import assemble
from gymctl.transport import Answer


class Talker:
    """A client of one session: `reset`, `step` with a text, `close`."""

    def __init__(self, transport: Any, url: str, row: Mapping[str, Any]) -> None:
        self._transport, self._url, self._row = transport, url, row
        self.jar: dict[str, str] = {}

    async def post(self, path: str, body: Mapping[str, Any], **more: Any) -> Answer:
        answer = await self._transport.call(
            "POST", self._url + path, orjson.dumps(body), cookies=self.jar, **more
        )
        self.jar.update(answer.cookies)
        return answer

    async def reset(self) -> Answer:
        return await self.post("/reset", self._row)

    async def step(self, text: str, **more: Any) -> Answer:
        part = {"type": "output_text", "text": text}
        return await self.output([{"type": "message", "role": "assistant", "content": [part]}], **more)

    async def output(self, items: list[Any], **more: Any) -> Answer:
        body = {**self._row, "response": {"output": items}, **more.pop("fields", {})}
        return await self.post("/step", body, **more)


@asynccontextmanager
async def served(server: type[GymnasiumServer], **settings: Any) -> AsyncIterator[tuple[str, Any]]:
    made = server(make_part("env", "resources_servers", "env", {"domain": "games", **settings}))
    async with serving(assemble(made)) as url:
        yield url, made
