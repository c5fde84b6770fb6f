"""A model endpoint that does what a test tells it, and remembers what it was asked.

async with OpenAIUpstream() as upstream:
    upstream.plan(Reply(503), Reply(200))      # the next POSTs; afterwards every POST gets a good answer
    upstream.missing.add("/v1/responses")      # a route that is answered with 404
    upstream.pages["/health"] = Reply(200, {}) # what a GET gets; others get an empty list
    ...
    assert upstream.posts("/v1/responses") == 2
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass(frozen=True)
class Reply:
    """One answer. Without a body it is the default answer of the route (200) or an error object."""

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0.0
    is_dropped: bool = False
    """Close the connection instead of answering."""
    gate: asyncio.Event | None = None
    """Not answered before it is set."""


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    at: float
    query: Mapping[str, str] = field(default_factory=dict)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class OpenAIUpstream:
    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self._host = host
        self._port = port
        self.reset()

    def reset(self) -> None:
        """Forget what was planned and what was asked. What is still at work counts no more."""
        self.in_flight = 0
        self.peak = 0
        self.asked: list[Asked] = []
        self.missing: set[str] = set()
        self.pages: dict[str, Reply] = {}
        self._planned: deque[Reply] = deque()
        self.always: Reply | None = None
        """Given to every POST once the plan is used up."""

    def plan(self, *replies: Reply) -> None:
        self._planned.extend(replies)

    def posts(self, path: str | None = None) -> int:
        return sum(a.method == "POST" and path in (None, a.path) for a in self.asked)

    async def __aenter__(self) -> OpenAIUpstream:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        self._site = web.TCPSite(self._runner, self._host, self._port)
        await self._site.start()
        server = self._site._server
        assert isinstance(server, asyncio.Server)
        self.origin = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self.url = f"{self.origin}/v1"
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        asked = self.asked
        asked.append(
            Asked(
                request.method,
                request.path,
                {k.lower(): v for k, v in request.headers.items()},
                body,
                time.monotonic(),
                dict(request.query),
            )
        )
        if request.path in self.missing:
            return web.json_response({"error": {"message": "no such route"}}, status=404)
        if request.method == "GET" and request.path in self.pages:
            page = self.pages[request.path]
            await asyncio.sleep(page.delay)
            return web.json_response(page.body, status=page.status)
        if request.method != "POST":
            return web.json_response(
                {"object": "list", "data": []}, status=self.always.status if self.always else 200
            )
        reply = self._planned.popleft() if self._planned else self.always or Reply()
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        try:
            await asyncio.sleep(reply.delay)
            if reply.gate is not None:
                await reply.gate.wait()
        finally:
            self.in_flight -= asked is self.asked  # else it is of a time before `reset`
        if reply.is_dropped and request.transport is not None:
            request.transport.abort()
        content = reply.body
        if content is None:
            content = _answer(request.path) if reply.status == 200 else {"error": {"message": "no"}}
        if not isinstance(content, bytes):
            content = json.dumps(content, separators=(",", ":")).encode()
        return web.Response(
            body=content, status=reply.status, headers=reply.headers, content_type="application/json"
        )


def _answer(path: str) -> dict[str, Any]:
    if path.endswith("/chat/completions"):
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1790000001,
            "model": "tiny-1",
            "choices": [
                {"index": 0, "message": {"role": "assistant", "content": "Hi."}, "finish_reason": "stop"}
            ],
            "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12},
        }
    return {
        "id": "resp_77",
        "created_at": 1790000001.0,
        "model": "tiny-1",
        "object": "response",
        "output": [
            {
                "id": "msg_1",
                "content": [{"annotations": [], "text": "Hi.", "type": "output_text"}],
                "role": "assistant",
                "status": "completed",
                "type": "message",
            }
        ],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "status": "completed",
        "usage": {
            "input_tokens": 9,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 3,
            "output_tokens_details": {"reasoning_tokens": None},
            "total_tokens": 12,
        },
        "vendor_field": {"kept": True},
    }


def block(upstream: Any, **settings: Any) -> dict[str, Any]:
    """Of an `openai_model` in front of it, which asks once only."""
    return {
        "openai_base_url": upstream.url,
        "openai_api_key": "sk-secret-of-the-test",
        "openai_model": "tiny-1",
        "max_http_attempts": 1,
        **settings,
    }
