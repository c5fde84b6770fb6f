"""A model whose answers are written in the test.

    async with ScriptedModel([call("get_weather", city="Oslo"), "It snows."]) as model:
        ...
    assert model.requests[0]["input"] == "How is the weather?"

It is a model server as any other: both dialects, strict bodies, a session cookie. The script is a list, one
answer for each request in the order in which they arrive, or a function of the request for tests in which
the order is not known.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeAlias

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gymctl.contract.part import ServerPart
from gymctl.contract.responses import JsonObject
from gymctl.counts import counted
from gymctl.servers.inprocess import make_part, serving
from gymctl.servers.models.server import Handler, ModelServer
from gymctl.servers.stack.app import assemble
from gymctl.servers.stack.prefix import PREFIX_KEY
from gymctl.servers.stack.wire import json_object

USAGE: JsonObject = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": None},
    "total_tokens": 15,
}

_ANSWER: ContextVar[JsonObject] = ContextVar("answer")
_CALL_IDS = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong instead of an answer; made by `fault`."""

    status: int | None = None
    detail: str = "scripted fault"
    is_disconnected: bool = False


Item: TypeAlias = str | JsonObject
Answer: TypeAlias = Item | Sequence[Item] | Fault | Response
"""A text; an item (see `call`, `message`); several of them in one answer; an object with `output`, whose keys
replace those of the Response; a fault; or a Starlette response for whatever else a test needs."""
Script: TypeAlias = Sequence[Answer] | Callable[[JsonObject, int], Answer]
"""A function gets the body and the number of the request, which counts from 1."""


def message(text: str) -> JsonObject:
    """An output item: the model says something."""
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": None}
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }


def call(
    tool: str, arguments: str | None = None, /, *, call_id: str | None = None, **named: Any
) -> JsonObject:
    """An output item: the model calls a tool. `arguments` is sent as it is: JSON may be broken."""
    number = next(_CALL_IDS)
    return {
        "id": f"fc_{number}",
        "type": "function_call",
        "call_id": f"call_{number}" if call_id is None else call_id,
        "name": tool,
        "arguments": json.dumps(named) if arguments is None else arguments,
        "status": "completed",
    }


def fault(status: int | None = None, detail: str = "scripted fault") -> Fault:
    """An error with this status; without a status, the connection breaks in the middle of an answer."""
    return Fault(status, detail, is_disconnected=status is None)


@dataclass(frozen=True, slots=True)
class Asked:
    """One request that came."""

    path: str
    """With the rollout prefix, if the caller sent one."""
    body: JsonObject
    cookies: dict[str, str]
    session_id: str
    """Equal in two requests when the caller handed the model's cookie on."""


class ScriptedModel:
    """Answers `/v1/responses` and `/v1/chat/completions` from a script while its `async with` block lasts.

    A request beyond the end of the script is answered with an error that says so.
    """

    def __init__(self, script: Script, name: str = "policy_model") -> None:
        self.name = name
        self.asked: list[Asked] = []
        self.url = ""
        self._script = script
        self._stack = AsyncExitStack()

    @property
    def requests(self) -> list[JsonObject]:
        """The bodies of all requests so far."""
        return [asked.body for asked in self.asked]

    @property
    def paths(self) -> list[str]:
        return [asked.path for asked in self.asked]

    async def __aenter__(self) -> ScriptedModel:
        part = make_part(self.name, "responses_api_models", "scripted")
        self.url = await self._stack.enter_async_context(serving(assemble(_Player(part, self))))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    def answer(self, body: JsonObject, number: int) -> Answer:
        if callable(self._script):
            return self._script(body, number)
        if number > len(self._script):
            raise LookupError(
                f"the script has {counted(len(self._script), 'answer')}, and this is request {number}"
            )
        return self._script[number - 1]


class _Player(ModelServer):
    def __init__(self, part: ServerPart, model: ScriptedModel) -> None:
        super().__init__(part)
        self._model = model

    @property
    def label(self) -> str:
        return f"ScriptedModel___{self.part.name}"

    async def answer(self, request: Request, handler: Handler) -> Response:
        body = await json_object(request)
        path = f"{request.scope.get(PREFIX_KEY, '')}{request.url.path}"
        self._model.asked.append(Asked(path, body, dict(request.cookies), request.session["session_id"]))
        number = len(self._model.asked)
        answer = self._model.answer(body, number)
        if isinstance(answer, Response):
            return answer
        if isinstance(answer, Fault):
            if answer.status is not None:
                raise HTTPException(answer.status, answer.detail)
            return _Broken()
        _ANSWER.set(_response(answer, number))
        return await super().answer(request, handler)

    async def responses(self, params: JsonObject) -> JsonObject:
        return _ANSWER.get()


class _Broken(Response):
    """Half an answer: the connection is closed because the rest does not come."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"application/json"), (b"content-length", b"100")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b'{"id": "resp_', "more_body": True})


def _response(answer: Any, number: int) -> JsonObject:
    response: JsonObject = {
        "id": f"resp_{number}",
        "created_at": 0,
        "model": "scripted",
        "object": "response",
        "status": "completed",
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": USAGE,
    }
    if isinstance(answer, dict) and "type" not in answer:
        return {**response, **answer}
    items = [answer] if isinstance(answer, str | dict) else answer
    return {**response, "output": [message(item) if isinstance(item, str) else item for item in items]}
