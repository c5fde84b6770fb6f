"""Streams of both OpenAI dialects, read by OpenAI's own client and byte by byte."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import aiohttp
import openai
import pytest
from fakes.contract import until
from fakes.openai_upstream import block

from gymctl.servers.models import sse

NAMESPACE = {
    "type": "namespace",
    "name": "crm",
    "description": "d",
    "tools": [{"type": "function", "name": "find", "parameters": {"type": "object"}}, {"type": "function"}],
}
FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False}


def response(*output: dict[str, Any], **more: Any) -> dict[str, Any]:
    usage = {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 1},
        "total_tokens": 12,
    }
    return {
        "id": "resp_77",
        "created_at": 1790000001.0,
        "model": "tiny-1",
        "object": "response",
        "output": list(output),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "status": "completed",
        "usage": usage,
        **more,
    }


THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]}
SAID = {
    "id": "msg_1",
    "content": [{"annotations": [], "text": "Hi.", "type": "output_text"}],
    "role": "assistant",
    "status": "completed",
    "type": "message",
}
CALLED = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "crm__find",
    "arguments": '{"q":1}',
    "status": "completed",
}


def completion(message: dict[str, Any], finish: str = "stop", **more: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1790000001,
        "model": "tiny-1",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": None, **message},
                "finish_reason": finish,
            }
        ],
        "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12},
        **more,
    }


def client(server: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0)


async def streamed(server: Any, path: str, body: Any) -> tuple[int, str, bytes]:
    async with (
        aiohttp.ClientSession() as session,
        session.post(server.url + path, json={"stream": True, **body}) as answer,
    ):
        return answer.status, answer.content_type, await answer.read()


def events(body: bytes) -> list[tuple[str | None, Any]]:
    """(event name or None, parsed data) of each frame."""
    found = []
    for frame in body.decode().split("\n\n")[:-1]:
        lines = frame.split("\n")
        name = lines[0].removeprefix("event: ") if lines[0].startswith("event: ") else None
        data = lines[-1].removeprefix("data: ")
        found.append((name, data if data == "[DONE]" else json.loads(data)))
    return found


async def test_openais_client_reads_a_streamed_response(start, upstream, reply):
    server = await start("openai_model", **block(upstream))
    upstream.plan(reply(body=response(THOUGHT, SAID)))
    async with client(server) as openai_client:
        stream = await openai_client.responses.create(input="hello", model="m", stream=True)
        kinds = [event.type async for event in stream]
        assert kinds == [
            "response.created",
            "response.output_item.done",
            "response.output_item.done",
            "response.completed",
        ]
        upstream.plan(reply(body=response(THOUGHT, SAID)))
        async with openai_client.responses.stream(input="hello", model="m") as helper:
            final = await helper.get_final_response()
    assert final.output_text == "Hi."
    assert final.usage is not None and final.usage.total_tokens == 12
    assert "stream" not in upstream.asked[0].json


async def test_4_the_events_of_a_streamed_response_byte_for_byte(start, upstream, reply):
    server = await start("openai_model", **block(upstream))
    answer = response(SAID)
    upstream.plan(reply(body=answer))
    status, kind, body = await streamed(server, "/v1/responses", {"input": "x"})
    assert (status, kind) == (200, "text/event-stream")
    begun = {"status": "in_progress", "output": [], "error": None, "incomplete_details": None, "usage": None}
    wanted = [
        {"type": "response.created", "sequence_number": 0, "response": {**answer, **begun}},
        {"type": "response.output_item.done", "sequence_number": 1, "output_index": 0, "item": SAID},
        {"type": "response.completed", "sequence_number": 2, "response": answer},
    ]
    frames = [f"event: {e['type']}\ndata: {json.dumps(e, separators=(',', ':'))}\n\n" for e in wanted]
    assert body.decode() == "".join(frames)


async def test_4_a_streaming_request_is_sanitised(start, upstream, reply):
    server = await start("openai_model", **block(upstream))
    upstream.plan(reply(body=response(CALLED)))
    request = {
        "stream": "yes",
        "colour": 1,
        "instructions": "Be brief.",
        "input": [
            {"type": "message", "role": "developer", "content": "One."},
            {"role": "system", "content": [{"type": "input_text", "text": "Two."}]},
            {"role": "user", "content": "hello"},
            {"role": "developer", "content": "stays here"},
            {**CALLED, "name": "find", "namespace": "crm"},
            {"type": "function_call_output", "call_id": "call_1", "output": "none"},
            {"type": "function_call", "name": "no id"},
            {"type": "no_such_item"},
            7,
        ],
        "tools": [FUNCTION, NAMESPACE, {"type": "no_such_tool"}, {"name": "no type"}, {"type": "web_search"}],
    }
    _, _, body = await streamed(server, "/v1/responses", request)
    sent = upstream.asked[0].json
    assert sent["instructions"] == "Be brief.\n\nOne.\n\nTwo."
    assert sent["input"] == [
        {"role": "user", "content": "hello"},
        {"role": "developer", "content": "stays here"},
        CALLED,
        {"type": "function_call_output", "call_id": "call_1", "output": "none"},
    ]
    assert sent["tools"] == [
        FUNCTION,
        {"type": "function", "name": "crm__find", "parameters": {"type": "object"}},
        {"type": "web_search"},
    ]
    assert not {"stream", "colour"} & set(sent)
    restored = {**CALLED, "name": "find", "namespace": "crm"}
    told = events(body)
    assert told[1][1]["item"] == restored
    assert told[2][1]["response"]["output"] == [restored]


@pytest.mark.parametrize(
    "body", [{}, {"input": 3}, {"input": "x", "temperature": "hot"}, {"input": "x", "tools": 1}]
)
async def test_4_a_bad_streaming_request_is_422(start, upstream, body):
    server = await start("openai_model", **block(upstream))
    status, kind, _ = await streamed(server, "/v1/responses", body)
    assert (status, kind) == (422, "application/json")
    assert upstream.asked == []


async def test_4_a_backend_failure_is_a_failed_response_and_http_200(start, upstream, reply):
    server = await start("openai_model", **block(upstream))
    upstream.always = reply(503)
    status, kind, body = await streamed(server, "/v1/responses", {"input": "x"})
    assert (status, kind) == (200, "text/event-stream")
    (created, first), (failed, last) = events(body)
    assert (created, failed) == ("response.created", "response.failed")
    assert first["response"]["status"] == "in_progress"
    assert last["response"]["status"] == "failed"
    assert last["response"]["error"]["code"] == "server_error"
    assert last["response"]["id"] == first["response"]["id"]
    async with client(server) as openai_client:
        stream = await openai_client.responses.create(input="hello", model="m", stream=True)
        assert [event.type async for event in stream][-1] == "response.failed"


async def test_openais_client_reads_streamed_chat(start, upstream, reply):
    server = await start("openai_model", **block(upstream))
    calls = [
        {"id": f"call_{n}", "type": "function", "function": {"name": "f", "arguments": "{}"}} for n in (1, 2)
    ]
    message = {"reasoning_content": "Hm.", "content": "Hi.", "tool_calls": calls}
    upstream.plan(*(reply(body=completion(message, "tool_calls")) for _ in range(2)))
    ask: Any = {"messages": [{"role": "user", "content": "x"}], "model": "m"}
    async with client(server) as openai_client:
        stream = await openai_client.chat.completions.create(
            **ask, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
        async with openai_client.chat.completions.stream(**ask) as helper:
            final = await helper.get_final_completion()
    assert chunks[-1].choices == [] and chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 12
    assert final.choices[0].message.content == "Hi."
    assert [call.id for call in final.choices[0].message.tool_calls or ()] == ["call_1", "call_2"]
    assert final.choices[0].finish_reason == "tool_calls"
    assert upstream.asked[0].json == {**ask, "model": "tiny-1"}


async def test_4_b87_the_chunks_of_streamed_chat_in_their_order(start, upstream, reply):
    server = await start("openai_model", **block(upstream))
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    message = {"reasoning_content": "Hm.", "content": "Hi.", "refusal": "No.", "tool_calls": [call]}
    body = completion(message, "tool_calls")
    body["choices"].append(
        {"index": 1, "message": {"role": "assistant", "content": "Ho."}, "finish_reason": "stop"}
    )
    upstream.plan(reply(body=body), reply(body=body))
    request = {
        "messages": [{"role": "user", "content": "x"}],
        "n": 2,
        "colour": 1,
        "thinking": {"type": "enabled"},
        "chat_template_kwargs": {},
        "output_config": {},
    }
    status, kind, raw = await streamed(
        server, "/v1/chat/completions", {**request, "stream_options": {"include_usage": True}}
    )
    assert (status, kind) == (200, "text/event-stream")
    *chunks, usage, done = [data for _, data in events(raw)]
    assert [(c["choices"][0]["index"], c["choices"][0]["delta"]) for c in chunks] == [
        (0, {"role": "assistant"}),
        (0, {"reasoning_content": "Hm."}),
        (0, {"content": "Hi."}),
        (0, {"refusal": "No."}),
        (0, {"tool_calls": [{"index": 0, **call}]}),
        (0, {}),
        (1, {"role": "assistant"}),
        (1, {"content": "Ho."}),
        (1, {}),
    ]
    reasons = [c["choices"][0]["finish_reason"] for c in chunks]
    assert reasons == [None] * 5 + ["tool_calls", None, None, "stop"]
    assert {c["object"] for c in chunks} == {"chat.completion.chunk"}
    assert usage["choices"] == [] and usage["usage"] == body["usage"]
    assert done == "[DONE]"
    assert upstream.asked[0].json == {"messages": request["messages"], "n": 2, "model": "tiny-1"}

    _, _, raw = await streamed(server, "/v1/chat/completions", request)
    assert all("usage" not in data for _, data in events(raw)[:-1])


@pytest.mark.parametrize("stream", [False, None])
async def test_4_only_true_makes_chat_a_stream(start, upstream, stream):
    server = await start("openai_model", **block(upstream))
    body = {"messages": [{"role": "user", "content": "x"}], "stream": stream}
    status, answer = await server.post("/v1/chat/completions", body)
    assert (status, answer["object"]) == (200, "chat.completion")
    assert "stream" not in upstream.asked[0].json


async def test_4_b87_a_long_wait_is_kept_alive_and_then_ends_as_usual(start, upstream, reply, monkeypatch):
    monkeypatch.setattr(sse, "KEEP_ALIVE_SECONDS", 0.2)
    server = await start("openai_model", **block(upstream))
    gate = asyncio.Event()
    upstream.plan(reply(gate=gate))
    ask = {"messages": [{"role": "user", "content": "x"}], "stream": True}
    began = time.monotonic()
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{server.url}/v1/chat/completions", json=ask) as answer,
    ):
        assert answer.content_type == "text/event-stream"
        for _ in range(3):
            assert await answer.content.readexactly(len(sse.COMMENT)) == sse.COMMENT
        assert time.monotonic() - began > 0.55, "one every 0.2 s"
        gate.set()
        rest = (await answer.read()).replace(sse.COMMENT, b"")
    assert events(rest)[-1][1] == "[DONE]"
    upstream.plan(reply(body=response(SAID), delay=0.5))
    async with client(server) as openai_client:
        stream = await openai_client.responses.create(input="hello", model="m", stream=True)
        assert [event.type async for event in stream][-1] == "response.completed"


async def test_4_b87_an_upstream_that_breaks_is_never_an_empty_success(start, upstream, reply, monkeypatch):
    server = await start("openai_model", **block(upstream))
    ask: Any = {"messages": [{"role": "user", "content": "x"}]}
    upstream.plan(reply(is_dropped=True))
    status, kind, raw = await streamed(server, "/v1/chat/completions", ask)
    assert (status, kind) == (500, "application/json")
    assert b"peer_drop" in raw

    monkeypatch.setattr(sse, "KEEP_ALIVE_SECONDS", 0.2)
    upstream.plan(reply(is_dropped=True, delay=0.3), reply(503, delay=0.3))
    status, _, raw = await streamed(server, "/v1/chat/completions", ask)
    assert status == 200
    ((name, data),) = events(raw.replace(b": keep-alive\n\n", b""))
    assert name == "error"
    assert set(data["error"]) == {"message", "type", "code"}
    assert "peer_drop" in data["error"]["message"]
    assert b"[DONE]" not in raw
    async with client(server) as openai_client:
        stream = await openai_client.chat.completions.create(**ask, model="m", stream=True)
        with pytest.raises(openai.APIError, match="calling an inner server"):
            _ = [chunk async for chunk in stream]


async def test_b87_a_caller_that_leaves_while_it_waits_ends_the_call(start, upstream, reply, monkeypatch):
    monkeypatch.setattr(sse, "KEEP_ALIVE_SECONDS", 0.1)
    server = await start("openai_model", **block(upstream))
    for path, body in (
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
        ("/v1/responses", {"input": "x"}),
        ("/v1/messages", {"max_tokens": 5, "messages": [{"role": "user", "content": "x"}]}),
    ):
        upstream.plan(reply(delay=60))
        async with aiohttp.ClientSession() as session:
            answer = await session.post(server.url + path, json={**body, "stream": True})
            assert await answer.content.readline()
            await until(lambda: upstream.in_flight == 1)
            answer.close()
        await until(lambda: not upstream.in_flight)


async def test_b87_a_caller_that_leaves_at_the_last_event_has_the_whole_turn(start, upstream, reply):
    server = await start("openai_model", **block(upstream))
    upstream.plan(reply(body=response(SAID)))
    async with aiohttp.ClientSession() as session:
        answer = await session.post(f"{server.url}/v1/responses", json={"input": "x", "stream": True})
        text = await answer.content.readuntil(b"response.completed")
        answer.close()
    assert b"Hi." in text
    assert upstream.posts() == 1 and upstream.in_flight == 0
    assert (await server.post("/v1/responses", {"input": "x"}))[0] == 200
