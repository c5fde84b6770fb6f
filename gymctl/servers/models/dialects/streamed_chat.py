"""Chat completions as a stream: what a streaming request may say, and an answer in chunks (CONTRACT 4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gymctl.contract.responses import ChatParams, JsonObject
from gymctl.servers.models.sse import event

_LEFT_OUT = frozenset({"stream", "stream_options", "chat_template_kwargs", "thinking", "output_config"})
_COMMON = ("id", "created", "model", "system_fingerprint", "service_tier")
DONE = b"data: [DONE]\n\n"


def sanitised(body: Mapping[str, Any]) -> JsonObject:
    return {key: body[key] for key in body if key in ChatParams.model_fields and key not in _LEFT_OUT}


def wants_usage(body: Mapping[str, Any]) -> bool:
    options = body.get("stream_options")
    return isinstance(options, Mapping) and bool(options.get("include_usage"))


def events(completion: Mapping[str, Any], *, with_usage: bool) -> Iterator[bytes]:
    common = {key: completion[key] for key in _COMMON if key in completion}
    common["object"] = "chat.completion.chunk"
    for position, choice in enumerate(completion.get("choices") or ()):
        index = choice.get("index", position)
        for delta in _deltas(choice.get("message") or {}):
            entry: JsonObject = {"index": index, "delta": delta, "finish_reason": None}
            if "content" in delta and choice.get("logprobs") is not None:
                entry["logprobs"] = choice["logprobs"]
            yield event({**common, "choices": [entry]})
        last = {"index": index, "delta": {}, "finish_reason": choice.get("finish_reason")}
        yield event({**common, "choices": [last]})
    if with_usage:
        yield event({**common, "choices": [], "usage": completion.get("usage")})
    yield DONE


def _deltas(message: Mapping[str, Any]) -> Iterator[JsonObject]:
    yield {"role": message.get("role") or "assistant"}
    for key, value in (
        ("reasoning_content", message.get("reasoning_content") or message.get("reasoning")),
        ("content", message.get("content")),
        ("refusal", message.get("refusal")),
    ):
        if value:
            yield {key: value}
    calls = message.get("tool_calls")
    if calls:
        yield {"tool_calls": [{"index": index, **call} for index, call in enumerate(calls)]}


def failed(message: str) -> bytes:
    """An error after the headers are out; no `[DONE]` follows it."""
    return event({"error": {"message": message, "type": "server_error", "code": "server_error"}}, "error")
