"""CONTRACT 13.3 to 13.5 with a real vLLM and a real model (SmolLM2-135M, which knows no tools)."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from gymctl.servers.inprocess import serving_folder
from gymctl.transport import Transport

pytestmark = pytest.mark.timeout(1800)
FOLDER = Path(__file__).resolve().parents[2] / "server_images/responses_api_models/vllm_model"
CONTENT_ONLY = {"chat_template_kwargs": '{"enable_thinking": false}'}
"""The parser then takes what the model says for text."""
GREEDY = {"temperature": 0.0, "max_output_tokens": 24}
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "enum": ["Oslo", "Rome"]}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}


@pytest.fixture
async def ask(vllm_url: str) -> AsyncIterator[Any]:
    """`await ask(block, input=..., ...)`: the Response of a model server with this block."""
    async with AsyncExitStack() as stack, Transport() as transport:

        async def asked(block: dict[str, Any], **params: Any) -> dict[str, Any]:
            settings = {
                "base_url": vllm_url,
                "api_key": "dummy",
                "model": "tiny",
                "return_token_id_information": True,
                "uses_reasoning_parser": True,
                **block,
            }
            url = await stack.enter_async_context(serving_folder(FOLDER, "policy_model", settings))
            answer = await transport.call("POST", f"{url}/v1/responses", json.dumps(params).encode())
            assert answer.status == 200, answer.body
            return answer.json()

        yield asked


def user(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": text}


@pytest.mark.parametrize("tells_ids", [False, True], ids=["tokenize", "return_token_ids"])
async def test_token_ids_of_three_turns_are_contiguous(ask, tells_ids):
    block = {"request_prompt_and_generation_token_ids": tells_ids}
    conversation: list[dict[str, Any]] = []
    seen: list[int] = []
    for question in ("What is the capital of France?", "And of Italy?", "Thank you."):
        conversation.append(user(question))
        answer = await ask(block, input=conversation, metadata=CONTENT_ONLY, **GREEDY)
        item = answer["output"][-1]
        assert item["type"] == "message" and item["content"][0]["text"]
        assert item["prompt_token_ids"][: len(seen)] == seen
        assert len(item["generation_token_ids"]) == len(item["generation_log_probs"])
        assert len(item["generation_token_ids"]) == answer["usage"]["output_tokens"]
        assert len(item["prompt_token_ids"]) == answer["usage"]["input_tokens"]
        assert all(score <= 0 for score in item["generation_log_probs"])
        seen = item["prompt_token_ids"] + item["generation_token_ids"]
        conversation += answer["output"]


async def test_both_sources_of_token_ids_tell_the_same(ask):
    told = [
        (
            await ask(
                {"request_prompt_and_generation_token_ids": tells_ids},
                input=[user("What is 2 + 3?")],
                metadata=CONTENT_ONLY,
                **GREEDY,
            )
        )["output"][-1]
        for tells_ids in (False, True)
    ]
    for field in ("prompt_token_ids", "generation_token_ids"):
        assert told[0][field] == told[1][field]


async def test_a_call_that_vllm_parses_is_an_item_with_the_token_ids(ask):
    answer = await ask(
        {},
        input=[user("What is the weather in Oslo?")],
        tools=[WEATHER],
        tool_choice={"type": "function", "name": "get_weather"},
        metadata=CONTENT_ONLY,
        temperature=0.0,
        max_output_tokens=64,
    )
    call = answer["output"][-1]
    assert (call["type"], call["name"]) == ("function_call", "get_weather")
    json.loads(call["arguments"])  # what stands in it is beyond this model
    assert len(call["generation_token_ids"]) > 0
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": '{"sky":"snow"}'}
    again = await ask(
        {},
        input=[user("What is the weather in Oslo?"), *answer["output"], result],
        tools=[WEATHER],
        tool_choice="none",
        metadata=CONTENT_ONLY,
        **GREEDY,
    )
    assert again["output"][-1]["generation_token_ids"]


async def test_reasoning_that_vllm_parses_is_an_item(ask):
    answer = await ask({}, input=[user("What is the capital of France?")], **GREEDY)
    item = answer["output"][0]
    assert item["type"] == "reasoning" and item["summary"][0]["text"]
    assert answer["output"][-1]["generation_token_ids"]


async def test_a_conversation_that_does_not_fit_is_incomplete(ask):
    answer = await ask({}, input=[user("word " * 3000)], **GREEDY)
    assert answer["incomplete_details"] == {"reason": "max_output_tokens"}


@pytest.mark.parametrize("renders", [False, True])
async def test_completions_tell_token_ids_too(ask, renders):
    block = {"use_completions_api": True, "render_chat_template": renders, "uses_reasoning_parser": False}
    answer = await ask(block, input=[user("The capital of France is")], **GREEDY)
    item = answer["output"][-1]
    assert len(item["prompt_token_ids"]) == answer["usage"]["input_tokens"]
    assert len(item["generation_token_ids"]) == answer["usage"]["output_tokens"]


async def test_a_template_rendered_here_makes_the_tokens_that_vllm_makes(ask):
    items = [
        {"type": "message", "role": "system", "content": "Be brief."},
        user("What is the capital of France?"),
        {"type": "message", "role": "assistant", "content": "Paris."},
        user("And of Italy?"),
    ]
    block = {"use_completions_api": True, "render_chat_template": True, "uses_reasoning_parser": False}
    prompts = [
        (await ask({**block, "tokenizer": folder}, input=items, **GREEDY))["output"][-1]["prompt_token_ids"]
        for folder in (None, os.environ["GYMCTL_VLLM_MODEL"])
    ]
    assert prompts[0] == prompts[1]


async def test_a_native_endpoint_answers_with_a_response(ask):
    block = {"is_responses_native": True, "return_token_id_information": False}
    answer = await ask(block, input=[user("What is the capital of France?")], **GREEDY)
    assert answer["object"] == "response" and answer["output"]
