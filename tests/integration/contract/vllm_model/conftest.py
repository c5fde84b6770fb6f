"""`vllm`, an endpoint with vLLM's habits, and `serve`, a vllm_model in front of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest
from fakes.vllm_model import FOLDER, Model, Serve
from fakes.vllm_upstream import VLLMUpstream

from gymctl.servers.inprocess import serving_folder


@pytest.fixture
async def vllm() -> AsyncIterator[VLLMUpstream]:
    async with VLLMUpstream() as upstream:
        yield upstream


@pytest.fixture
async def serve(vllm: VLLMUpstream, http: aiohttp.ClientSession) -> AsyncIterator[Serve]:
    """`await serve(chat_template_kwargs={...})`: a model server with this block."""
    async with AsyncExitStack() as stack:

        async def begin(**block: Any) -> Model:
            settings = {
                "base_url": vllm.url,
                "api_key": "dummy",
                "model": "tiny",
                "return_token_id_information": False,
                "uses_reasoning_parser": True,
                "upstream_unreachable_seconds": 1,
                **block,
            }
            url = await stack.enter_async_context(serving_folder(FOLDER, "policy_model", settings))
            return Model(url, http)

        yield begin
