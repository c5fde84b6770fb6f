"""Golden exchanges A3 and A4 of the contract; A1, A2 and A5 stand with the rules of sections 2 and 3."""

from __future__ import annotations

import pytest
from fakes.contract import cookies_of
from fakes.openai_upstream import Reply

A3 = {
    "id": "resp_77",
    "created_at": 1790000001.0,
    "error": None,
    "incomplete_details": None,
    "instructions": None,
    "metadata": None,
    "model": "tiny-1",
    "object": "response",
    "output": [
        {
            "id": "msg_1",
            "content": [{"annotations": [], "text": "Hi.", "type": "output_text", "logprobs": None}],
            "role": "assistant",
            "status": "completed",
            "type": "message",
            "phase": None,
        }
    ],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "status": "completed",
    "usage": {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": None},
        "total_tokens": 12,
    },
    "user": None,
}


async def test_a3_a_model_call(http, target, model_url, upstream):
    upstream.plan(Reply(body=A3))
    async with http.post(f"{model_url}/v1/responses", json={"input": "hello"}) as answer:
        assert (answer.status, answer.content_type) == (200, "application/json")
        found = await answer.json()
        (name,) = cookies_of(answer)
    assert {key: found[key] for key in A3} == A3
    assert name.partition("___")[2] == target.servers["model"].name


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/responses", {"input": "x", "colour": 1}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "colour": 1}),
    ],
)
async def test_a4_an_unknown_parameter_is_refused(http, model_url, upstream, path, body):
    async with http.post(model_url + path, json=body) as answer:
        assert answer.status == 422
        (error,) = (await answer.json())["detail"]
    wanted = {"type": "extra_forbidden", "loc": ["body", "colour"], "input": 1}
    assert error | wanted | {"msg": "Extra inputs are not permitted"} == error
    assert upstream.posts() == 0
