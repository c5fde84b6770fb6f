"""Section F of the bug cases: what other people's converters between Responses and chat got wrong."""

from __future__ import annotations

from typing import Any

import pytest

from gymctl.contract.responses import ResponsesCreateParams, Usage, drop_nulls, function_calls, output_text
from gymctl.servers.models.dialects.chat_over_responses import completion, responses_params
from gymctl.servers.models.dialects.chat_to_responses import output_items, response, usage
from gymctl.servers.models.dialects.errors import ConversionError
from gymctl.servers.models.dialects.responses_to_chat import chat_request

USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "name": "get", "parameters": {"type": "object"}}
IDS = {"prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [-0.5]}


def said(*texts: str, **fields: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    return {"type": "message", "role": "assistant", "content": content, **fields}


def answered(message: dict[str, Any], finish: str = "stop", **fields: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return {"created": 7, "model": "m", "choices": [choice], **fields}


def chat_call(call_id: str | None, arguments: str = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "get", "arguments": arguments}}


@pytest.mark.parametrize("tools", [{"tools": []}, {}])
def test_b79_without_tools_their_options_are_not_sent(tools: dict[str, Any]):
    options = {"tool_choice": "auto", "parallel_tool_calls": True}
    assert set(chat_request({"input": [USER], **options, **tools})) == {"messages"}
    assert {"tools", *options} < set(chat_request({"input": [USER], **options, "tools": [TOOL]}))


def test_b80_chat_shaped_turns_in_the_input_convert_and_nothing_is_an_empty_list():
    got = chat_request(
        {
            "input": [
                {"role": "assistant", "tool_calls": [chat_call("c1")]},
                {"role": "tool", "tool_call_id": "c1", "content": "x"},
                {"role": "assistant", "content": "hi"},
            ]
        }
    )["messages"]
    assert got == [
        {"role": "assistant", "content": None, "tool_calls": [chat_call("c1")]},
        {"role": "tool", "tool_call_id": "c1", "content": "x"},
        {"role": "assistant", "content": "hi"},
    ]


def test_b81_parts_of_a_tool_output_stay_parts_and_an_image_is_refused_by_name():
    parts = [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]
    output = {"type": "function_call_output", "call_id": "c1", "output": parts}
    message = chat_request({"input": [output]})["messages"][0]
    assert message["content"] == [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert responses_params({"messages": [message]})["input"] == [output]
    output["output"] = [{"type": "input_image", "image_url": "data:image/png;base64,AA"}]
    with pytest.raises(ConversionError, match=r"'c1'.*'input_image'"):
        chat_request({"input": [output]})


def test_b82_the_reasoning_effort_survives_both_ways_and_absent_stays_absent():
    chat = chat_request({"input": [USER], "reasoning": {"effort": "high"}})
    assert chat["reasoning_effort"] == "high"
    assert responses_params(chat)["reasoning"] == {"effort": "high"}
    plain = chat_request({"input": [USER]})
    assert "reasoning_effort" not in plain
    assert "reasoning" not in responses_params(plain)


def test_b83_unknown_counts_stay_unknown_and_a_call_without_usage_is_told():
    full = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12, "cache_write_tokens": 3}
    details = {
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 1},
    }
    calls = [
        Usage.of({"usage": usage(full | details)}),
        Usage.of({"usage": usage({"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6})}),
        Usage.of({"usage": usage(None)}),
    ]
    first = calls[0]
    assert first is not None and first.model_dump()["cache_write_tokens"] == 3
    total = Usage.total(calls)
    assert total is not None
    assert total.model_dump() == {
        "input_tokens": 15,
        "input_tokens_details": {"cached_tokens": None},
        "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": None},
        "total_tokens": 18,
        "cache_write_tokens": None,
        "usage_incomplete": True,
    }
    assert Usage.total([first, first]) == Usage.of(
        {"usage": usage({key: 2 * value for key, value in full.items()} | _doubled(details))}
    )
    assert Usage.total([None]) is None


def _doubled(details: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    return {key: {name: 2 * count for name, count in counts.items()} for key, counts in details.items()}


def test_b85_null_is_the_same_as_a_missing_key():
    bare = {"input": [USER, {"role": "assistant", "content": None}]}
    nulls = {"metadata": None, "tools": None, "instructions": None, "reasoning": None, "text": None}
    assert chat_request(bare | nulls) == chat_request({"input": [USER, {"role": "assistant"}]})
    assert drop_nulls(bare | {"metadata": {"extra_body": None}})["metadata"] == {}
    ResponsesCreateParams.model_validate({"input": [USER], **nulls})
    got = response(answered({"content": None, "tool_calls": None, "refusal": None}, usage=None), nulls)
    assert (got["status"], got["usage"], output_text(got)) == ("completed", None, "")


@pytest.mark.parametrize(
    ("message", "thought", "text"),
    [
        ({"reasoning_content": "hm"}, "hm", ""),
        ({"reasoning": "hm"}, "hm", ""),
        ({"reasoning": "hm", "reasoning_content": "hm", "content": "OK"}, "hm", "OK"),
        ({"content": "<think>a<think>b</think>c</think>OK"}, "a<think>b</think>c", "OK"),
        ({"reasoning": "I write </think> here", "content": "OK"}, "I write </think> here", "OK"),
        ({"content": "<think>never closed"}, None, "<think>never closed"),
        ({"content": "no tag </think> OK"}, None, "no tag </think> OK"),
    ],
)
def test_b86_reasoning_is_one_item_and_does_not_leak(message: dict[str, Any], thought: str | None, text: str):
    items = output_items(message)
    summaries = [part["text"] for item in items if item["type"] == "reasoning" for part in item["summary"]]
    assert summaries == ([] if thought is None else [thought])
    assert output_text({"output": items}) == text
    replayed = chat_request({"input": [USER, *items]})["messages"][1]["content"]
    assert replayed == (f"<think>{thought}</think>{text}" if thought is not None else text)


def test_b88_a_generation_that_used_up_its_tokens_is_incomplete():
    spent = {"prompt_tokens": 1, "completion_tokens": 100, "total_tokens": 101}
    silent = answered({"content": "", "reasoning": "long"}, "stop", usage=spent)
    cut = answered({"content": "half a"}, "length", usage=spent)
    for body in (silent, cut):
        got = response(body, {"max_output_tokens": 100})
        assert (got["status"], got["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
        assert completion(got)["choices"][0]["finish_reason"] == "length"
    assert response(silent, {"max_output_tokens": 101})["status"] == "completed"
    assert response(answered({"content": "done"}, usage=spent), {"max_output_tokens": 100})["status"] == (
        "completed"
    )


def test_b89_parts_keep_their_order_and_those_without_counterpart_are_named():
    parts = [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": "data:image/png;charset=utf-8;base64,AA", "detail": "low"},
        {"type": "input_text", "text": "?"},
    ]
    system = {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "be brief"}]}
    user = {"type": "message", "role": "user", "content": parts}
    chat = chat_request({"input": [system, user, USER]})
    assert [part["type"] for part in chat["messages"][1]["content"]] == ["text", "image_url", "text"]
    assert all("type" not in message for message in chat["messages"])
    assert responses_params(chat)["input"] == [system, user, {"type": "message", **USER}]
    for kind in ("input_audio", "input_file"):
        with pytest.raises(ConversionError, match=kind):
            chat_request({"input": [{"role": "user", "content": [{"type": kind}]}]})
    with pytest.raises(ConversionError, match="input_audio"):
        responses_params({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]})


def test_b90_ids_of_calls_are_unique_in_the_conversation_and_replayed_as_they_came():
    first = output_items({"tool_calls": [chat_call("call_0"), chat_call("call_0"), chat_call(None)]})
    results = [
        {"type": "function_call_output", "call_id": call["call_id"], "output": str(place)}
        for place, call in enumerate(first)
    ]
    conversation = [USER, *first, *results]
    second = response(answered({"tool_calls": [chat_call("call_0")]}, "tool_calls"), {"input": conversation})
    ids = [call["call_id"] for call in function_calls({"output": [*first, *second["output"]]})]
    assert len(set(ids)) == 4 and None not in ids
    assert ids[0] == "call_0"
    again = chat_request({"input": [*conversation, *second["output"]]})["messages"]
    assert [call["id"] for call in again[1]["tool_calls"]] == ["call_0", "call_0", ids[2]]
    assert [(m["tool_call_id"], m["content"]) for m in again[2:5]] == [
        ("call_0", "0"),
        ("call_0", "1"),
        (ids[2], "2"),
    ]
    assert again[5]["tool_calls"][0]["id"] == "call_0"


@pytest.mark.parametrize("text", ["  a\n\n", "a\r\n", "\t", ""])
def test_b91_text_is_byte_identical_after_both_conversions(text: str):
    items = output_items({"content": text})
    assert output_text({"output": items}) == text
    assert (chat_request({"input": items})["messages"][0]["content"] or "") == text
    assert chat_request({"input": [said(text, " b")]})["messages"][0]["content"] == text + " b"
    messages = [USER, {"role": "tool", "tool_call_id": "c", "content": text}]
    assert chat_request(responses_params({"messages": messages}))["messages"] == messages


def test_b94_token_ids_are_whole_or_refused_and_stay_on_their_turn():
    with pytest.raises(ConversionError, match="without generation_token_ids"):
        chat_request({"input": [USER, said("x", prompt_token_ids=[1])]}, keep_token_ids=True)
    with pytest.raises(ConversionError, match="2 generated tokens, but 1 log"):
        chat_request({"input": [said("x", **IDS | {"generation_token_ids": [2, 3]})]}, keep_token_ids=True)
    empty = IDS | {"prompt_token_ids": []}
    got = chat_request({"input": [said("x", **empty), USER, said("y")]}, keep_token_ids=True)["messages"]
    assert {key: got[0][key] for key in IDS} == empty
    assert not set(IDS) & set(got[2])
    assert {key: responses_params({"messages": [got[0]]})["input"][0][key] for key in IDS} == empty
