"""Chat completions over something that only speaks Responses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymctl.servers.models.dialects.chat_over_responses import completion, responses_params
from gymctl.servers.models.dialects.chat_to_responses import response
from gymctl.servers.models.dialects.errors import ConversionError
from gymctl.servers.models.dialects.responses_to_chat import chat_request

WORDS = st.text(alphabet="abc ", min_size=1, max_size=12)
CALLS = st.lists(st.tuples(WORDS, st.sampled_from(["{}", '{"x":1}'])), min_size=1, max_size=3)


@st.composite
def conversations(draw: st.DrawFn) -> list[dict]:
    messages: list[dict] = [{"role": "system", "content": draw(WORDS)}] if draw(st.booleans()) else []
    for turn in range(draw(st.integers(1, 3))):
        messages.append({"role": "user", "content": draw(WORDS)})
        answer: dict = {"role": "assistant", "content": draw(WORDS)}
        calls = draw(CALLS) if draw(st.booleans()) else []
        if calls:
            answer["tool_calls"] = [
                {"id": f"c{turn}{i}", "type": "function", "function": {"name": name, "arguments": arguments}}
                for i, (name, arguments) in enumerate(calls)
            ]
        messages.append(answer)
        messages += [
            {"role": "tool", "tool_call_id": f"c{turn}{i}", "content": draw(WORDS)} for i in range(len(calls))
        ]
    return messages


@given(conversations())
def test_a_conversation_survives_the_way_to_items_and_back(messages: list[dict]):
    assert chat_request(responses_params({"messages": messages}))["messages"] == messages


def test_options_and_tools_survive_the_way_there_and_back():
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, "strict": False}}
    chat = {
        "messages": [{"role": "user", "content": "x"}],
        "max_tokens": 5,
        "temperature": 0.1,
        "reasoning_effort": "high",
        "verbosity": "low",
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}},
        "tools": [tool],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
    }
    assert chat_request(responses_params(chat)) == chat


@pytest.mark.parametrize("extra", [{"stop": ["x"]}, {"n": 2}, {"logit_bias": {"1": 1.0}}])
def test_what_responses_cannot_say_is_refused(extra: dict):
    with pytest.raises(ConversionError, match=next(iter(extra))):
        responses_params({"messages": [], **extra})


def test_an_answer_survives_the_way_there_and_back():
    message = {
        "role": "assistant",
        "content": "Hi.",
        "reasoning_content": "hm",
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        "prompt_token_ids": [1],
        "generation_token_ids": [2],
        "generation_log_probs": [-1.0],
    }
    usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    got = completion(response({"created": 7, "model": "m", "choices": [choice], "usage": usage}, {}))
    assert got["object"] == "chat.completion"
    assert got["choices"][0]["message"] == {"refusal": None, **message}
    assert got["choices"][0]["finish_reason"] == "tool_calls"
    assert {key: got["usage"][key] for key in usage} == usage


def test_incomplete_answers_keep_their_reason():
    message = {"role": "assistant", "content": "x"}
    for finish in ("length", "content_filter", "stop"):
        body = {"created": 1, "choices": [{"message": message, "finish_reason": finish}]}
        assert completion(response(body, {}))["choices"][0]["finish_reason"] == finish
