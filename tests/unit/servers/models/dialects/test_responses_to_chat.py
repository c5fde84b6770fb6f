"""Each row of CONTRACT 13.4."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymctl.servers.models.dialects.chat_to_responses import output_items
from gymctl.servers.models.dialects.errors import ConversionError
from gymctl.servers.models.dialects.responses_to_chat import chat_request

USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True}


def messages(*items: dict, **params: object) -> list[dict]:
    return chat_request({"input": list(items), **params})["messages"]


def call(call_id: str, **fields: object) -> dict:
    return {"type": "function_call", "call_id": call_id, "name": "f", "arguments": "{}", **fields}


def said(text: str, **fields: object) -> dict:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "role": "assistant", "content": content, **fields}


def test_string_input_is_one_user_message_with_a_part_list():
    assert chat_request({"input": "hi"}) == {
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    }


def test_roles_and_parts_keep_their_meaning():
    item = {
        "role": "user",
        "content": [
            {"type": "input_text", "text": "see"},
            {"type": "input_image", "image_url": "http://x/i.png"},
            {"type": "input_image", "image_url": "http://x/j.png", "detail": "high"},
            {"type": "input_video", "video_url": "http://x/v.mp4"},
        ],
    }
    assert messages({"role": "developer", "content": "d"}, item) == [
        {"role": "developer", "content": "d"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "see"},
                {"type": "image_url", "image_url": {"url": "http://x/i.png", "detail": "auto"}},
                {"type": "image_url", "image_url": {"url": "http://x/j.png", "detail": "high"}},
                {"type": "video_url", "video_url": {"url": "http://x/v.mp4"}},
            ],
        },
    ]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_image", "file_id": "f1"},
        {"type": "input_image", "image_url": "u", "detail": "original"},
        {"type": "input_file", "file_data": "x"},
        {"type": "input_video", "video_url": "u", "video": "v"},
        {"type": "input_video"},
    ],
)
def test_parts_without_counterpart_are_refused(part: dict):
    with pytest.raises(ConversionError):
        messages({"role": "user", "content": [part]})


def test_assistant_items_in_a_row_are_one_message():
    got = messages(
        USER,
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}]},
        said("Let me look."),
        call("c1"),
        call("c2"),
        {"type": "function_call_output", "call_id": "c1", "output": "one"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "two"}]},
        said("Done."),
    )
    assert got[1] == {
        "role": "assistant",
        "content": "<think>hm</think>Let me look.",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
            {"id": "c2", "type": "function", "function": {"name": "f", "arguments": "{}"}},
        ],
    }
    assert got[2:] == [
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
        {"role": "tool", "tool_call_id": "c2", "content": "two"},
        {"role": "assistant", "content": "Done."},
    ]


def test_refusals_are_kept_and_empty_content_is_null():
    refusal = {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}
    assert messages(USER, refusal)[1] == {"role": "assistant", "content": None, "refusal": "no"}
    assert messages(USER, call("c"))[1]["content"] is None
    assert "tool_calls" not in messages(USER, said("x"))[1]


@pytest.mark.parametrize(
    "item",
    [
        {"type": "web_search_call", "id": "w"},
        said("x", phase="commentary"),
        call("c", namespace="n"),
        {
            "type": "function_call_output",
            "call_id": "c",
            "output": [{"type": "input_image", "image_url": "u"}],
        },
        {"role": "critic", "content": "x"},
    ],
)
def test_items_without_counterpart_are_refused(item: dict):
    with pytest.raises(ConversionError):
        messages(USER, item)


def test_null_phase_and_namespace_are_absent():
    assert len(messages(USER, said("x", phase=None), call("c", namespace=None))) == 2


def test_instructions_take_in_the_leading_system_run_and_only_that():
    got = messages(
        {"role": "system", "content": "a"},
        {"role": "developer", "content": [{"type": "input_text", "text": "b"}]},
        USER,
        {"role": "system", "content": "late"},
        instructions="first",
    )
    assert [m["role"] for m in got] == ["system", "user", "system"]
    assert got[0]["content"] == "first\n\na\n\nb"


def test_without_instructions_the_system_run_stays_apart():
    got = messages({"role": "system", "content": "a"}, {"role": "system", "content": "b"}, USER)
    assert [m["content"] for m in got] == ["a", "b", "hi"]


def test_limits_effort_and_text_options_are_renamed():
    schema = {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}
    chat = chat_request(
        {
            "input": [USER],
            "max_output_tokens": 5,
            "temperature": 0.5,
            "reasoning": {"effort": "low", "summary": None},
            "text": {"format": schema, "verbosity": "low"},
        }
    )
    assert chat["max_tokens"] == 5
    assert chat["temperature"] == 0.5
    assert chat["reasoning_effort"] == "low"
    assert chat["verbosity"] == "low"
    assert chat["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": True},
    }
    assert chat_request({"input": [USER], "text": {"format": {"type": "json_object"}}})[
        "response_format"
    ] == {"type": "json_object"}
    assert "response_format" not in chat_request({"input": [USER], "text": {"format": {"type": "text"}}})


def test_tools_keep_strict():
    chat = chat_request(
        {
            "input": [USER],
            "tools": [TOOL, {"type": "custom", "name": "c"}],
            "tool_choice": {"type": "function", "name": "f"},
            "parallel_tool_calls": False,
        }
    )
    assert chat["tools"] == [
        {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, "strict": True}},
        {"type": "custom", "custom": {"name": "c"}},
    ]
    assert chat["tool_choice"] == {"type": "function", "function": {"name": "f"}}
    assert chat["parallel_tool_calls"] is False


def test_without_tools_their_options_are_dropped():
    chat = chat_request({"input": [USER], "tools": [], "tool_choice": "auto", "parallel_tool_calls": True})
    assert set(chat) == {"messages"}


@pytest.mark.parametrize(
    "params",
    [
        {"tool_choice": "required"},
        {"tools": [{"type": "web_search"}]},
        {"tools": [{**TOOL, "defer_loading": True}]},
        {"tools": [TOOL], "tool_choice": {"type": "mcp", "server_label": "s"}},
        {"reasoning": {"effort": "low", "summary": "auto"}},
        {"text": {"format": {"type": "grammar"}}},
    ],
)
def test_options_without_counterpart_are_refused(params: dict):
    with pytest.raises(ConversionError):
        chat_request({"input": [USER], **params})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("background", False),
        ("context_management", []),
        ("conversation", "c"),
        ("include", ["reasoning.encrypted_content"]),
        ("max_tool_calls", 3),
        ("previous_response_id", "r"),
        ("prompt", {"id": "p"}),
        ("truncation", "auto"),
    ],
)
def test_set_fields_of_the_stateful_api_are_refused_and_null_ones_are_not(key: str, value: object):
    with pytest.raises(ConversionError, match=key):
        chat_request({"input": [USER], key: value})
    assert chat_request({"input": [USER], key: None})


def test_token_ids_travel_only_when_asked_for():
    ids = {"prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [-0.5]}
    params = {"input": [USER, said("x", **ids)]}
    assert "prompt_token_ids" not in chat_request(params)["messages"][1]
    assert chat_request(params, keep_token_ids=True)["messages"][1]["generation_token_ids"] == [2]


@given(
    thought=st.text(alphabet="ab \n", max_size=10),
    text=st.text(alphabet="cd \n", max_size=10),
    calls=st.integers(0, 3),
)
def test_an_answer_survives_the_way_to_items_and_back(thought: str, text: str, calls: int):
    message = {
        "role": "assistant",
        "content": text or None,
        "reasoning_content": thought or None,
        "tool_calls": [
            {"id": f"c{i}", "type": "function", "function": {"name": "f", "arguments": f'{{"i":{i}}}'}}
            for i in range(calls)
        ],
    }
    again = messages(*output_items(message))
    assert len(again) == 1
    assert again[0]["content"] == ((f"<think>{thought}</think>" if thought else "") + text or None)
    assert again[0].get("tool_calls", []) == message["tool_calls"]
