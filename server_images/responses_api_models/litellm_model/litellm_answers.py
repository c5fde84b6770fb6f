"""What a LiteLLM proxy answers on /responses, as a Response that every client can read (CONTRACT 13.1)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from gymctl.contract.responses import JsonObject
from gymctl.servers.models import forwarded
from gymctl.servers.models.dialects import chat_to_responses
from gymctl.servers.models.server import parsed

_CHAT_NAMES = {
    "prompt_tokens": "input_tokens",
    "prompt_tokens_details": "input_tokens_details",
    "completion_tokens": "output_tokens",
    "completion_tokens_details": "output_tokens_details",
}
_DETAILS = ("input_tokens_details", "output_tokens_details")


def response(answer: bytes, params: Mapping[str, Any]) -> bytes | JsonObject:
    """The bytes that came, if nothing is to be mended. Raises ConversionError for what is neither a Response
    nor a chat completion."""
    body = parsed(answer)
    mended = _of_completion(body, params) if _is_completion(body) else _mended(forwarded.checked(body))
    return answer if mended == body else mended


def _is_completion(body: JsonObject) -> bool:
    return bool(body.get("choices")) or body.get("object") == "chat.completion"


def _of_completion(body: JsonObject, params: Mapping[str, Any]) -> JsonObject:
    """A chat answer: for a model that LiteLLM can only ask in chat, some versions forget the way back, or go
    half of it (`output` beside `choices`)."""
    if not body.get("output"):
        translated = chat_to_responses.response(body, params)
        return translated | {"usage": _usage(body.get("usage"))}
    renamed = {key: value for key, value in body.items() if key not in ("choices", "created")}
    return _mended(
        {
            "parallel_tool_calls": params.get("parallel_tool_calls", True),
            "tool_choice": params.get("tool_choice", "auto"),
            "tools": params.get("tools", []),
            "status": "completed",
            "created_at": body.get("created") or time.time(),
            **forwarded.checked(renamed),
            "object": "response",
        }
    )


def _mended(body: JsonObject) -> JsonObject:
    mended = {**body, "output": [_item(item) for item in body["output"]]}
    reasoning = body.get("reasoning")
    if isinstance(reasoning, dict) and reasoning.get("effort") == "none":
        mended["reasoning"] = {**reasoning, "effort": None}
    if "usage" in body:
        mended["usage"] = _usage(body["usage"])
    return mended


def _item(item: JsonObject) -> JsonObject:
    """Reasoning needs a summary, and its content is of its own type."""
    if item["type"] != "reasoning":
        return item
    item = {**item, "summary": item.get("summary") or []}
    if isinstance(item.get("content"), list):
        item["content"] = [_thought(part) for part in item["content"]]
    return item


def _thought(part: Any) -> Any:
    is_text = isinstance(part, dict) and part.get("type") == "output_text"
    return {**part, "type": "reasoning_text"} if is_text else part


def _usage(told: Any) -> JsonObject | None:
    """Counts under the names of Responses, with their details; what is not told of these is null."""
    if not isinstance(told, dict):
        return None
    counts = {key: told.get(ours) or told.get(key) for key, ours in _CHAT_NAMES.items()}
    rest = {key: value for key, value in told.items() if key not in (*_CHAT_NAMES, *_CHAT_NAMES.values())}
    usage = {**rest, **(chat_to_responses.usage({**rest, **counts}) or {})}
    for key in _DETAILS:
        usage[key] = {**(told.get(key) or {}), **usage[key]}
    return usage
