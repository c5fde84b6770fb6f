"""A Responses request as a chat request (CONTRACT 13.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gymctl.contract.responses import JsonObject
from gymctl.servers.models.dialects import reasoning
from gymctl.servers.models.dialects.errors import ConversionError
from gymctl.servers.models.dialects.token_fields import bundle

_WITHOUT_COUNTERPART = (
    "background",
    "context_management",
    "conversation",
    "include",
    "max_tool_calls",
    "previous_response_id",
    "prompt",
    "truncation",
)
_SAME = (
    "metadata",
    "model",
    "moderation",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "store",
    "temperature",
    "top_p",
    "user",
)

UPSTREAM_CALL_ID = "upstream_call_id"
"""On a `function_call` item: the id that the upstream gave, where it was not unique in the conversation."""


def chat_request(params: Mapping[str, Any], *, keep_token_ids: bool = False) -> JsonObject:
    """Translate `params`; raise ConversionError for what chat has no word for.

    keep_token_ids: put CONTRACT 8.4's fields of replayed items on the assistant message (training engines use
    them as the exact prefix; a plain chat endpoint rejects unknown message fields).
    """
    for key in _WITHOUT_COUNTERPART:
        if params.get(key) is not None:
            raise ConversionError(f"`{key}` has no counterpart in chat completions")
    chat: JsonObject = {"messages": _messages(params, keep_token_ids)}
    chat.update({key: params[key] for key in _SAME if params.get(key) is not None})
    if params.get("max_output_tokens") is not None:
        chat["max_tokens"] = params["max_output_tokens"]
    if params.get("top_logprobs") is not None:
        chat.update(logprobs=True, top_logprobs=params["top_logprobs"])
    chat.update(_reasoning(params.get("reasoning")))
    chat.update(_text(params.get("text")))
    chat.update(_tools(params))
    return chat


def _reasoning(options: Mapping[str, Any] | None) -> JsonObject:
    options = options or {}
    for key, value in options.items():
        if key != "effort" and value is not None:
            raise ConversionError(f"`reasoning.{key}` has no counterpart in chat completions")
    effort = options.get("effort")
    return {} if effort is None else {"reasoning_effort": effort}


def _text(options: Mapping[str, Any] | None) -> JsonObject:
    options = options or {}
    chat: JsonObject = {}
    if options.get("verbosity") is not None:
        chat["verbosity"] = options["verbosity"]
    form = options.get("format") or {"type": "text"}
    if form.get("type") == "json_schema":
        chat["response_format"] = {
            "type": "json_schema",
            "json_schema": {key: value for key, value in form.items() if key != "type" and value is not None},
        }
    elif form.get("type") == "json_object":
        chat["response_format"] = {"type": "json_object"}
    elif form.get("type") != "text":
        raise ConversionError(
            f"`text.format` of type {form.get('type')!r} has no counterpart in chat completions"
        )
    return chat


def _tools(params: Mapping[str, Any]) -> JsonObject:
    choice = params.get("tool_choice")
    tools = params.get("tools") or []
    if not tools:
        if choice not in (None, "auto", "none"):
            raise ConversionError(f"`tool_choice` is {choice!r}, but the request offers no tools")
        return {}
    chat: JsonObject = {"tools": [_tool(tool) for tool in tools]}
    if params.get("parallel_tool_calls") is not None:
        chat["parallel_tool_calls"] = params["parallel_tool_calls"]
    if choice is not None:
        chat["tool_choice"] = _tool_choice(choice)
    return chat


def _tool(tool: Mapping[str, Any]) -> JsonObject:
    kind = tool.get("type")
    if kind not in ("function", "custom"):
        raise ConversionError(f"a tool of type {kind!r} has no counterpart in chat completions")
    if tool.get("defer_loading"):
        raise ConversionError(
            f"tool {tool.get('name')!r}: `defer_loading` has no counterpart in chat completions"
        )
    inner = {key: value for key, value in tool.items() if key not in ("type", "defer_loading")}
    grammar = inner.get("format")
    if kind == "custom" and isinstance(grammar, Mapping) and grammar.get("type") == "grammar":
        rules = {key: value for key, value in grammar.items() if key != "type"}
        inner["format"] = {"type": "grammar", "grammar": rules}
    return {"type": kind, kind: inner}


def _tool_choice(choice: str | Mapping[str, Any]) -> str | JsonObject:
    if isinstance(choice, str):
        return choice
    kind = choice.get("type")
    if kind in ("function", "custom"):
        return {"type": kind, kind: {"name": choice.get("name")}}
    if kind == "allowed_tools":
        named = [{"type": tool["type"], tool["type"]: {"name": tool.get("name")}} for tool in choice["tools"]]
        return {"type": kind, kind: {"mode": choice.get("mode", "auto"), "tools": named}}
    raise ConversionError(f"`tool_choice` of type {kind!r} has no counterpart in chat completions")


def _messages(params: Mapping[str, Any], keep_token_ids: bool) -> list[JsonObject]:
    items = params["input"]
    if isinstance(items, str):
        messages: list[JsonObject] = [{"role": "user", "content": [{"type": "text", "text": items}]}]
    else:
        conversation = _Conversation(keep_token_ids)
        for item in items:
            conversation.add(item)
        messages = conversation.finished()
    instructions = params.get("instructions")
    return messages if instructions is None else _with_instructions(instructions, messages)


def _with_instructions(instructions: str, messages: Sequence[JsonObject]) -> list[JsonObject]:
    """One system message at position 0 that also holds the leading run of system and developer messages."""
    texts, rest = [instructions], list(messages)
    while rest and rest[0]["role"] in ("system", "developer"):
        texts.append(_joined_text(rest.pop(0)["content"]))
    return [{"role": "system", "content": "\n\n".join(texts)}, *rest]


def _joined_text(content: str | Sequence[Mapping[str, Any]]) -> str:
    if isinstance(content, str):
        return content
    if any(part["type"] != "text" for part in content):
        raise ConversionError("a system message with something else than text cannot join `instructions`")
    return "".join(part["text"] for part in content)


class _Conversation:
    """Collects items as messages; assistant items in a row become one message."""

    def __init__(self, keep_token_ids: bool) -> None:
        self._messages: list[JsonObject] = []
        self._assistant: JsonObject | None = None
        self._keep_token_ids = keep_token_ids
        self._upstream_ids: dict[str, str] = {}
        """Of calls whose id we had to change: what the upstream called them."""

    def finished(self) -> list[JsonObject]:
        self._flush()
        return self._messages

    def add(self, item: Mapping[str, Any]) -> None:
        kind = item.get("type") or "message"
        if kind == "message" and item.get("role") == "assistant":
            self._add_assistant_message(item)
        elif kind == "reasoning":
            thoughts = [summary.get("text") or "" for summary in item.get("summary") or ()]
            self._turn(item)["text"] += reasoning.wrap(thoughts)
        elif kind == "function_call":
            self._turn(item)["calls"].append(self._call(item))
        elif kind == "function_call_output" or (kind == "message" and item.get("role") == "tool"):
            self._append(self._tool_message(item))
        elif kind == "message":
            self._append(_message(item))
        else:
            raise ConversionError(f"an item of type {kind!r} has no counterpart in chat completions")

    def _add_assistant_message(self, item: Mapping[str, Any]) -> None:
        _refuse_phase(item)
        turn = self._turn(item)
        content = item.get("content") or ""
        for part in [{"type": "output_text", "text": content}] if isinstance(content, str) else content:
            if part.get("type") in ("output_text", "input_text", "text"):
                turn["text"] += part.get("text") or ""
            elif part.get("type") == "refusal":
                turn["refusal"] = (turn["refusal"] or "") + (part.get("refusal") or "")
            else:
                raise ConversionError(
                    f"an assistant part of type {part.get('type')!r} has no counterpart in chat"
                )
        if item.get("refusal"):
            turn["refusal"] = (turn["refusal"] or "") + item["refusal"]
        # The shape that chat gives to calls; some datasets mix it into Responses input.
        turn["calls"] += item.get("tool_calls") or ()

    def _turn(self, item: Mapping[str, Any]) -> JsonObject:
        if self._assistant is None:
            self._assistant = {"text": "", "refusal": None, "calls": [], "token_ids": {}}
        if self._keep_token_ids and (token_ids := bundle(item, "a replayed item")) is not None:
            self._assistant["token_ids"] = token_ids
        return self._assistant

    def _call(self, item: Mapping[str, Any]) -> JsonObject:
        if item.get("namespace") is not None:
            raise ConversionError("`namespace` of a function call has no counterpart in chat completions")
        call_id = item.get("call_id")
        if call_id is not None and item.get(UPSTREAM_CALL_ID) is not None:
            self._upstream_ids[call_id] = item[UPSTREAM_CALL_ID]
        function = {"name": item.get("name"), "arguments": item.get("arguments") or ""}
        return {
            "id": self._upstream_ids.get(call_id or "", call_id),
            "type": "function",
            "function": function,
        }

    def _tool_message(self, item: Mapping[str, Any]) -> JsonObject:
        _refuse_phase(item)
        call_id = item.get("call_id") or item.get("tool_call_id")
        output = item.get("output") if item.get("type") == "function_call_output" else item.get("content")
        content = _tool_content(output, call_id)
        return {
            "role": "tool",
            "tool_call_id": self._upstream_ids.get(call_id or "", call_id),
            "content": content,
        }

    def _append(self, message: JsonObject) -> None:
        self._flush()
        self._messages.append(message)

    def _flush(self) -> None:
        turn, self._assistant = self._assistant, None
        if turn is None:
            return
        message: JsonObject = {"role": "assistant", "content": turn["text"] or None}
        if turn["refusal"] is not None:
            message["refusal"] = turn["refusal"]
        if turn["calls"]:
            message["tool_calls"] = turn["calls"]
        self._messages.append(message | turn["token_ids"])


def _refuse_phase(item: Mapping[str, Any]) -> None:
    if item.get("phase") is not None:
        raise ConversionError("`phase` of a message has no counterpart in chat completions")


def _message(item: Mapping[str, Any]) -> JsonObject:
    _refuse_phase(item)
    role, content = item["role"], item.get("content")
    if role not in ("user", "system", "developer"):
        raise ConversionError(f"a message of role {role!r} has no counterpart in chat completions")
    return {
        "role": role,
        "content": content if isinstance(content, str) else [_part(part) for part in content or ()],
    }


def _tool_content(output: Any, call_id: str | None) -> str | list[JsonObject]:
    """Text, or a list of text parts where there are several; anything else is refused."""
    if output is None or isinstance(output, str):
        return output or ""
    for part in output:
        if part.get("type") not in ("input_text", "output_text", "text"):
            raise ConversionError(
                f"the output of call {call_id!r} holds a part of type {part.get('type')!r}, "
                "which has no counterpart in a chat tool message"
            )
    parts: list[JsonObject] = [{"type": "text", "text": part.get("text") or ""} for part in output]
    return parts if len(parts) > 1 else "".join(part["text"] for part in parts)


def _part(part: Mapping[str, Any]) -> JsonObject:
    kind = part.get("type")
    if kind == "input_text":
        return {"type": "text", "text": part.get("text") or ""}
    if kind == "input_image":
        return {"type": "image_url", "image_url": _image(part)}
    if kind == "input_video":
        return {"type": "video_url", "video_url": _video(part)}
    raise ConversionError(f"a message part of type {kind!r} has no counterpart in chat completions")


def _image(part: Mapping[str, Any]) -> JsonObject:
    detail = part.get("detail") or "auto"
    if part.get("file_id") is not None or part.get("image_url") is None:
        raise ConversionError(
            "an image by `file_id` has no counterpart in chat completions; give `image_url`"
        )
    if detail == "original":
        raise ConversionError("image detail 'original' has no counterpart in chat completions")
    return {"url": part["image_url"], "detail": detail}


def _video(part: Mapping[str, Any]) -> JsonObject:
    sources = [part[key] for key in ("video_url", "video") if part.get(key) is not None]
    if len(sources) != 1:
        raise ConversionError("`input_video` needs exactly one of `video_url` and `video`")
    source = sources[0]
    return dict(source) if isinstance(source, Mapping) else {"url": source}
