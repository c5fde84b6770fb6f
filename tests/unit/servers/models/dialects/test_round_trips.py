"""Responses -> chat -> Responses, and the other way round: what both can say comes back as it was."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gymctl.servers.models.dialects.chat_over_responses import completion, responses_params
from gymctl.servers.models.dialects.chat_to_responses import response
from gymctl.servers.models.dialects.responses_to_chat import chat_request

JsonObject = dict[str, Any]

TEXT = st.text(max_size=12).filter(lambda text: "think>" not in text)
SOME = TEXT.filter(bool)
IDS = st.lists(st.integers(0, 2**31), min_size=1, max_size=4)


@st.composite
def bundles(draw: st.DrawFn) -> JsonObject:
    if not draw(st.booleans()):
        return {}
    generated = draw(IDS)
    return {
        "prompt_token_ids": draw(st.lists(st.integers(0, 2**31), max_size=4)),
        "generation_token_ids": generated,
        "generation_log_probs": [-0.5] * len(generated),
    }


PARTS = st.one_of(
    st.builds(lambda text: {"type": "input_text", "text": text}, TEXT),
    st.builds(
        lambda url, detail: {"type": "input_image", "image_url": url, "detail": detail},
        SOME,
        st.sampled_from(["auto", "low", "high"]),
    ),
    st.builds(lambda url: {"type": "input_video", "video_url": url}, SOME),
)
MESSAGES = st.builds(
    lambda role, content: {"type": "message", "role": role, "content": content},
    st.sampled_from(["user", "system", "developer"]),
    TEXT | st.lists(PARTS, max_size=3),
)
OUTPUTS = TEXT | st.lists(
    st.builds(lambda text: {"type": "input_text", "text": text}, TEXT), min_size=2, max_size=3
)


@st.composite
def turns(draw: st.DrawFn, number: int) -> list[JsonObject]:
    """What one model call says, and the results of its calls. Chat has one text and one refusal a message."""
    parts: list[JsonObject] = []
    if draw(st.booleans()):
        parts.append({"type": "output_text", "text": draw(SOME), "annotations": []})
    if draw(st.booleans()):
        parts.append({"type": "refusal", "refusal": draw(SOME)})
    items: list[JsonObject] = [{"type": "message", "role": "assistant", "content": parts}] if parts else []
    results: list[JsonObject] = []
    for place in range(draw(st.integers(0 if items else 1, 2))):
        call_id = f"c{number}{place}"
        call = {"type": "function_call", "call_id": call_id, "name": draw(SOME), "arguments": draw(TEXT)}
        items.append(call)
        results.append({"type": "function_call_output", "call_id": call_id, "output": draw(OUTPUTS)})
    items[-1] |= draw(bundles())
    return [*items, *results]


@st.composite
def conversations(draw: st.DrawFn) -> list[JsonObject]:
    items: list[JsonObject] = []
    for number in range(draw(st.integers(1, 3))):
        items += draw(st.lists(MESSAGES, min_size=1, max_size=2))
        items += draw(turns(number))
    return items


@st.composite
def options(draw: st.DrawFn) -> JsonObject:
    tool = {"type": "function", "name": draw(SOME), "parameters": {"type": "object"}, "strict": None}
    known: JsonObject = {
        "instructions": None,
        "max_output_tokens": draw(st.integers(1, 100)),
        "temperature": draw(st.floats(0, 2)),
        "reasoning": {"effort": draw(st.sampled_from(["low", "high"]))},
        "text": {"verbosity": "low", "format": {"type": "json_schema", "name": "n", "schema": {"a": [1]}}},
        "tools": [{**tool, "strict": draw(st.booleans())}],
        "tool_choice": draw(st.sampled_from(["auto", "required", {"type": "function", "name": "f"}])),
        "parallel_tool_calls": draw(st.booleans()),
        "metadata": {"a": draw(TEXT)},
        "user": draw(SOME),
        "service_tier": "turbo",
    }
    kept = draw(st.sets(st.sampled_from(sorted(known))))
    if "tools" not in kept:
        kept -= {"tool_choice", "parallel_tool_calls"}
    return {key: known[key] for key in kept if known[key] is not None}


@settings(max_examples=60, deadline=None)
@given(conversations(), options())
def test_a_request_comes_back_from_chat_as_it_was(items: list[JsonObject], params: JsonObject):
    request = {"input": items, **params}
    assert responses_params(chat_request(request, keep_token_ids=True)) == request


@settings(max_examples=60, deadline=None)
@given(TEXT, st.text(max_size=8).filter(lambda t: "think>" not in t), st.integers(0, 3), bundles())
def test_an_answer_comes_back_from_responses_as_it_was(
    text: str, thought: str, calls: int, token_ids: JsonObject
):
    message: JsonObject = {"role": "assistant", "content": text or None, "refusal": None, **token_ids}
    if thought:
        message["reasoning_content"] = thought
    if calls:
        message["tool_calls"] = [
            {"id": f"c{place}", "type": "function", "function": {"name": "f", "arguments": str(place)}}
            for place in range(calls)
        ]
    usage = {
        "prompt_tokens": 3,
        "completion_tokens": 4,
        "total_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 1},
        "completion_tokens_details": {"reasoning_tokens": None},
    }
    finish = "tool_calls" if calls else "stop"
    choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
    body = {"object": "chat.completion", "created": 7, "model": "m", "choices": [choice], "usage": usage}
    again = completion(response(body, {}))
    del again["id"]
    assert again == body


@settings(max_examples=60, deadline=None)
@given(conversations())
def test_an_output_list_replayed_as_input_is_the_same_conversation(items: list[JsonObject]):
    """The normal form of chat: what was translated once is not changed by further translations."""
    once = chat_request({"input": items})["messages"]
    assert chat_request(responses_params({"messages": once}))["messages"] == once
