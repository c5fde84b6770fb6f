"""`/v1/messages` of a model server, asked by Anthropic's own client."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import pytest
from fakes.openai_upstream import block

from gymctl.servers.models import sse

TOOL: Any = {
    "name": "get_weather",
    "description": "Weather of a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
ASK: Any = {"model": "m", "max_tokens": 50, "messages": [{"role": "user", "content": "hello"}]}


def response(*output: dict[str, Any], **more: Any) -> dict[str, Any]:
    usage = {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 1},
        "total_tokens": 12,
    }
    return {
        "id": "resp_77",
        "model": "tiny-1",
        "object": "response",
        "output": list(output),
        "usage": usage,
        **more,
    }


SAID = {
    "type": "message",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "Snow.", "annotations": []}],
    "prompt_token_ids": [1],
    "generation_token_ids": [2],
    "generation_log_probs": [-0.1],
}
THOUGHT = {
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "Cold."}],
    "encrypted_content": "c2lnbmVk",
}
CALLED = {
    "type": "function_call",
    "call_id": "call_1",
    "name": "get_weather",
    "arguments": '{"city": "Ålesund"}',
}


def client(server: Any) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=server.url, api_key="any", max_retries=0)


async def test_4_a_message_is_translated_both_ways(start, upstream, reply):
    server = await start("openai_model", **block(upstream))
    upstream.plan(reply(body=response(THOUGHT, SAID, CALLED)))
    async with client(server) as messages_client:
        answer = await messages_client.messages.create(
            **ASK,
            system=[{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}],
            temperature=0.5,
            top_p=0.9,
            tools=[TOOL],
            tool_choice={"type": "any", "disable_parallel_tool_use": True},
            metadata={"user_id": "somebody"},
        )
    assert [block.to_dict() for block in answer.content] == [
        {"type": "thinking", "thinking": "Cold.", "signature": "c2lnbmVk"},
        {"type": "text", "text": "Snow."},
        {"type": "tool_use", "id": "call_1", "name": "get_weather", "input": {"city": "Ålesund"}},
    ]
    assert (answer.role, answer.model, answer.id) == ("assistant", "tiny-1", "resp_77")
    assert (answer.stop_reason, answer.stop_sequence) == ("tool_use", None)
    usage = answer.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (5, 4, 3)
    assert upstream.asked[0].json == {
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]},
        ],
        "instructions": "One.\n\nTwo.",
        "max_output_tokens": 50,
        "temperature": 0.5,
        "top_p": 0.9,
        "tools": [
            {
                "type": "function",
                "name": "get_weather",
                "description": "Weather of a city.",
                "parameters": TOOL["input_schema"],
                "strict": False,
            }
        ],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "model": "tiny-1",
    }


async def test_4_token_fields_are_not_exposed(start, upstream, reply):
    server = await start("openai_model", **block(upstream))
    upstream.plan(reply(body=response(SAID)), reply(body=response(SAID)))
    assert "token_ids" not in json.dumps(await server.post("/v1/messages", ASK))
    async with client(server) as messages_client:
        stream = await messages_client.messages.create(**ASK, stream=True)
        assert not any("token_ids" in event.to_json() for event in [event async for event in stream])


async def test_4_a_conversation_is_replayed_with_its_tool_results_images_and_thoughts(start, upstream, reply):
    server = await start("openai_model", **block(upstream))
    upstream.plan(reply(body=response(SAID)))
    picture: Any = {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}
    conversation: Any = [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is this?", "cache_control": {"type": "ephemeral"}},
                {"type": "image", "source": picture},
                {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Cold.", "signature": "c2lnbmVk"},
                {"type": "redacted_thinking", "data": "aGlkZGVu"},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "call_1", "name": "get_weather", "input": {"city": "Oslo"}},
                {"type": "tool_use", "id": "call_2", "name": "get_weather", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "call_1", "content": "snow"},
                {
                    "type": "tool_result",
                    "tool_use_id": "call_2",
                    "content": [{"type": "text", "text": "see"}, {"type": "image", "source": picture}],
                },
                {"type": "text", "text": "And now?"},
            ],
        },
    ]
    async with client(server) as messages_client:
        await messages_client.messages.create(**{**ASK, "messages": conversation}, tools=[TOOL])
    image = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw==", "detail": "auto"}
    assert upstream.asked[0].json["input"] == [
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "What is this?"},
                image,
                {"type": "input_image", "image_url": "https://example.com/a.png", "detail": "auto"},
            ],
        },
        {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "Cold."}],
            "encrypted_content": "c2lnbmVk",
        },
        {"type": "reasoning", "summary": [], "encrypted_content": "aGlkZGVu"},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "I look.", "annotations": []}],
        },
        {
            "type": "function_call",
            "call_id": "call_1",
            "name": "get_weather",
            "arguments": '{"city": "Oslo"}',
        },
        {"type": "function_call", "call_id": "call_2", "name": "get_weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "snow"},
        {
            "type": "function_call_output",
            "call_id": "call_2",
            "output": [{"type": "input_text", "text": "see"}, image],
        },
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "And now?"}]},
    ]


async def test_4_anthropics_client_reads_the_stream(start, upstream, reply):
    server = await start("openai_model", **block(upstream))
    hidden = {"type": "reasoning", "summary": [], "encrypted_content": "aGlkZGVu"}
    upstream.plan(*(reply(body=response(THOUGHT, hidden, SAID, CALLED)) for _ in range(3)))
    async with client(server) as messages_client:
        plain = await messages_client.messages.create(**ASK)
        stream = await messages_client.messages.create(**ASK, stream=True)
        kinds = [event.type async for event in stream]
        async with messages_client.messages.stream(**ASK) as helper:
            final = await helper.get_final_message()
    assert kinds == [
        "message_start",
        *("content_block_start", "content_block_delta", "content_block_delta", "content_block_stop"),
        *("content_block_start", "content_block_stop"),
        *("content_block_start", "content_block_delta", "content_block_stop") * 2,
        "message_delta",
        "message_stop",
    ]
    assert [block.to_dict() for block in final.content] == [block.to_dict() for block in plain.content]
    assert (final.stop_reason, final.usage.output_tokens) == ("tool_use", 3)
    assert final.usage.input_tokens == plain.usage.input_tokens


@pytest.mark.parametrize(
    ("more", "output", "reason"),
    [
        ({}, [SAID], "end_turn"),
        ({}, [CALLED], "tool_use"),
        ({"incomplete_details": {"reason": "max_output_tokens"}}, [SAID], "max_tokens"),
        ({"incomplete_details": {"reason": "content_filter"}}, [], "refusal"),
    ],
)
async def test_4_why_it_stopped(start, upstream, reply, more, output, reason):
    server = await start("openai_model", **block(upstream))
    upstream.plan(reply(body=response(*output, **more)))
    assert (await server.post("/v1/messages", ASK))[1]["stop_reason"] == reason


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [
        ({"type": "auto"}, "auto"),
        ({"type": "any"}, "required"),
        ({"type": "none"}, "none"),
        ({"type": "tool", "name": "get_weather"}, {"type": "function", "name": "get_weather"}),
    ],
)
async def test_4_tool_choices(start, upstream, choice, wanted):
    server = await start("openai_model", **block(upstream))
    assert (await server.post("/v1/messages", {**ASK, "tools": [TOOL], "tool_choice": choice}))[0] == 200
    assert upstream.asked[0].json["tool_choice"] == wanted


async def test_arguments_that_are_no_object_reach_the_tool_under_a_name_that_says_so(start, upstream, reply):
    server = await start("openai_model", **block(upstream))
    upstream.plan(*(reply(body=response({**CALLED, "arguments": text})) for text in ('{"city', "[1]", "")))
    inputs = [(await server.post("/v1/messages", ASK))[1]["content"][0]["input"] for _ in range(3)]
    assert inputs == [{"invalid_arguments": '{"city'}, {"invalid_arguments": "[1]"}, {}]


async def test_a_chat_only_upstream_serves_messages(start, upstream):
    server = await start("openai_model", **block(upstream, upstream_dialect="chat"))
    async with client(server) as messages_client:
        answer = await messages_client.messages.create(**ASK, system="Be brief.")
    assert answer.content[0].to_dict() == {"type": "text", "text": "Hi."}
    assert upstream.asked[0].json["messages"][0] == {"role": "system", "content": "Be brief."}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_that_is_wrong_is_422_in_anthropics_shape(start, upstream, stream):
    server = await start("openai_model", **block(upstream))
    wrong: list[Any] = [
        {**ASK, "max_tokens": 0},
        {**ASK, "messages": [{"role": "robot", "content": "x"}]},
        {**ASK, "messages": [{"role": "user", "content": [{"type": "search_result"}]}]},
        {**ASK, "tools": [{"type": "web_search_20250305", "name": "web_search"}]},
    ]
    async with client(server) as messages_client:
        for ask in wrong:
            with pytest.raises(anthropic.UnprocessableEntityError) as caught:
                await messages_client.messages.create(**ask, stream=stream)
            body: Any = caught.value.body
            assert body["type"] == "error"
            assert body["error"]["type"] == "invalid_request_error"
            assert body["error"]["message"]
            assert body["detail"][0]["loc"][0] == "body"
    assert upstream.asked == []


@pytest.mark.parametrize("stream", [False, True])
async def test_an_upstreams_refusal_is_500_in_anthropics_shape(start, upstream, reply, stream):
    server = await start("openai_model", **block(upstream))
    upstream.always = reply(400)
    async with client(server) as messages_client:
        with pytest.raises(anthropic.InternalServerError) as caught:
            await messages_client.messages.create(**ASK, stream=stream)
    body: Any = caught.value.body
    assert body["error"] == {
        "type": "api_error",
        "message": "Hit an exception in OpenAIModel___policy_model calling an inner server: "
        'b\'{"error":{"message":"no"}}\'',
    }
    assert caught.value.response.headers["x-gymctl-failed-call"].endswith("/v1/responses 400")


async def test_a_failure_after_a_long_wait_is_an_error_event(start, upstream, reply, monkeypatch):
    monkeypatch.setattr(sse, "KEEP_ALIVE_SECONDS", 0.1)
    server = await start("openai_model", **block(upstream))
    upstream.plan(reply(503, delay=0.3), reply(body=response(SAID), delay=0.3))
    async with client(server) as messages_client:
        stream = await messages_client.messages.create(**ASK, stream=True)
        with pytest.raises(anthropic.APIStatusError, match="calling an inner server"):
            _ = [event async for event in stream]
        async with messages_client.messages.stream(**ASK) as helper:
            assert (await helper.get_final_message()).content[0].to_dict() == {
                "type": "text",
                "text": "Snow.",
            }
