"""CONTRACT 13.5: a chat completion as a Response."""

from __future__ import annotations

import pytest

from gymctl.contract.responses import function_calls, output_text
from gymctl.servers.models.dialects.chat_to_responses import output_items, response, usage
from gymctl.servers.models.dialects.errors import ConversionError


def completion(message: dict, finish: str = "stop", **fields: object) -> dict:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return {"id": "x", "object": "chat.completion", "created": 7, "model": "m", "choices": [choice], **fields}


def test_a_text_answer_is_a_completed_response_that_echoes_the_request():
    got = response(completion({"content": "Hi."}), {"input": "x", "temperature": 0.5, "metadata": {"a": "b"}})
    assert got["object"] == "response"
    assert got["status"] == "completed"
    assert got["id"].startswith("resp_")
    assert got["created_at"] == 7
    assert got["model"] == "m"
    assert got["metadata"] == {"a": "b"}
    assert got["temperature"] == 0.5
    assert got["incomplete_details"] is None
    assert (got["tools"], got["tool_choice"], got["parallel_tool_calls"]) == ([], "auto", True)
    assert output_text(got) == "Hi."


@pytest.mark.parametrize(
    ("finish", "status", "details"),
    [
        ("stop", "completed", None),
        ("tool_calls", "completed", None),
        ("length", "incomplete", {"reason": "max_output_tokens"}),
        ("content_filter", "incomplete", {"reason": "content_filter"}),
    ],
)
def test_finish_reasons(finish: str, status: str, details: dict | None):
    got = response(completion({"content": "x"}, finish), {})
    assert (got["status"], got["incomplete_details"]) == (status, details)


def test_order_is_reasoning_message_calls():
    items = output_items(
        {
            "reasoning_content": "hm",
            "content": "Look:<think>more</think> now",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                {"id": "c2", "type": "function", "function": {"name": "g", "arguments": ""}},
            ],
        }
    )
    assert [item["type"] for item in items] == ["reasoning", "message", "function_call", "function_call"]
    assert [part["text"] for part in items[0]["summary"]] == ["hm", "more"]
    assert "status" not in items[0]
    assert output_text({"output": items}) == "Look: now"
    assert [(c["id"], c["call_id"], c["name"]) for c in function_calls({"output": items})] == [
        ("c1", "c1", "f"),
        ("c2", "c2", "g"),
    ]


def test_a_message_appears_only_when_there_is_something_to_say_or_nothing_else():
    assert [i["type"] for i in output_items({"reasoning": "hm", "content": ""})] == ["reasoning"]
    assert [i["type"] for i in output_items({"content": None})] == ["message"]
    refused = output_items({"content": None, "refusal": "no"})
    assert refused[0]["content"] == [{"refusal": "no", "type": "refusal"}]


def test_an_unclosed_tag_is_text():
    assert output_text({"output": output_items({"content": "<think>never ends"})}) == "<think>never ends"


def test_the_rule_decides_what_happens_to_reasoning():
    message = {"content": "<think>in</think>x", "reasoning_content": "out"}
    assert output_text({"output": output_items(message, reasoning="ignore")}) == "<think>in</think>x"
    with pytest.raises(ConversionError, match="reasoning"):
        output_items(message, reasoning="refuse")


def test_token_ids_are_on_the_last_item_all_three_or_none():
    ids = {"prompt_token_ids": [1], "generation_token_ids": [2, 3], "generation_log_probs": [-0.5, -1.0]}
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    items = output_items({"content": "x", "tool_calls": [call], **ids})
    assert "generation_token_ids" not in items[0]
    assert {key: items[1][key] for key in ids} == ids
    partial = output_items({"content": "x", **ids, "generation_log_probs": None})
    assert not set(ids) & set(partial[0])


@pytest.mark.parametrize(
    ("counts", "cached", "reasoned"),
    [
        ({}, None, None),
        ({"prompt_tokens_details": {"cached_tokens": 0}, "cached_input_tokens": 4}, 0, None),
        ({"cached_input_tokens": 4}, 4, None),
        ({"cache_read_input_tokens": 5}, 5, None),
        ({"completion_tokens_details": {"reasoning_tokens": 2}}, None, 2),
        ({"reasoning_output_tokens": 3, "prompt_tokens_details": None}, None, 3),
    ],
)
def test_usage(counts: dict, cached: int | None, reasoned: int | None):
    got = usage({"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12, **counts})
    assert got == {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": reasoned},
        "total_tokens": 12,
    }
    assert usage(None) is None


@pytest.mark.parametrize("broken", [{}, {"choices": []}, {"choices": [{}]}, {"error": {"message": "no"}}])
def test_an_answer_that_is_no_completion_is_refused(broken: dict):
    with pytest.raises(ConversionError, match="upstream"):
        response(broken, {})


def test_native_finish_reason_is_kept():
    body = completion({"content": "x"})
    body["choices"][0]["native_finish_reason"] = "eos"
    assert response(body, {})["native_finish_reason"] == "eos"


def test_the_fingerprint_of_the_version_is_kept():
    body = completion({"content": "x"})
    assert "system_fingerprint" not in response(body, {})
    assert response({**body, "system_fingerprint": "fp_44"}, {})["system_fingerprint"] == "fp_44"
