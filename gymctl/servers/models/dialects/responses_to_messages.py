"""A Response as a message of Anthropic's dialect, whole or as the events of a stream (CONTRACT 4)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from gymctl.contract.responses import JsonObject
from gymctl.servers.models.dialects.errors import ConversionError
from gymctl.servers.models.sse import event

_STOPPED = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}


def message(response: Mapping[str, Any]) -> JsonObject:
    """Translate an answer. Token ids stay behind; raises ConversionError for a Response that failed."""
    if response.get("status") == "failed":
        error = response.get("error") or {}
        raise ConversionError(f"the upstream's Response failed: {error.get('message') or error}")
    content = [block for item in response.get("output") or () for block in _blocks(item)]
    return {
        "id": response.get("id") or f"msg_{uuid.uuid4().hex}",
        "type": "message",
        "role": "assistant",
        "model": response.get("model") or "",
        "content": content,
        "stop_reason": _stop_reason(response, content),
        "stop_sequence": None,
        "usage": _usage(response.get("usage") or {}),
    }


def _stop_reason(response: Mapping[str, Any], content: list[JsonObject]) -> str:
    reason = (response.get("incomplete_details") or {}).get("reason")
    if reason in _STOPPED:
        return _STOPPED[reason]
    return "tool_use" if any(block["type"] == "tool_use" for block in content) else "end_turn"


def _blocks(item: Mapping[str, Any]) -> Iterator[JsonObject]:
    kind = item.get("type")
    if kind == "message":
        content = item.get("content") or ()
        for part in [{"text": content}] if isinstance(content, str) else content:
            text = part.get("text") or part.get("refusal")
            if text:
                yield {"type": "text", "text": text}
    elif kind == "reasoning":
        yield from _thinking(item)
    elif kind == "function_call":
        call = {"type": "tool_use", "id": item.get("call_id"), "name": item.get("name")}
        yield {**call, "input": _arguments(item.get("arguments") or "")}
    else:
        raise ConversionError(f"an output item of type {kind!r} has no counterpart in the Messages dialect")


def _thinking(item: Mapping[str, Any]) -> Iterator[JsonObject]:
    """One block an item: the signature, which clients send back, holds what only the upstream can read."""
    parts = [*(item.get("content") or ()), *(item.get("summary") or ())]
    text = "\n\n".join(part.get("text") or "" for part in parts)
    encrypted = item.get("encrypted_content") or ""
    if text:
        yield {"type": "thinking", "thinking": text, "signature": encrypted}
    elif encrypted:
        yield {"type": "redacted_thinking", "data": encrypted}


def _arguments(text: str) -> JsonObject:
    """An input is an object; what a model wrote instead is shown to the tool under a name that says so."""
    try:
        value = json.loads(text or "{}")
    except ValueError:
        value = text
    return value if isinstance(value, dict) else {"invalid_arguments": text}


def _usage(usage: Mapping[str, Any]) -> JsonObject:
    """Here cached tokens are counted apart, there they are part of the input."""
    cached = (usage.get("input_tokens_details") or {}).get("cached_tokens")
    return {
        "input_tokens": max((usage.get("input_tokens") or 0) - (cached or 0), 0),
        "cache_creation_input_tokens": None,
        "cache_read_input_tokens": cached,
        "output_tokens": usage.get("output_tokens") or 0,
    }


def events(answer: JsonObject) -> Iterator[bytes]:
    """The stream of a message that is complete."""
    usage = answer["usage"]
    begun = {**answer, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 0}}
    yield _event("message_start", message=begun)
    for index, block in enumerate(answer["content"]):
        empty, deltas = _pieces(block)
        yield _event("content_block_start", index=index, content_block=empty)
        for delta in deltas:
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    delta = {key: answer[key] for key in ("stop_reason", "stop_sequence")}
    yield _event("message_delta", delta=delta, usage=usage)
    yield _event("message_stop")


def _pieces(block: JsonObject) -> tuple[JsonObject, list[JsonObject]]:
    """A block as it begins, and what is then added to it."""
    match block["type"]:
        case "text":
            return {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]
        case "thinking":
            deltas = [{"type": "thinking_delta", "thinking": block["thinking"]}]
            if block["signature"]:
                deltas.append({"type": "signature_delta", "signature": block["signature"]})
            return {**block, "thinking": "", "signature": ""}, deltas
        case "tool_use":
            text = json.dumps(block["input"], ensure_ascii=False)
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": text}]
    return block, []


def _event(kind: str, **fields: Any) -> bytes:
    return event({"type": kind, **fields}, kind)
