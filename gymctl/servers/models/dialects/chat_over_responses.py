"""Chat completions over something that only speaks Responses: the request there, the answer back."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any

from gymctl.contract.responses import TOKEN_FIELDS, JsonObject
from gymctl.servers.models.dialects.errors import ConversionError
from gymctl.servers.models.dialects.token_fields import bundle

_SAME = (
    "metadata",
    "model",
    "moderation",
    "parallel_tool_calls",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "store",
    "temperature",
    "top_logprobs",
    "top_p",
    "user",
)
_KNOWN = {
    *_SAME,
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "messages",
    "n",
    "reasoning_effort",
    "response_format",
    "stream",
    "stream_options",
    "tool_choice",
    "tools",
    "verbosity",
}
_FINISH = {"max_output_tokens": "length", "content_filter": "content_filter"}


def responses_params(chat: Mapping[str, Any]) -> JsonObject:
    """Translate a chat request; raise ConversionError for what Responses has no word for (`stop`, …)."""
    for key, value in chat.items():
        if value is not None and (key not in _KNOWN or (key == "n" and value != 1)):
            raise ConversionError(f"`{key}` has no counterpart in the Responses dialect")
    params: JsonObject = {"input": [item for message in chat["messages"] for item in _items(message)]}
    params.update({key: chat[key] for key in _SAME if chat.get(key) is not None})
    limits = [chat[key] for key in ("max_completion_tokens", "max_tokens") if chat.get(key) is not None]
    if limits:
        params["max_output_tokens"] = limits[0]
    if chat.get("reasoning_effort") is not None:
        params["reasoning"] = {"effort": chat["reasoning_effort"]}
    if text := _text(chat):
        params["text"] = text
    if chat.get("tools"):
        params["tools"] = [_unnest(tool) for tool in chat["tools"]]
    if chat.get("tool_choice") is not None:
        params["tool_choice"] = _choice(chat["tool_choice"])
    if chat.get("logprobs"):
        params["include"] = ["message.output_text.logprobs"]
    return params


def _unnest(entry: Mapping[str, Any]) -> JsonObject:
    kind = entry["type"]
    return {"type": kind, **(entry.get(kind) or {})}


def _choice(choice: str | Mapping[str, Any]) -> str | JsonObject:
    return choice if isinstance(choice, str) else _unnest(choice)


def _text(chat: Mapping[str, Any]) -> JsonObject:
    text: JsonObject = {}
    if chat.get("verbosity") is not None:
        text["verbosity"] = chat["verbosity"]
    form = chat.get("response_format")
    if form is not None and form.get("type") != "text":
        text["format"] = _unnest(form)
    return text


def _items(message: Mapping[str, Any]) -> list[JsonObject]:
    role, content = message["role"], message.get("content")
    if role == "tool":
        return [
            {
                "type": "function_call_output",
                "call_id": message.get("tool_call_id"),
                "output": _tool_output(content),
            }
        ]
    if role == "assistant":
        return _assistant_items(message)
    if not isinstance(content, str):
        content = [_part(part) for part in content or ()]
    return [{"type": "message", "role": role, "content": content}]


def _tool_output(content: Any) -> str | list[JsonObject]:
    if content is None or isinstance(content, str):
        return content or ""
    return [_part(part) for part in content]


def _assistant_items(message: Mapping[str, Any]) -> list[JsonObject]:
    items: list[JsonObject] = []
    if thought := message.get("reasoning_content") or message.get("reasoning"):
        summary = [{"type": "summary_text", "text": thought}]
        items.append({"type": "reasoning", "id": f"rs_{uuid.uuid4().hex}", "summary": summary})
    text, refusal = _plain(message.get("content")), message.get("refusal")
    parts: list[JsonObject] = [{"type": "output_text", "text": text, "annotations": []}] if text else []
    if refusal:
        parts.append({"type": "refusal", "refusal": refusal})
    if parts:
        items.append({"type": "message", "role": "assistant", "content": parts})
    items += [_call_item(call) for call in message.get("tool_calls") or ()]
    if items and (token_ids := bundle(message, "an assistant message")) is not None:
        items[-1].update(token_ids)
    return items


def _call_item(call: Mapping[str, Any]) -> JsonObject:
    if call.get("type") == "custom":
        return {"type": "custom_tool_call", "call_id": call["id"], **call["custom"]}
    return {"type": "function_call", "call_id": call["id"], **call["function"]}


def _plain(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.get("text") or "" for part in content)


def _part(part: Mapping[str, Any]) -> JsonObject:
    kind = part.get("type")
    if kind == "text":
        return {"type": "input_text", "text": part.get("text") or ""}
    if kind == "image_url":
        image = part["image_url"]
        return {"type": "input_image", "image_url": image["url"], "detail": image.get("detail") or "auto"}
    if kind == "video_url":
        return {"type": "input_video", "video_url": part["video_url"]["url"]}
    raise ConversionError(f"a message part of type {kind!r} has no counterpart in the Responses dialect")


def completion(response: Mapping[str, Any]) -> JsonObject:
    """Translate a Response back: one choice, reasoning out of band, token ids on the message."""
    message: JsonObject = {"role": "assistant", "content": None, "refusal": None}
    calls: list[JsonObject] = []
    for item in response.get("output") or ():
        _collect(item, message, calls)
        message.update({field: item[field] for field in TOKEN_FIELDS if field in item})
    if calls:
        message["tool_calls"] = calls
    reason = (response.get("incomplete_details") or {}).get("reason")
    finish = _FINISH.get(reason or "", "tool_calls" if calls else "stop")
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion",
        "created": int(response.get("created_at") or time.time()),
        "model": response.get("model"),
        "choices": [
            {"index": 0, "message": message, "finish_reason": finish, "logprobs": _logprobs(response)}
        ],
        "usage": _usage(response.get("usage")),
    }


def _collect(item: Mapping[str, Any], message: JsonObject, calls: list[JsonObject]) -> None:
    kind = item.get("type")
    if kind == "message":
        for part in item.get("content") or ():
            field, value = ("refusal", "refusal") if part.get("type") == "refusal" else ("content", "text")
            if part.get(value):
                message[field] = (message[field] or "") + part[value]
    elif kind == "reasoning":
        thoughts = [part.get("text") or "" for part in item.get("summary") or ()]
        message["reasoning_content"] = "\n".join(
            [*filter(None, [message.get("reasoning_content")]), *thoughts]
        )
    elif kind == "function_call":
        function = {"name": item.get("name"), "arguments": item.get("arguments") or ""}
        calls.append({"id": item.get("call_id"), "type": "function", "function": function})
    elif kind == "custom_tool_call":
        custom = {"name": item.get("name"), "input": item.get("input") or ""}
        calls.append({"id": item.get("call_id"), "type": "custom", "custom": custom})
    else:
        raise ConversionError(f"an output item of type {kind!r} has no counterpart in chat completions")


def _logprobs(response: Mapping[str, Any]) -> JsonObject | None:
    tokens = [
        token
        for item in response.get("output") or ()
        if item.get("type") == "message"
        for part in item.get("content") or ()
        for token in part.get("logprobs") or ()
    ]
    return {"content": tokens, "refusal": None} if tokens else None


def _usage(usage: Mapping[str, Any] | None) -> JsonObject | None:
    if usage is None:
        return None
    return {
        "prompt_tokens": usage.get("input_tokens", 0),
        "completion_tokens": usage.get("output_tokens", 0),
        "total_tokens": usage.get("total_tokens", 0),
        "prompt_tokens_details": {
            "cached_tokens": (usage.get("input_tokens_details") or {}).get("cached_tokens")
        },
        "completion_tokens_details": {
            "reasoning_tokens": (usage.get("output_tokens_details") or {}).get("reasoning_tokens")
        },
    }
