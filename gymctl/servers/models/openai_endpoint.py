"""Base of model servers in front of an endpoint that speaks Responses, chat completions, or both."""

from __future__ import annotations

import logging
from typing import Literal

from pydantic import Field, SecretStr

from gymctl.contract.part import ServerPart
from gymctl.contract.responses import JsonObject
from gymctl.servers.models import forwarded
from gymctl.servers.models.dialects import chat_over_responses, chat_to_responses, responses_to_chat
from gymctl.servers.models.server import ModelServer, parsed
from gymctl.servers.models.upstream import Upstream
from gymctl.servers.models.upstream_config import UpstreamConfig
from gymctl.servers.stack.wire import dumps

logger = logging.getLogger("gymctl.server")

Dialect = Literal["responses", "chat"]

PATHS: dict[Dialect, str] = {"responses": "/responses", "chat": "/chat/completions"}
OTHER: dict[Dialect, Dialect] = {"responses": "chat", "chat": "responses"}
NO_SUCH_ROUTE = (404, 405, 501)


class OpenAIEndpointConfig(UpstreamConfig):
    openai_base_url: str
    openai_api_key: SecretStr
    openai_model: str
    openai_default_headers: dict[str, str] = Field(default_factory=dict)
    max_concurrent_requests: int | None = Field(default=None, ge=1)
    drop_input_reasoning_items: bool = False
    upstream_dialect: Literal["auto", "responses", "chat"] = "auto"
    """The only dialect the upstream speaks, or `auto`: ask in the caller's dialect, and translate from then
    on if the upstream has no such route."""


class OpenAIEndpoint(ModelServer):
    config: OpenAIEndpointConfig

    def __init__(self, part: ServerPart) -> None:
        super().__init__(part)
        config = self.config
        self.upstream = Upstream(
            self.client.transport,
            config.openai_base_url,
            api_key=config.openai_api_key.get_secret_value(),
            headers=config.openai_default_headers,
            max_attempts=config.max_http_attempts,
            unreachable_seconds=config.upstream_unreachable_seconds,
            max_concurrent=config.max_concurrent_requests,
            proxy=config.upstream_proxy,
            setting="openai_base_url",
        )
        only = None if config.upstream_dialect == "auto" else config.upstream_dialect
        self._speaks: dict[Dialect, bool | None] = {
            dialect: None if only is None else dialect == only for dialect in PATHS
        }
        """True or False once it is known."""

    async def responses(self, params: JsonObject) -> bytes | JsonObject:
        if self.config.drop_input_reasoning_items:
            params = _without_reasoning(params)
        answer = await self._ask("responses", params)
        if answer is not None:
            return self.response(answer, params)
        completion = await self._ask_instead("chat", responses_to_chat.chat_request(params))
        return chat_to_responses.response(parsed(completion), params, reasoning=self.reasoning)

    async def chat(self, params: JsonObject) -> bytes | JsonObject:
        answer = await self._ask("chat", params)
        if answer is not None:
            return forwarded.completion(answer)
        asked = chat_over_responses.responses_params(params)
        response = self.response(await self._ask_instead("responses", asked), asked)
        return chat_over_responses.completion(parsed(response))

    def response(self, answer: bytes, params: JsonObject) -> bytes | JsonObject:
        """What the upstream's answer on /responses becomes: itself, once it is known to be a Response."""
        return forwarded.response(answer)

    async def _ask(self, dialect: Dialect, params: JsonObject) -> bytes | None:
        """The answer, or None when the upstream has no such route and may have the other one."""
        if self._speaks[dialect] is False:
            return None
        may_lack = self._speaks[dialect] is None
        answer = await self.upstream.post(
            PATHS[dialect], self._body(params), accepted=NO_SUCH_ROUTE if may_lack else ()
        )
        if may_lack and answer.status in NO_SUCH_ROUTE:
            return None
        self._speaks[dialect] = True
        return answer.body

    async def _ask_instead(self, dialect: Dialect, params: JsonObject) -> bytes:
        """Ask in the translated dialect; when that works, this process does not try the first one again."""
        is_news = self._speaks[OTHER[dialect]] is None
        attempts = max(self.config.max_http_attempts - 1, 1) if is_news else None
        answer = await self.upstream.post(PATHS[dialect], self._body(params), attempts=attempts)
        if is_news:
            logger.info("the upstream has no %s; translating to %s", PATHS[OTHER[dialect]], PATHS[dialect])
            self._speaks[OTHER[dialect]] = False
        return answer.body

    def _body(self, params: JsonObject) -> bytes:
        return dumps({**self.config.extra_body, **params, "model": self.config.openai_model})


def _without_reasoning(params: JsonObject) -> JsonObject:
    items = params["input"]
    if isinstance(items, str):
        return params
    return {**params, "input": [item for item in items if item.get("type") != "reasoning"]}
