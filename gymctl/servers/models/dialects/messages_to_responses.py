"""A request in Anthropic's Messages dialect as a Responses request (CONTRACT 4)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gymctl.contract.messages import Message, MessagesParams
from gymctl.contract.responses import JsonObject
from gymctl.servers.stack.wire import invalid

_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_SAME = ("model", "temperature", "top_p")
WITHOUT_COUNTERPART = ("stop_sequences", "top_k")
"""Left out: Responses has no word for them."""


def responses_params(request: MessagesParams) -> JsonObject:
    """Translate a request. Raises InvalidBody (422) for blocks and tools that Responses has no word for."""
    params: JsonObject = {"input": [item for message in request.messages for item in _items(message)]}
    params["max_output_tokens"] = request.max_tokens
    params.update({key: value for key in _SAME if (value := getattr(request, key)) is not None})
    instructions = _text(request.system)
    if instructions:
        params["instructions"] = instructions
    if request.tools:
        params["tools"] = [_tool(tool) for tool in request.tools]
    if request.tool_choice is not None:
        params.update(_tool_choice(request.tool_choice))
    schema = ((request.output_config or {}).get("format") or {}).get("schema")
    if schema is not None:
        form = {"type": "json_schema", "name": "answer", "schema": schema, "strict": True}
        params["text"] = {"format": form}
    # `user_id` tells Anthropic who abuses its service; other texts may mean something to a model server.
    metadata = {key: value for key, value in (request.metadata or {}).items() if isinstance(value, str)}
    metadata.pop("user_id", None)
    if metadata:
        params["metadata"] = metadata
    return params


def _text(system: str | Sequence[Mapping[str, Any]] | None) -> str:
    if system is None or isinstance(system, str):
        return system or ""
    return "\n\n".join(filter(None, (block.get("text") for block in system)))


def _tool(tool: Mapping[str, Any]) -> JsonObject:
    if tool.get("type") not in (None, "custom") or not isinstance(tool.get("name"), str):
        raise _no_word("tools", f"a tool of type {tool.get('type')!r}", tool)
    return {
        "type": "function",
        "name": tool["name"],
        "description": tool.get("description"),
        "parameters": tool.get("input_schema") or {"type": "object", "properties": {}},
        "strict": bool(tool.get("strict")),
    }


def _tool_choice(choice: Mapping[str, Any]) -> JsonObject:
    kind = choice.get("type")
    if kind == "tool":
        found: Any = {"type": "function", "name": choice.get("name")}
    elif kind in _CHOICES:
        found = _CHOICES[kind]
    else:
        raise _no_word("tool_choice", f"a choice of type {kind!r}", choice)
    params: JsonObject = {"tool_choice": found}
    if choice.get("disable_parallel_tool_use"):
        params["parallel_tool_calls"] = False
    return params


def _items(message: Message) -> Iterator[JsonObject]:
    """Blocks of one kind that follow each other make one message; calls, results and thoughts are items."""
    blocks = message.content
    if isinstance(blocks, str):
        blocks = [{"type": "text", "text": blocks}]
    parts: list[JsonObject] = []
    convert = _user_block if message.role == "user" else _assistant_block
    for block in blocks:
        is_part, value = convert(block)
        if is_part:
            parts.append(value)
            continue
        yield from _message(message.role, parts)
        parts = []
        yield value
    yield from _message(message.role, parts)


def _message(role: str, parts: list[JsonObject]) -> Iterator[JsonObject]:
    if parts:
        yield {"type": "message", "role": role, "content": parts}


def _user_block(block: Mapping[str, Any]) -> tuple[bool, JsonObject]:
    if block["type"] != "tool_result":
        return True, _input_part(block)
    content = block.get("content") or ""
    if not isinstance(content, str):
        parts = [_input_part(part) for part in content]
        is_text = all(part["type"] == "input_text" for part in parts)
        content = "".join(part["text"] for part in parts) if is_text else parts
    return False, {"type": "function_call_output", "call_id": block.get("tool_use_id"), "output": content}


def _assistant_block(block: Mapping[str, Any]) -> tuple[bool, JsonObject]:
    kind = block["type"]
    if kind == "text":
        return True, {"type": "output_text", "text": block.get("text") or "", "annotations": []}
    if kind == "tool_use":
        arguments = json.dumps(block.get("input") or {}, ensure_ascii=False)
        call = {"type": "function_call", "call_id": block.get("id"), "name": block.get("name")}
        return False, {**call, "arguments": arguments}
    if kind == "thinking":
        summary = [{"type": "summary_text", "text": block.get("thinking") or ""}]
        return False, _reasoning(summary, block.get("signature"))
    if kind == "redacted_thinking":
        return False, _reasoning([], block.get("data"))
    raise _no_word("messages", f"an assistant block of type {kind!r}", block)


def _reasoning(summary: list[JsonObject], encrypted: str | None) -> JsonObject:
    item: JsonObject = {"type": "reasoning", "summary": summary}
    return {**item, "encrypted_content": encrypted} if encrypted else item


def _input_part(block: Mapping[str, Any]) -> JsonObject:
    kind, source = block["type"], block.get("source") or {}
    if kind == "text":
        return {"type": "input_text", "text": block.get("text") or ""}
    match kind, source.get("type"):
        case "image", "url":
            return {"type": "input_image", "image_url": source.get("url"), "detail": "auto"}
        case "image", "base64":
            return {"type": "input_image", "image_url": _data_url(source), "detail": "auto"}
        case "document", "url":
            return {"type": "input_file", "file_url": source.get("url")}
        case "document", "base64":
            name = block.get("title") or "document.pdf"
            return {"type": "input_file", "filename": name, "file_data": _data_url(source)}
        case "document", "text":
            return {"type": "input_text", "text": source.get("data") or ""}
    raise _no_word(
        "messages", f"a block of type {kind!r} with a source of type {source.get('type')!r}", block
    )


def _data_url(source: Mapping[str, Any]) -> str:
    return f"data:{source.get('media_type')};base64,{source.get('data')}"


def _no_word(key: str, what: str, value: Any) -> Exception:
    return invalid("value_error", (key,), f"{what} has no counterpart in the Responses dialect", value)
