"""CONTRACT 4: the wire contract of model servers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fakes.openai_upstream import Reply

from gymctl.servers.inprocess import serving_folder
from gymctl.servers.models import sse

IMAGES = Path(__file__).resolve().parents[3] / "server_images"
ASK = [{"role": "user", "content": "hello"}]
ROUTES: dict[str, dict[str, Any]] = {
    "/v1/responses": {"input": "hello"},
    "/v1/chat/completions": {"messages": ASK},
    "/v1/messages": {"messages": ASK, "max_tokens": 50},
}
CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "f",
    "arguments": '{"a": 1}',
    "status": "completed",
}
SAID = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Hi.", "annotations": []}],
}
CHAT_FIELDS: dict[str, Any] = {
    "frequency_penalty": 0.1,
    "logit_bias": {"5": -1},
    "logprobs": True,
    "max_completion_tokens": 5,
    "max_tokens": 5,
    "metadata": {"a": "b"},
    "modalities": ["text"],
    "model": "m",
    "moderation": {"model": "omni-moderation-latest"},
    "n": 1,
    "audio": {"voice": "alloy", "format": "wav"},
    "parallel_tool_calls": False,
    "prediction": {"type": "content", "content": "x"},
    "presence_penalty": 0.1,
    "prompt_cache_key": "k",
    "prompt_cache_retention": "24h",
    "reasoning_effort": "low",
    "response_format": {"type": "text"},
    "safety_identifier": "s",
    "seed": 1,
    "service_tier": "auto",
    "stop": ["x"],
    "store": False,
    "stream_options": {"include_usage": True},
    "temperature": 0.5,
    "tool_choice": "auto",
    "tools": [{"type": "function", "function": {"name": "f"}}],
    "top_logprobs": 1,
    "top_p": 0.5,
    "user": "u",
    "verbosity": "low",
    "web_search_options": {},
    "stream": None,
    "chat_template_kwargs": {"a": 1},
    "thinking": {"type": "enabled"},
    "output_config": {"effort": "low"},
}


def response(*output: dict[str, Any], **more: Any) -> Reply:
    usage = {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 12,
    }
    fixed = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "status": "completed"}
    body = {"id": "resp_1", "created_at": 1790000001.0, "model": "tiny-1", "object": "response"}
    return Reply(body={**body, **fixed, "output": list(output), "usage": usage, **more})


def completion(message: dict[str, Any], finish: str = "stop") -> Reply:
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": None, **message},
        "finish_reason": finish,
    }
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
    body = {"id": "c1", "object": "chat.completion", "created": 1790000001, "model": "tiny-1"}
    return Reply(body={**body, "choices": [choice], "usage": usage})


async def post(http: Any, url: str, body: Any) -> tuple[int, Any]:
    async with http.post(url, json=body) as answer:
        return answer.status, await answer.json()


async def stream(http: Any, url: str, body: Any) -> list[tuple[str | None, Any]]:
    """(event name or None, data) of every event; what is no JSON (`[DONE]`) is text."""
    async with http.post(url, json={"stream": True, **body}) as answer:
        assert (answer.status, answer.content_type) == (200, "text/event-stream")
        text = await answer.text()
    found: list[tuple[str | None, Any]] = []
    for frame in text.replace("\r\n", "\n").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in frame.splitlines() if not line.startswith(":"))
        if "data" in fields:
            data = fields["data"]
            found.append((fields.get("event"), json.loads(data) if data.startswith("{") else data))
    return found


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions"])
async def test_4_an_unknown_key_is_422(http, model_url, upstream, path):
    status, answer = await post(http, model_url + path, {**ROUTES[path], "colour": 1})
    assert status == 422
    (detail,) = answer["detail"]
    assert (detail["type"], detail["loc"], detail["input"]) == ("extra_forbidden", ["body", "colour"], 1)
    assert upstream.posts() == 0


@pytest.mark.parametrize(
    "path",
    ["/v1/responses", "/v1/chat/completions", pytest.param("/v1/messages", marks=pytest.mark.ours)],
)
async def test_4_what_is_required_is_422_when_it_is_missing(http, model_url, upstream, path):
    assert (await post(http, model_url + path, {}))[0] == 422
    assert upstream.posts() == 0


async def test_4_responses_answers_a_response(http, model_url, upstream):
    upstream.plan(response(SAID))
    status, answer = await post(http, f"{model_url}/v1/responses", {"input": "hello"})
    assert (status, answer["object"], answer["output"][0]["content"][0]["text"]) == (200, "response", "Hi.")


async def test_4_chat_answers_a_completion(http, model_url, upstream):
    status, answer = await post(http, f"{model_url}/v1/chat/completions", {"messages": ASK})
    assert (status, answer["object"]) == (200, "chat.completion")
    assert answer["choices"][0]["message"]["content"] == "Hi."


async def test_4_every_chat_parameter_is_accepted(http, model_url, upstream):
    status, answer = await post(http, f"{model_url}/v1/chat/completions", {"messages": ASK, **CHAT_FIELDS})
    assert status == 200, answer
    assert upstream.posts() == 1


@pytest.mark.parametrize("truthy", [True, 1, "yes"])
async def test_4_streaming_responses_has_three_kinds_of_events(http, model_url, upstream, truthy):
    upstream.plan(response(SAID, CALL))
    events = await stream(http, f"{model_url}/v1/responses", {"input": "hello", "stream": truthy})
    assert [data["type"] for _, data in events] == [
        "response.created",
        "response.output_item.done",
        "response.output_item.done",
        "response.completed",
    ]
    created, first, second, completed = (data for _, data in events)
    assert (created["response"]["status"], created["response"]["output"]) == ("in_progress", [])
    assert (first["output_index"], first["item"]["id"]) == (0, "msg_1")
    assert (second["output_index"], second["item"]["call_id"]) == (1, "call_1")
    assert completed["response"]["status"] == "completed"
    assert [item["type"] for item in completed["response"]["output"]] == ["message", "function_call"]
    assert "stream" not in upstream.asked[0].json


async def test_4_a_streaming_request_loses_unknown_fields_items_and_tools(http, model_url, upstream):
    upstream.plan(response(SAID))
    good = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False}
    body = {
        "colour": 1,
        "input": [*ASK, {"type": "no_such_item"}, {"type": "function_call"}],
        "tools": [good, {"type": "no_such_tool"}],
    }
    events = await stream(http, f"{model_url}/v1/responses", body)
    assert events[-1][1]["type"] == "response.completed"
    sent = upstream.asked[0].json
    assert len(sent["input"]) == 1 and sent["input"][0]["content"] == "hello"
    assert [tool["name"] for tool in sent["tools"]] == ["f"]
    assert "colour" not in sent


async def test_4_namespace_tools_are_flattened_and_calls_restored(http, model_url, upstream):
    upstream.plan(response({**CALL, "name": "crm__find"}))
    inner = {"type": "function", "name": "find", "parameters": {"type": "object"}, "strict": False}
    space = {"type": "namespace", "name": "crm", "description": "d", "tools": [inner]}
    events = await stream(http, f"{model_url}/v1/responses", {"input": "hello", "tools": [space]})
    (sent,) = upstream.asked[0].json["tools"]
    assert (sent["type"], sent["name"]) == ("function", "crm__find")
    for item in (events[1][1]["item"], events[-1][1]["response"]["output"][0]):
        assert (item["namespace"], item["name"]) == ("crm", "find")


async def test_4_leading_system_messages_become_instructions(http, model_url, upstream):
    upstream.plan(response(SAID))
    leading = [{"role": "system", "content": "One."}, {"role": "developer", "content": "Two."}]
    later = {"role": "developer", "content": "Three."}
    await stream(
        http, f"{model_url}/v1/responses", {"instructions": "Zero.", "input": [*leading, *ASK, later]}
    )
    sent = upstream.asked[0].json
    assert sent["instructions"] == "Zero.\n\nOne.\n\nTwo."
    assert [item["content"] for item in sent["input"]] == ["hello", "Three."]


async def test_4_a_bad_streaming_request_is_422(http, model_url, upstream):
    body = {"stream": True, "input": "x", "temperature": "hot"}
    assert (await post(http, f"{model_url}/v1/responses", body))[0] == 422
    assert upstream.posts() == 0


async def test_4_a_backend_failure_of_a_streamed_response(http, model_url, upstream):
    upstream.plan(Reply(400))
    events = await stream(http, f"{model_url}/v1/responses", {"input": "hello"})
    assert [data["type"] for _, data in events] == ["response.created", "response.failed"]
    failed = events[1][1]["response"]
    assert (failed["status"], failed["error"]["code"]) == ("failed", "server_error")


async def test_4_streaming_chat_has_its_chunks_in_order(http, model_url, upstream):
    calls = [
        {"id": f"call_{n}", "type": "function", "function": {"name": "f", "arguments": "{}"}} for n in (0, 1)
    ]
    message = {"reasoning_content": "Hm.", "content": "Hi.", "refusal": "No.", "tool_calls": calls}
    upstream.plan(completion(message, "tool_calls"))
    body = {"messages": ASK, "stream_options": {"include_usage": True}, "colour": 1, "thinking": {}}
    *chunks, usage, (_, done) = await stream(http, f"{model_url}/v1/chat/completions", body)
    deltas = [data["choices"][0]["delta"] for _, data in chunks]
    assert [next(iter(delta), None) for delta in deltas] == [
        *("role", "reasoning_content", "content", "refusal", "tool_calls", None)
    ]
    assert [call["index"] for call in deltas[4]["tool_calls"]] == [0, 1]
    assert [data["choices"][0]["finish_reason"] for _, data in chunks] == [None] * 5 + ["tool_calls"]
    assert all(data["object"] == "chat.completion.chunk" for _, data in chunks)
    assert (usage[1]["choices"], usage[1]["usage"]["total_tokens"]) == ([], 12)
    assert done == "[DONE]"
    assert not {"stream", "stream_options", "colour", "thinking"} & set(upstream.asked[0].json)


async def test_4_a_usage_chunk_comes_only_when_it_is_asked_for(http, model_url, upstream):
    events = await stream(http, f"{model_url}/v1/chat/completions", {"messages": ASK})
    assert all(data["choices"] for _, data in events[:-1])
    assert events[-1][1] == "[DONE]"


@pytest.mark.parametrize("other", [False, None])
async def test_4_only_true_streams_chat(http, model_url, upstream, other):
    body = {"messages": ASK, "stream": other}
    status, answer = await post(http, f"{model_url}/v1/chat/completions", body)
    assert (status, answer["object"]) == (200, "chat.completion")


@pytest.mark.parametrize("other", [1, "true"])
async def test_4_chat_that_is_to_stream_something_else_than_true_is_422(http, model_url, upstream, other):
    body = {"messages": ASK, "stream": other}
    status, answer = await post(http, f"{model_url}/v1/chat/completions", body)
    assert (status, answer["detail"][0]["loc"]) == (422, ["body", "stream"])
    assert upstream.posts() == 0


async def test_4_an_early_error_of_streamed_chat_is_an_http_error(http, model_url, upstream):
    upstream.plan(Reply(400))
    status, answer = await post(http, f"{model_url}/v1/chat/completions", {"messages": ASK, "stream": True})
    assert status == 500 and "calling an inner server" in answer


@pytest.fixture
async def impatient(request, target, upstream, monkeypatch):
    """A model server's URL, and a time after which its streams show signs of life: 15 s, the contract's own
    number, for a given target; our own server is served here and made to wait less."""
    if request.config.getoption("--contract-target"):
        yield request.getfixturevalue("model_url"), 15.0
        return
    monkeypatch.setattr(sse, "KEEP_ALIVE_SECONDS", 0.3)
    settings = {"openai_base_url": upstream.url, "openai_api_key": "k", "openai_model": "tiny-1"}
    async with serving_folder(IMAGES / "responses_api_models/openai_model", "policy_model", settings) as url:
        yield url, 0.3


async def test_4_streamed_chat_is_kept_alive_and_a_late_error_is_an_event(http, impatient, upstream):
    url, patience = impatient
    upstream.plan(Reply(400, delay=patience + 0.5))
    body = {"messages": ASK, "stream": True}
    async with http.post(f"{url}/v1/chat/completions", json=body) as answer:
        assert (answer.status, answer.content_type) == (200, "text/event-stream")
        text = await answer.text()
    assert text.startswith(": keep-alive\n\n")
    assert "\n\nevent: error\ndata: " in text and "[DONE]" not in text
    error = json.loads(text.rpartition("data: ")[2])["error"]
    assert set(error) == {"message", "type", "code"}


async def test_4_messages_are_translated(http, model_url, upstream):
    upstream.plan(response(SAID, CALL))
    body = {
        "max_tokens": 50,
        "system": "Be brief.",
        "tool_choice": {"type": "tool", "name": "f"},
        "tools": [{"name": "f", "input_schema": {"type": "object"}}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "hello"},
                    {
                        "type": "image",
                        "source": {"type": "base64", "media_type": "image/png", "data": "AA=="},
                    },
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": ""},
                    {"type": "tool_use", "id": "call_0", "name": "f", "input": {"a": 0}},
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_0", "content": "x"}]},
        ],
    }
    status, answer = await post(http, f"{model_url}/v1/messages", body)
    assert status == 200, answer
    assert (answer["type"], answer["role"], answer["stop_reason"]) == ("message", "assistant", "tool_use")
    assert answer["content"][0] == {"type": "text", "text": "Hi."}
    assert answer["content"][1] == {"type": "tool_use", "id": "call_1", "name": "f", "input": {"a": 1}}
    sent = upstream.asked[0].json
    assert (sent["instructions"], sent["max_output_tokens"]) == ("Be brief.", 50)
    assert sent["tool_choice"] == {"type": "function", "name": "f"}
    user, thought, call, output = sent["input"]
    assert [part["type"] for part in user["content"]] == ["input_text", "input_image"]
    assert thought["summary"][0]["text"] == "Hm."
    assert (call["call_id"], json.loads(call["arguments"])) == ("call_0", {"a": 0})
    assert (output["type"], output["call_id"], output["output"]) == ("function_call_output", "call_0", "x")


@pytest.mark.parametrize(
    ("output", "more", "reason"),
    [
        ([SAID], {}, "end_turn"),
        ([CALL], {}, "tool_use"),
        (
            [SAID],
            {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
            "max_tokens",
        ),
        ([SAID], {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "refusal"),
    ],
)
async def test_4_stop_reasons_of_messages(http, model_url, upstream, output, more, reason):
    upstream.plan(response(*output, **more))
    assert (await post(http, f"{model_url}/v1/messages", ROUTES["/v1/messages"]))[1]["stop_reason"] == reason


async def test_4_any_tool_choice_of_messages_is_required(http, model_url, upstream):
    tools = [{"name": "f", "input_schema": {"type": "object"}}]
    body = {**ROUTES["/v1/messages"], "tools": tools, "tool_choice": {"type": "any"}}
    await post(http, f"{model_url}/v1/messages", body)
    assert upstream.asked[0].json["tool_choice"] == "required"


async def test_4_token_fields_are_not_exposed_by_messages(http, model_url, upstream):
    tokens = {"prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [-0.5]}
    upstream.plan(response({**SAID, **tokens}), response({**SAID, **tokens}))
    url = f"{model_url}/v1/messages"
    assert "token_ids" not in json.dumps(await post(http, url, ROUTES["/v1/messages"]))
    assert "token_ids" not in json.dumps(await stream(http, url, ROUTES["/v1/messages"]))


async def test_4_messages_stream_when_stream_is_truthy(http, model_url, upstream):
    upstream.plan(response(SAID, CALL))
    events = await stream(http, f"{model_url}/v1/messages", {**ROUTES["/v1/messages"], "stream": 1})
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    assert [name for name, _ in events if name != "ping"] == [
        *("message_start", *block, *block, "message_delta", "message_stop")
    ]


async def test_4_a_session_id_header_changes_nothing(http, model_url, upstream):
    async with http.post(
        f"{model_url}/v1/responses", json={"input": "x"}, headers={"x-session-id": "s"}
    ) as answer:
        assert answer.status == 200
