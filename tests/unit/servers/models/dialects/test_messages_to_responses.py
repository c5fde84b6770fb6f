"""Requests of Anthropic's dialect that cannot be read are refused, with the place of what is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from gymctl.contract.messages import MessagesParams
from gymctl.servers.models.dialects.messages_to_responses import responses_params
from gymctl.servers.stack.wire import InvalidBody, validated


def said(*blocks: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(blocks)}]}


def result(content: Any) -> dict[str, Any]:
    return said({"type": "tool_result", "tool_use_id": "a", "content": content})


HELLO = {"messages": [{"role": "user", "content": "x"}]}
BLOCK = "body.messages.0.content.blocks.0"


@pytest.mark.parametrize(
    ("body", "place", "told"),
    [
        (said({"text": "x"}), BLOCK, "needs `type`"),
        (said({"type": "text", "text": 5}), BLOCK, "`text` of a content block must be a string"),
        (said({"type": "image", "source": "x"}), BLOCK, "`source` of a content block must be an object"),
        (result(5), BLOCK, "`content` of a tool_result must be a string or a list"),
        (result(["x"]), BLOCK, "a content block must be an object"),
        (result([{"text": "x"}]), BLOCK, "needs `type`"),
        (result([{"type": "text", "text": 5}]), BLOCK, "`text` of a content block must be a string"),
        (HELLO | {"system": [{"type": "text", "text": 5}]}, "body.system.blocks.0", "must be a string"),
        (HELLO | {"output_config": {"format": "json"}}, "body.output_config", "`format` must be an object"),
        (HELLO | {"tool_choice": {"type": ["auto"]}}, "body.tool_choice", "needs `type`"),
    ],
)
def test_4_what_cannot_be_read_is_refused_with_its_place(body: dict[str, Any], place: str, told: str):
    with pytest.raises(InvalidBody) as caught:
        responses_params(validated(MessagesParams, {"max_tokens": 5, **body}))
    (error,) = caught.value.errors
    assert ".".join(str(step) for step in error["loc"]) == place
    assert told in error["msg"]


def test_4_results_of_tools_may_be_text_blocks_or_nothing():
    for content, output in ((None, ""), ("x", "x"), ([{"type": "text", "text": "x"}], "x")):
        params = responses_params(validated(MessagesParams, {"max_tokens": 5, **result(content)}))
        assert params["input"] == [{"type": "function_call_output", "call_id": "a", "output": output}]
