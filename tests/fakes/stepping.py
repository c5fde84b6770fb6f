"""The two servers that an agent of step-style environments meets, played from a script.

stage = Stage([{"observation": "go", "info": {}}, {"reward": 1.0, "terminated": True}], answers=["left"])
async with stage.playing(agent_folder, max_steps=3) as agent_url: ...
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gymctl.servers.inprocess import serving, serving_folder

AGENTS = Path(__file__).resolve().parents[2] / "server_images" / "responses_api_agents"


@dataclass(frozen=True)
class Asked:
    path: str
    body: dict[str, Any]
    cookies: dict[str, str]


def said(text: str) -> list[dict[str, Any]]:
    """The output of a model that only says something."""
    part = {"type": "output_text", "text": text, "annotations": []}
    return [{"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}]


class Stage:
    """The environment's first answer is for `/reset`, the others for one `/step` each; the last is repeated.

    An answer that is a number is an HTTP status, without a body if it is a success; None breaks the
    connection. `answers` are what the model says: texts, or lists of output items; the last is repeated as
    well.
    """

    def __init__(
        self,
        environment: Sequence[dict[str, Any] | int | None],
        answers: Sequence[str | list[dict[str, Any]] | int] = ("go on",),
        close: dict[str, Any] | int = 200,
    ) -> None:
        self._environment = list(environment)
        self._answers = [said(answer) if isinstance(answer, str) else answer for answer in answers]
        self._close = close
        self.asked: list[Asked] = []
        """Of the environment."""
        self.model_asked: list[Asked] = []
        self.waiting = asyncio.Event()
        """Set when the environment was asked to step and does not answer (status 0)."""
        self.closed = asyncio.Event()

    def of(self, path: str) -> list[Asked]:
        return [asked for asked in self.asked if asked.path == path]

    async def environment(self, request: Request) -> Response:
        self.asked.append(await _asked(request))
        cookie = f"e{len(self.asked)}"
        if request.url.path == "/close":
            self.closed.set()
            return _answer(self._close, "Env___env", cookie)
        if request.url.path == "/aggregate_metrics":
            return JSONResponse({"agent_metrics": {"asked": self.asked[-1].body}})
        due = self._environment.pop(0) if len(self._environment) > 1 else self._environment[0]
        if due == 0:
            self.waiting.set()
            await asyncio.sleep(60)
        return _answer(due, "Env___env", cookie)

    async def model(self, request: Request) -> Response:
        self.model_asked.append(await _asked(request))
        due = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(due, int):
            return JSONResponse({"error": "no"}, status_code=due)
        usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
        number = len(self.model_asked)
        body = {"id": f"resp_{number}", "object": "response", "output": due, "usage": usage}
        return _answer(body, "Model___policy_model", f"m{number}")

    @asynccontextmanager
    async def playing(self, agent: str = "gymnasium_agent", **settings: Any) -> AsyncIterator[str]:
        """The URL of an agent between the two servers."""
        block = {
            "model_server": {"type": "responses_api_models", "name": "policy_model"},
            "resources_server": {"type": "resources_servers", "name": "env"},
            **settings,
        }
        async with AsyncExitStack() as stack:
            urls = {
                name: await stack.enter_async_context(
                    serving(Starlette(routes=[Route("/{path:path}", endpoint, methods=["POST"])]))
                )
                for name, endpoint in (("env", self.environment), ("policy_model", self.model))
            }
            yield await stack.enter_async_context(serving_folder(AGENTS / agent, "desk_agent", block, urls))


async def _asked(request: Request) -> Asked:
    return Asked(request.url.path, await request.json(), dict(request.cookies))


def _answer(due: dict[str, Any] | int | None, cookie: str, value: str) -> Response:
    if due is None:
        return _Broken()
    answer = (
        (JSONResponse({"detail": "scripted"}, status_code=due) if due >= 400 else Response(status_code=due))
        if isinstance(due, int)
        else JSONResponse(due)
    )
    answer.set_cookie(cookie, value, path="/")
    return answer


class _Broken(Response):
    """The connection is closed in the middle of the answer."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"application/json"), (b"content-length", b"100")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"{", "more_body": True})
