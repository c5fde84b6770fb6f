"""A `vllm_model` that is served, and what it sent to its endpoint."""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
from fakes.contract import cookies_of, sending
from fakes.vllm_upstream import VLLMUpstream

FOLDER = Path(__file__).resolve().parents[2] / "server_images/responses_api_models/vllm_model"
IDS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
USER = {"type": "message", "role": "user", "content": "hi"}
TOOL = {"type": "function", "name": "get", "parameters": {"type": "object"}, "strict": True}
HISTORY = (
    USER,
    {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}]},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi."}]},
    USER,
)


class Model:
    """A vllm_model that is served; one session unless told otherwise."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self.url = url
        self._http = http
        self.jar: dict[str, str] = {}

    async def post(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        async with self._http.post(self.url + path, json=body, headers=sending(self.jar)) as answer:
            self.jar |= cookies_of(answer)
            return answer.status, await answer.json(content_type=None)

    async def responses(self, *items: dict[str, Any], **params: Any) -> dict[str, Any]:
        status, answer = await self.post("/v1/responses", {"input": list(items) or [USER], **params})
        assert status == 200, answer
        return answer

    async def chat(self, *messages: dict[str, Any], **params: Any) -> dict[str, Any]:
        body = {"messages": list(messages) or [{"role": "user", "content": "hi"}], **params}
        status, answer = await self.post("/v1/chat/completions", body)
        assert status == 200, answer
        return answer

    @property
    def session_id(self) -> str:
        (value,) = self.jar.values()
        return json.loads(base64.b64decode(value.partition(".")[0]))["session_id"]


Serve = Callable[..., Awaitable[Model]]


def sent(vllm: VLLMUpstream, path: str = "/v1/chat/completions") -> dict[str, Any]:
    """The body that the endpoint was last sent."""
    return vllm.bodies(path)[-1]


def kinds(response: dict[str, Any]) -> list[str]:
    return [item["type"] for item in response["output"]]
