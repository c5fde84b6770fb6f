"""What a model server accepts, and how usage adds up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gymctl.contract.responses import (
    ChatParams,
    Response,
    ResponsesCreateParams,
    Usage,
    drop_nulls,
    for_servers,
    output_text,
    presentable,
)


@pytest.mark.parametrize(
    ("body", "kind", "place"),
    [
        ({"input": "x", "colour": 1}, "extra_forbidden", ("colour",)),
        ({"input": "x", "colour": None}, "extra_forbidden", ("colour",)),
        ({}, "missing", ("input",)),
        ({"input": None}, "missing", ("input",)),
        ({"input": "x", "metadata": {"a": 1}}, "string_type", ("metadata", "a")),
        ({"input": "x", "temperature": "hot"}, "float_parsing", ("temperature",)),
        ({"input": "x", "tools": [{"name": "f"}]}, "value_error", ("tools", 0)),
    ],
)
def test_a_bad_body_is_refused_with_its_place(body: dict, kind: str, place: tuple):
    with pytest.raises(ValidationError) as caught:
        ResponsesCreateParams.model_validate(body)
    error = caught.value.errors()[0]
    assert (error["type"], error["loc"]) == (kind, place)


def test_nulls_are_absent():
    everything = dict.fromkeys(ResponsesCreateParams.model_fields)
    assert ResponsesCreateParams.model_validate({**everything, "input": "x"}).tools == []
    assert ChatParams.model_validate({**dict.fromkeys(ChatParams.model_fields), "messages": []}).n is None


def test_items_of_every_kind_pass_and_a_shapeless_one_does_not():
    items = [{"role": "user", "content": "x"}, {"type": "shell_call", "anything": [1]}]
    assert ResponsesCreateParams.model_validate({"input": items}).input == items
    with pytest.raises(ValidationError, match="role"):
        ResponsesCreateParams.model_validate({"input": [{"content": "x"}]})


def test_chat_params_reject_unknown_keys():
    with pytest.raises(ValidationError, match="Extra inputs"):
        ChatParams.model_validate({"messages": [], "top_k": 3})


def test_output_items_need_a_type():
    with pytest.raises(ValidationError, match="type"):
        Response.model_validate({"output": [{"role": "assistant"}]})


def test_a_usage_detail_is_unknown_as_soon_as_one_addend_does_not_know_it():
    known = Usage.of(
        {"usage": {"input_tokens": 1, "input_tokens_details": {"cached_tokens": 1}, "total_tokens": 1}}
    )
    unknown = Usage.of({"usage": {"input_tokens": 2, "input_tokens_details": None, "total_tokens": 2}})
    assert known is not None and unknown is not None
    assert (known + known).input_tokens_details.cached_tokens == 2
    total = known + unknown
    assert (total.input_tokens, total.total_tokens) == (3, 3)
    assert total.input_tokens_details.cached_tokens is None
    assert Usage.of({"usage": None}) is None


def test_drop_nulls_reaches_into_tool_schemas_but_not_into_lists():
    params = {
        "input": "x",
        "user": None,
        "tools": [
            {"parameters": {"properties": {"day": None, "city": {"enum": ["a", None]}}}, "strict": None}
        ],
    }
    assert drop_nulls(params) == {
        "input": "x",
        "tools": [{"parameters": {"properties": {"city": {"enum": ["a", None]}}}}],
    }
    assert params["user"] is None


def test_function_tools_go_to_other_servers_with_every_field_that_nemo_gym_wants():
    bare = {"type": "function", "name": "look"}
    search = {"type": "web_search"}
    params = {"input": "x", "user": None, "tools": [bare, {**bare, "strict": None}, search]}
    whole = {**bare, "parameters": None, "strict": None}
    assert for_servers(params) == {"input": "x", "tools": [whole, whole, search]}
    assert bare == {"type": "function", "name": "look"}
    once = for_servers(params)
    assert for_servers(once)["tools"] == once["tools"]
    plain = {"input": "x", "tools": [{**bare, "parameters": {}, "strict": True}]}
    assert for_servers(plain) is plain


JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=3), JSON, max_size=4))
def test_drop_nulls_is_idempotent_and_copies_only_what_it_changes(params: dict):
    once = drop_nulls(params)
    assert drop_nulls(once) is once
    assert not list(_nulls_of_dictionaries(once))


def _nulls_of_dictionaries(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (key for key, entry in value.items() if entry is None)
    for entry in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _nulls_of_dictionaries(entry)


def test_output_text_joins_messages_and_skips_the_rest():
    output = [
        {"type": "reasoning", "summary": []},
        {
            "type": "message",
            "content": [{"type": "output_text", "text": "a"}, {"type": "refusal", "refusal": "r"}],
        },
        {"type": "message", "content": "b"},
    ]
    assert output_text({"output": output}) == "ab"


def test_output_is_presented_as_every_client_reads_it():
    ids = {"prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [-0.5]}
    message = {"type": "message", "role": "assistant", "content": [], "routed_experts": None, **ids}
    call = {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "c"}
    assert presentable([message, call]) == [message, call]
    assert presentable([{**message, "content": "hi"}])[0]["content"] == [
        {"type": "output_text", "text": "hi", "annotations": []}
    ]
    assert presentable([{"type": "message", "content": None}]) == [{"type": "message", "content": []}]
    assert presentable([{**call, **dict.fromkeys(ids)}]) == [call]
    assert presentable([{**call, "prompt_token_ids": [1], "generation_token_ids": None}]) == [call]
