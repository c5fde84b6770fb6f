"""CONTRACT 8.1 to 8.4: what a model server takes, what it lets pass, and what it hands back."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.exchanges import reply

KNOWN: dict[str, Any] = {
    "instructions": "Be brief.",
    "max_output_tokens": 9,
    "metadata": {"a": "b"},
    "model": "any",
    "parallel_tool_calls": False,
    "prompt_cache_key": "k",
    "prompt_cache_retention": "24h",
    "safety_identifier": "s",
    "service_tier": "flex",
    "store": False,
    "temperature": 0.5,
    "top_p": 0.9,
    "truncation": "auto",
    "user": "u",
    "background": False,
    "include": ["reasoning.encrypted_content"],
    "max_tool_calls": 3,
    "previous_response_id": "resp_0",
    "prompt": {"id": "p"},
    "reasoning": {"effort": "low", "summary": "auto"},
    "context_management": [{"type": "compaction"}],
    "conversation": "conv_1",
    "moderation": {"model": "omni-moderation-latest"},
    "text": {"verbosity": "low"},
    "tool_choice": "auto",
    "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True}],
    "top_logprobs": 2,
}


async def post(http: Any, url: str, body: Any) -> tuple[int, Any]:
    async with http.post(f"{url}/v1/responses", json=body) as answer:
        return answer.status, await answer.json()


async def test_8_1_an_unknown_key_is_422_and_names_itself(http, model_url):
    status, answer = await post(http, model_url, {"input": "x", "colour": 1})
    assert status == 422
    (detail,) = answer["detail"]
    assert (detail["type"], detail["loc"], detail["input"]) == ("extra_forbidden", ["body", "colour"], 1)


@pytest.mark.parametrize(
    "body",
    [
        *({}, {"input": None}, {"input": 3}, {"input": ["x"]}),
        pytest.param({"input": [{"content": "x"}]}, marks=pytest.mark.ours),
    ],
)
async def test_8_1_input_is_text_or_items(http, model_url, body):
    status, answer = await post(http, model_url, body)
    assert status == 422
    assert answer["detail"][0]["loc"][:2] == ["body", "input"]


async def test_8_1_every_known_key_is_taken_and_reaches_the_model(http, model_url, upstream):
    status, _ = await post(http, model_url, {"input": "x", **KNOWN})
    assert status == 200
    asked = upstream.asked[-1].json
    assert {key: asked.get(key) for key in KNOWN if key != "model"} == {
        key: value for key, value in KNOWN.items() if key != "model"
    }


HAVE_DEFAULTS = ("parallel_tool_calls", "tool_choice", "tools")


async def test_8_1_null_is_taken_where_there_is_no_default(http, model_url, upstream):
    nulls = dict.fromkeys(key for key in KNOWN if key not in HAVE_DEFAULTS)
    status, _ = await post(http, model_url, {"input": "x", **nulls, "stream": None})
    assert status == 200


@pytest.mark.ours
async def test_8_1_null_is_absent(http, model_url, upstream):
    status, _ = await post(http, model_url, {"input": "x", **dict.fromkeys(KNOWN), "stream": None})
    assert status == 200
    assert None not in upstream.asked[-1].json.values()


async def test_8_1_metadata_maps_text_to_text(http, model_url):
    status, answer = await post(http, model_url, {"input": "x", "metadata": {"a": 1}})
    assert (status, answer["detail"][0]["loc"]) == (422, ["body", "metadata", "a"])


ITEMS: list[dict[str, Any]] = [
    {"role": "user", "content": "no type"},
    {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "d"}]},
    {
        "type": "message",
        "role": "user",
        "content": [
            {"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "auto"},
            {"type": "input_file", "file_id": "f"},
        ],
    },
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "namespace": "n"},
    {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "t"}]},
    {"type": "mcp_list_tools", "id": "m", "server_label": "s", "tools": []},
    {"type": "custom_tool_call", "id": "k", "call_id": "k", "name": "n", "input": "i"},
]


async def test_8_2_items_pass_untouched(http, model_url, upstream):
    status, _ = await post(http, model_url, {"input": ITEMS})
    assert status == 200
    assert upstream.asked[-1].json["input"] == ITEMS


@pytest.mark.ours
async def test_8_2_b92_unknown_items_and_values_pass_untouched_too(http, model_url, upstream):
    unknown = [{"type": "brand_new_item", "anything": {"deep": [1, {"x": "y"}]}}]
    status, _ = await post(http, model_url, {"input": unknown, "service_tier": "turbo"})
    assert status == 200
    assert (upstream.asked[-1].json["input"], upstream.asked[-1].json["service_tier"]) == (unknown, "turbo")


async def test_8_2_hosted_output_items_come_back(http, model_url, upstream):
    item = {"type": "mcp_list_tools", "id": "m", "server_label": "s", "tools": []}
    upstream.plan(reply(item))
    status, answer = await post(http, model_url, {"input": "x"})
    assert status == 200
    assert item.items() <= answer["output"][0].items()


@pytest.mark.ours
async def test_8_2_b92_unknown_output_items_and_values_come_back_as_they_were(http, model_url, upstream):
    output = [
        {"type": "mcp_list_tools", "id": "m", "server_label": "s", "tools": []},
        {"type": "brand_new_item", "x": 1},
    ]
    upstream.plan(reply(*output, service_tier="turbo"))
    status, answer = await post(http, model_url, {"input": "x"})
    assert (status, answer["output"], answer["service_tier"]) == (200, output, "turbo")


async def test_8_2_an_output_item_without_type_is_an_error(http, model_url, upstream):
    upstream.plan(reply({"role": "assistant"}))
    status, answer = await post(http, model_url, {"input": "x"})
    assert status == 500 and "type" in answer


async def test_8_1_an_output_list_can_be_replayed_as_input(http, model_url, upstream):
    ids = {"prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [-0.5]}
    said = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "phase": None}
    output = [
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]},
        {**said, "content": [{"type": "output_text", "text": "Hi.", "annotations": [], "logprobs": None}]},
        {"type": "function_call", "id": "c", "call_id": "c", "name": "f", "arguments": "{}", **ids},
    ]
    upstream.plan(reply(*output))
    _, first = await post(http, model_url, {"input": "x"})
    result = {"type": "function_call_output", "call_id": "c", "output": "ok", "id": None, "status": None}
    status, _ = await post(http, model_url, {"input": [*first["output"], result]})
    assert status == 200
    replayed = upstream.asked[-1].json["input"]
    assert [item["type"] for item in replayed] == [item["type"] for item in [*output, result]]
    assert {key: replayed[2][key] for key in ids} == ids  # 8.4: unchanged


async def test_8_3_unknown_fields_of_a_response_are_kept(http, model_url, upstream):
    upstream.plan(reply(vendor={"a": [1]}))
    status, answer = await post(http, model_url, {"input": "x"})
    assert (status, answer["vendor"]) == (200, {"a": [1]})


CALL = {
    "type": "function_call",
    "id": "c",
    "call_id": "c",
    "name": "get_weather",
    "arguments": '{"city":"Oslo"}',
}
SAID = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Snow.", "annotations": []}],
}


def _usage(cached: int | None, reasoned: int | None) -> dict[str, Any]:
    return {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": reasoned},
        "total_tokens": 15,
    }


async def test_8_3_usage_of_several_calls_adds_up_and_unknown_details_are_null(http, agent_url, upstream):
    upstream.plan(reply(CALL, usage=_usage(4, 1)), reply(SAID, usage=_usage(2, None)))
    status, answer = await post(http, agent_url, {"input": "Weather?"})
    assert status == 200
    assert answer["usage"] == {
        "input_tokens": 20,
        "input_tokens_details": {"cached_tokens": 6},
        "output_tokens": 10,
        "output_tokens_details": {"reasoning_tokens": None},
        "total_tokens": 30,
    }


@pytest.mark.ours
async def test_8_3_b83_a_call_without_usage_is_told(http, agent_url, upstream):
    upstream.plan(reply(CALL, usage=_usage(4, 1)), reply(SAID, usage=None))
    _, answer = await post(http, agent_url, {"input": "Weather?"})
    assert answer["usage"]["usage_incomplete"] is True
    assert (answer["usage"]["total_tokens"], answer["usage"]["input_tokens_details"]["cached_tokens"]) == (
        15,
        None,
    )


async def test_8_4_an_agent_keeps_token_ids_on_the_last_item_of_each_call(http, agent_url, upstream):
    ids = {"prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [-0.5]}
    more = {"prompt_token_ids": [1, 2], "generation_token_ids": [3], "generation_log_probs": [-0.25]}
    upstream.plan(
        reply({**CALL, **ids}, usage=None), reply({**SAID, **more, "routed_experts": "AA"}, usage=None)
    )
    _, answer = await post(http, agent_url, {"input": "Weather?"})
    call, result, said = answer["output"]
    assert {key: call[key] for key in ids} == ids
    assert not any(key in result for key in ids)
    assert {key: said[key] for key in (*ids, "routed_experts")} == {**more, "routed_experts": "AA"}
    assert upstream.asked[-1].json["input"][-2] == call  # replayed unchanged


@pytest.mark.ours
async def test_8_2_b93_half_an_emoji_reaches_the_model_as_valid_text(http, model_url, upstream):
    body = b'{"input":[{"type":"function_call_output","call_id":"c","output":"ok \\ud83d"}]}'
    headers = {"content-type": "application/json"}
    async with http.post(f"{model_url}/v1/responses", data=body, headers=headers) as answer:
        assert answer.status == 200
    assert upstream.asked[-1].json["input"][0]["output"] == "ok �"
