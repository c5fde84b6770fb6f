"""Base of model servers in front of an endpoint that speaks chat completions only."""

from __future__ import annotations

import time
from typing import ClassVar

from gymctl.contract.responses import JsonObject
from gymctl.servers.models import forwarded
from gymctl.servers.models.dialects import chat_to_responses, responses_to_chat
from gymctl.servers.models.server import ModelServer, parsed
from gymctl.servers.models.upstream import Upstream
from gymctl.servers.models.upstream_config import UpstreamConfig
from gymctl.servers.stack.wire import dumps


class ChatEndpoint(ModelServer):
    """A subclass makes `upstream` and says which model is asked for."""

    config: UpstreamConfig
    upstream: Upstream
    model: str
    path: ClassVar[str] = "/chat/completions"

    async def chat(self, params: JsonObject) -> JsonObject | bytes:
        return forwarded.completion(await self._ask(params))

    async def responses(self, params: JsonObject) -> JsonObject | bytes:
        completion = parsed(await self._ask(responses_to_chat.chat_request(params)))
        answer = chat_to_responses.response(completion, params, reasoning=self.reasoning_rule)
        return answer | {"created_at": int(time.time())}

    @property
    def reasoning_rule(self) -> chat_to_responses.ReasoningRule:
        return self.reasoning

    async def _ask(self, params: JsonObject) -> bytes:
        body = {**self.config.extra_body, **params, "model": self.model}
        return (await self.upstream.post(self.path, dumps(body))).body
