"""Model server for LiteLLM proxies: what they answer on /responses becomes what clients can read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import litellm_answers
from proxy_version import ProxyVersion

from gymctl.contract.part import EndpointState, ServerPart
from gymctl.contract.responses import JsonObject
from gymctl.servers.models.openai_endpoint import OpenAIEndpoint


class LiteLLMModel(OpenAIEndpoint):
    """No call leaves before the proxy's version is known to be good."""

    def __init__(self, part: ServerPart) -> None:
        super().__init__(part)
        self._version = ProxyVersion(self.upstream, self.config.upstream_unreachable_seconds)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with super().running(), self._version.checked():
            yield

    async def upstream_states(self) -> list[EndpointState]:
        states = await super().upstream_states()
        problem = self._version.problem
        if problem is None:
            return states
        return [
            state.model_copy(update={"state": "waiting", "detail": problem})
            if state.state == "answering"
            else state
            for state in states
        ]

    async def responses(self, params: JsonObject) -> bytes | JsonObject:
        await self._version.known()
        return await super().responses(params)

    async def chat(self, params: JsonObject) -> bytes | JsonObject:
        await self._version.known()
        return await super().chat(params)

    def response(self, answer: bytes, params: JsonObject) -> bytes | JsonObject:
        return litellm_answers.response(answer, params)


app = LiteLLMModel.app()
