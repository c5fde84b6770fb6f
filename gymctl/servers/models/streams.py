"""What a model server sends in place of a plain answer: the streams of three dialects, Anthropic's messages.

Buffer, then replay: the model's answer is complete before its first event. A caller that leaves before that
ends the work; nothing is left to be recorded after the last event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Scope

from gymctl.contract.messages import error_body
from gymctl.contract.responses import JsonObject
from gymctl.contract.retry_after import RETRY_AFTER
from gymctl.servers.models.dialects import responses_to_messages, streamed_chat, streamed_responses
from gymctl.servers.models.sse import event, failure, replayed
from gymctl.servers.stack import border
from gymctl.servers.stack.wire import InvalidBody, Json
from gymctl.transport import FAILED_CALL_HEADER

Work: TypeAlias = Coroutine[Any, Any, JsonObject]
Done: TypeAlias = asyncio.Future[JsonObject]

PING = event({"type": "ping"}, "ping")


@dataclass(frozen=True, slots=True)
class Call:
    """What a failure is told with."""

    scope: Scope
    server: str
    model: str

    def told(self, error: BaseException) -> str:
        return border.told(error, self.scope, self.server)

    def headers(self, error: BaseException) -> dict[str, str]:
        failed, asked = border.failed_call(error, self.model), border.retry_after(error)
        found = {FAILED_CALL_HEADER: failed, RETRY_AFTER: asked}
        return {name: value for name, value in found.items() if value is not None}


async def of_responses(
    call: Call, work: Work, params: JsonObject, names: dict[str, tuple[str, str]]
) -> Response:
    def events(done: Done) -> Iterable[bytes]:
        error = failure(done)
        if error is not None:
            return streamed_responses.failed(params, call.told(error))
        return streamed_responses.events(done.result(), names)

    return await replayed(work, events)


async def of_chat(call: Call, work: Work, with_usage: bool) -> Response:
    def events(done: Done) -> Iterable[bytes]:
        error = failure(done)
        if error is not None:
            return [streamed_chat.failed(call.told(error))]
        return streamed_chat.events(done.result(), with_usage=with_usage)

    return await replayed(work, events, failed=_raised)


def _raised(error: BaseException) -> Response:
    raise error


async def of_message(call: Call, work: Work, *, is_stream: bool) -> Response:
    """An Anthropic message. Whatever fails is told in the shape that Anthropic's clients read."""

    def failed(error: BaseException) -> Response:
        if isinstance(error, InvalidBody | HTTPException):
            return refused_message(error)
        return Json(error_body(500, call.told(error)), status_code=500, headers=call.headers(error))

    def events(done: Done) -> Iterable[bytes]:
        error = failure(done)
        if error is not None:
            return [event(error_body(500, call.told(error)), "error")]
        return responses_to_messages.events(done.result())

    if is_stream:
        return await replayed(work, events, failed=failed, beat=PING)
    try:
        return Json(await work)
    except Exception as error:  # noqa: BLE001 - as at the border, but in another shape
        return failed(error)


def refused_message(error: InvalidBody | HTTPException) -> Response:
    """422 or an explicit status, for Anthropic's clients and (`detail`) for ours."""
    if isinstance(error, HTTPException):
        body = error_body(error.status_code, str(error.detail))
        return Json({**body, "detail": error.detail}, status_code=error.status_code, headers=error.headers)
    first = error.errors[0]
    place = ".".join(str(step) for step in first["loc"][1:])
    message = f"{place}: {first['msg']}" if place else str(first["msg"])
    details = [
        {key: item[key] for key in ("type", "loc", "msg", "input") if key in item} for item in error.errors
    ]
    return Json({**error_body(422, message), "detail": details}, status_code=422)
