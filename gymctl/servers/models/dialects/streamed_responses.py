"""Responses as a stream: what a streaming request may say, and an answer as events (CONTRACT 4).

Clients that stream are agent programs of their own, which send what their own API takes. What we do not know
is left out, rather than refused as it is in plain requests.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gymctl.contract.responses import JsonObject, ResponsesCreateParams
from gymctl.servers.models.sse import event

SEPARATOR = "__"
_ROLES = frozenset({"user", "assistant", "system", "developer", "tool"})
_ITEMS = frozenset(
    {
        *("additional_tools", "apply_patch_call", "apply_patch_call_output", "code_interpreter_call"),
        *("compaction", "computer_call", "computer_call_output", "custom_tool_call"),
        *("custom_tool_call_output", "file_search_call", "image_generation_call", "item_reference"),
        *("local_shell_call", "local_shell_call_output", "mcp_approval_request", "mcp_approval_response"),
        *("mcp_call", "mcp_list_tools", "shell_call", "shell_call_output", "tool_search_call"),
        *("tool_search_output", "web_search_call"),
    }
)
_TOOLS = frozenset(
    {
        *("apply_patch", "code_interpreter", "computer", "computer_use_preview", "file_search"),
        *("image_generation", "local_shell", "mcp", "shell", "tool_search", "web_search"),
        *("web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11"),
    }
)


@dataclass
class Sanitised:
    """A streaming request as a plain one, and what it takes to make its answer fit again."""

    params: JsonObject
    names: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Flat name of a tool -> its namespace and its name there."""
    dropped: list[str] = field(default_factory=list)
    """What was left out, for the log."""


def sanitised(body: Mapping[str, Any]) -> Sanitised:
    known = ResponsesCreateParams.model_fields
    params = {key: value for key, value in body.items() if key in known and key != "stream"}
    found = Sanitised(params, dropped=[f"`{key}`" for key in body if key not in known])
    if isinstance(params.get("tools"), list):
        params["tools"] = list(_tools(params["tools"], found))
    if isinstance(params.get("input"), list):
        items = [item for item in params["input"] if _is_kept(item, _is_item(item), "item", found)]
        _fold(params, [_flat_call(item) for item in items])
    if isinstance(params.get("tool_choice"), dict):
        params["tool_choice"] = _flat_call(params["tool_choice"])
    return found


def _tools(tools: list[Any], found: Sanitised) -> Iterator[JsonObject]:
    for tool in tools:
        if isinstance(tool, dict) and tool.get("type") == "namespace" and isinstance(tool.get("name"), str):
            for inner in tool.get("tools") or ():
                if _is_kept(inner, _is_named(inner), "tool", found):
                    flat = f"{tool['name']}{SEPARATOR}{inner['name']}"
                    found.names[flat] = (tool["name"], inner["name"])
                    yield {**inner, "name": flat}
        elif _is_kept(tool, _is_named(tool) or _is_hosted(tool), "tool", found):
            yield tool


def _is_hosted(tool: Any) -> bool:
    return isinstance(tool, dict) and tool.get("type") in _TOOLS


def _is_named(tool: Any) -> bool:
    return (
        isinstance(tool, dict)
        and tool.get("type") in ("function", "custom")
        and isinstance(tool.get("name"), str)
        and isinstance(tool.get("parameters"), dict | None)
    )


def _is_kept(value: Any, is_valid: bool, kind: str, found: Sanitised) -> bool:
    if not is_valid:
        name = value.get("type") if isinstance(value, dict) else type(value).__name__
        found.dropped.append(f"{kind} {name!r}")
    return is_valid


def _is_item(item: Any) -> bool:
    if not isinstance(item, dict):
        return False
    match item.get("type", "message"):
        case "message":
            return item.get("role") in _ROLES and _is_content(item.get("content"))
        case "function_call":
            return all(isinstance(item.get(key), str) for key in ("call_id", "name", "arguments"))
        case "function_call_output":
            return isinstance(item.get("call_id"), str) and _is_content(item.get("output"))
        case "reasoning":
            return isinstance(item.get("summary"), list)
        case kind:
            return kind in _ITEMS


def _is_content(content: Any) -> bool:
    if isinstance(content, str):
        return True
    return isinstance(content, list) and all(
        isinstance(part, dict) and isinstance(part.get("type"), str) for part in content
    )


def _flat_call(item: JsonObject) -> JsonObject:
    """A replayed call, or a choice, under the name that its tool has in this request."""
    if not isinstance(item.get("namespace"), str):
        return item
    rest = {key: value for key, value in item.items() if key != "namespace"}
    return {**rest, "name": f"{item['namespace']}{SEPARATOR}{item.get('name')}"}


def _fold(params: JsonObject, items: list[JsonObject]) -> None:
    """The system and developer messages that the input begins with become part of the instructions."""
    texts = [params["instructions"]] if isinstance(params.get("instructions"), str) else []
    count = 0
    for item in items:
        text = _system_text(item)
        if text is None:
            break
        texts.append(text)
        count += 1
    if count:
        params["instructions"] = "\n\n".join(filter(None, texts))
    params["input"] = items[count:]


def _system_text(item: JsonObject) -> str | None:
    """The text of a system or developer message; None for anything else, images among them."""
    if item.get("type", "message") != "message" or item.get("role") not in ("system", "developer"):
        return None
    content = item["content"]
    if isinstance(content, str):
        return content
    if any(part["type"] not in ("input_text", "output_text", "text") for part in content):
        return None
    return "".join(part.get("text") or "" for part in content)


def events(response: JsonObject, names: Mapping[str, tuple[str, str]]) -> Iterator[bytes]:
    """The events of a Response that is complete; calls of tools in a namespace say so again."""
    if response.get("status") == "failed":
        yield from _failed(response)
        return
    output = [_restored(item, names) for item in response.get("output") or ()]
    yield from _created(response)
    for index, item in enumerate(output):
        yield _event("response.output_item.done", index + 1, output_index=index, item=item)
    yield _event("response.completed", len(output) + 1, response={**response, "output": output})


def _restored(item: JsonObject, names: Mapping[str, tuple[str, str]]) -> JsonObject:
    if item.get("type") not in ("function_call", "custom_tool_call") or item.get("name") not in names:
        return item
    namespace, name = names[item["name"]]
    return {**item, "name": name, "namespace": namespace}


def failed(params: JsonObject, message: str) -> Iterator[bytes]:
    """The events of a request whose backend failed."""
    response: JsonObject = {
        "id": f"resp_{uuid.uuid4().hex}",
        "created_at": time.time(),
        "error": {"code": "server_error", "message": message},
        "incomplete_details": None,
        "instructions": params.get("instructions"),
        "metadata": params.get("metadata"),
        "model": params.get("model") or "",
        "object": "response",
        "output": [],
        "parallel_tool_calls": params.get("parallel_tool_calls", True),
        "tool_choice": params.get("tool_choice", "auto"),
        "tools": params.get("tools", []),
        "status": "failed",
        "usage": None,
    }
    yield from _failed(response)


def _failed(response: JsonObject) -> Iterator[bytes]:
    yield from _created(response)
    yield _event("response.failed", 1, response=response)


def _created(response: JsonObject) -> Iterator[bytes]:
    begun = {"status": "in_progress", "output": [], "error": None, "incomplete_details": None, "usage": None}
    yield _event("response.created", 0, response={**response, **begun})


def _event(kind: str, number: int, **fields: Any) -> bytes:
    return event({"type": kind, "sequence_number": number, **fields}, kind)
