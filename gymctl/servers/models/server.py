"""Base of model servers: strict bodies in, one dialect implemented, the other by translation (CONTRACT 4).

class Mine(ModelServer):
    config: MineConfig

    async def responses(self, params):       # or chat(); each has a default that translates to the other
        return {...}                         # or the bytes of a JSON answer, forwarded as they are

app = Mine.app()
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response

from gymctl.contract.messages import MessagesParams
from gymctl.contract.part import EndpointState
from gymctl.contract.responses import ChatParams, JsonObject, ResponsesCreateParams, drop_nulls
from gymctl.servers.models import streams
from gymctl.servers.models.capture import CallCapture, watched
from gymctl.servers.models.dialects import (
    chat_over_responses,
    chat_to_responses,
    messages_to_responses,
    responses_to_chat,
    responses_to_messages,
    streamed_chat,
    streamed_responses,
)
from gymctl.servers.models.dialects.errors import ConversionError
from gymctl.servers.models.endpoints import Probe, endpoints
from gymctl.servers.models.token_records import TokenRecorder
from gymctl.servers.models.upstream_config import UpstreamConfig
from gymctl.servers.stack.base import Server
from gymctl.servers.stack.prefix import PrefixRule
from gymctl.servers.stack.wire import InvalidBody, Json, json_object, loads, validated

__all__ = ["ConversionError", "Handler", "ModelServer", "parsed"]

logger = logging.getLogger("gymctl.server")

Answered: TypeAlias = JsonObject | bytes | Response
Handler: TypeAlias = Callable[[JsonObject], Awaitable[Answered]]


class ModelServer(Server):
    """`POST /v1/responses`, `/v1/chat/completions` and `/v1/messages` (Anthropic's), plain or as streams;
    `GET /gymctl/upstream` says whether upstreams answer.

    Parameters reach `responses` and `chat` checked, without nulls and without `stream`: an answer is complete
    before its stream begins.
    """

    prefix: ClassVar[PrefixRule] = PrefixRule.ANY_PATH_AND_CAPTURE
    reasoning: ClassVar[chat_to_responses.ReasoningRule] = "parse"
    """What becomes of reasoning when a chat answer is translated to a Response."""
    keeps_token_ids: ClassVar[bool] = False
    """Whether replayed items carry their token ids into translated chat messages."""

    async def responses(self, params: JsonObject) -> JsonObject | bytes:
        """Answer a Responses request; by default through `chat`."""
        chat = responses_to_chat.chat_request(params, keep_token_ids=self.keeps_token_ids)
        return chat_to_responses.response(parsed(await self.chat(chat)), params, reasoning=self.reasoning)

    async def chat(self, params: JsonObject) -> JsonObject | bytes:
        """Answer a chat request; by default through `responses`."""
        answer = await self.responses(chat_over_responses.responses_params(params))
        return chat_over_responses.completion(parsed(answer))

    async def upstream_states(self) -> list[EndpointState]:
        """What `GET /gymctl/upstream` answers; while one is `waiting`, the project is not ready."""
        return await self._probe.states()

    def layers(self) -> list[Middleware]:
        """Calls are recorded by a layer of their own, which is only there when they are."""
        kept = self.part.capture
        if kept.calls is None and kept.tokens is None:
            return []
        calls = None if kept.calls is None else Path(kept.calls)
        tokens = None if kept.tokens is None else TokenRecorder(Path(kept.tokens))
        return [Middleware(CallCapture, model=self.part.name, folder=calls, tokens=tokens)]

    def routes(self, app: Starlette) -> None:
        super().routes(app)
        if type(self).responses is ModelServer.responses and type(self).chat is ModelServer.chat:
            raise TypeError(f"{type(self).__name__} implements neither `responses` nor `chat`")
        self.post(app, "/v1/responses", self._post_responses, takes=ResponsesCreateParams)
        self.post(app, "/v1/chat/completions", self._post_chat, takes=ChatParams)
        self.post(app, "/v1/messages", self._post_messages, takes=MessagesParams)
        proxy = self.config.upstream_proxy if isinstance(self.config, UpstreamConfig) else None
        self._probe = Probe(self.client.transport, endpoints(self.part.settings), proxy)
        self.get(app, "/gymctl/upstream", self._get_upstream)

    async def answer(self, request: Request, handler: Handler) -> Response:
        """Every model call passes here; `handler` checks the body and produces the answer."""
        answer = await handler(await json_object(request))
        return answer if isinstance(answer, Response) else Json(answer)

    async def _post_responses(self, request: Request) -> Response:
        return await self.answer(request, partial(self._checked_responses, request))

    async def _post_chat(self, request: Request) -> Response:
        return await self.answer(request, partial(self._checked_chat, request))

    async def _post_messages(self, request: Request) -> Response:
        try:
            return await self.answer(request, partial(self._checked_messages, request))
        except (InvalidBody, HTTPException) as error:
            return streams.refused_message(error)

    async def _checked_responses(self, request: Request, body: JsonObject) -> Answered:
        if not body.get("stream"):
            return await self.responses(_accepted(ResponsesCreateParams, body))
        asked = streamed_responses.sanitised(body)
        params = _accepted(ResponsesCreateParams, asked.params)
        if asked.dropped:
            logger.info("left out of a streaming request: %s", ", ".join(asked.dropped))
        return await streams.of_responses(
            self._call(request), watched(self._response(params)), params, asked.names
        )

    async def _checked_chat(self, request: Request, body: JsonObject) -> Answered:
        if body.get("stream") is not True:
            return await self.chat(_accepted(ChatParams, body))
        params = _accepted(ChatParams, streamed_chat.sanitised(body))
        with_usage = streamed_chat.wants_usage(body)
        return await streams.of_chat(self._call(request), watched(self._completion(params)), with_usage)

    async def _checked_messages(self, request: Request, body: JsonObject) -> Answered:
        asked = validated(MessagesParams, body)
        for key in messages_to_responses.WITHOUT_COUNTERPART:
            if getattr(asked, key):
                logger.warning("left out of a request to /v1/messages: `%s`", key)
        params = _accepted(ResponsesCreateParams, messages_to_responses.responses_params(asked))
        work = watched(self._message(params))
        return await streams.of_message(self._call(request), work, is_stream=bool(asked.stream))

    def _call(self, request: Request) -> streams.Call:
        return streams.Call(request.scope, self.label, self.part.name)

    async def _response(self, params: JsonObject) -> JsonObject:
        return parsed(await self.responses(params))

    async def _completion(self, params: JsonObject) -> JsonObject:
        return parsed(await self.chat(params))

    async def _message(self, params: JsonObject) -> JsonObject:
        return responses_to_messages.message(await self._response(params))

    async def _get_upstream(self, request: Request) -> Response:
        return Json([state.model_dump() for state in await self.upstream_states()])


def _accepted(model: type[ResponsesCreateParams] | type[ChatParams], body: JsonObject) -> JsonObject:
    """The body without nulls, or 422 for what the model does not take (an unknown key even if it is null)."""
    params = drop_nulls(body)
    unknown = {key: None for key, value in body.items() if value is None and key not in model.model_fields}
    validated(model, params | unknown if unknown else params)
    if "stream" in params:  # what goes on from here is plain
        params = {key: value for key, value in params.items() if key != "stream"}
    return params


def parsed(answer: JsonObject | bytes) -> JsonObject:
    """An answer as an object. Raises ConversionError when bytes hold anything else."""
    if not isinstance(answer, bytes):
        return answer
    try:
        value: Any = loads(answer)
    except ValueError as error:
        raise ConversionError(f"the upstream answered with no JSON: {answer[:500]!r}") from error
    if not isinstance(value, dict):
        raise ConversionError(f"the upstream answered with no JSON object: {answer[:500]!r}")
    return value
