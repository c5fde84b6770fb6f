"""A chat completion as a Response (CONTRACT 13.5)."""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

from gymctl.contract.responses import TOKEN_FIELDS, JsonObject
from gymctl.servers.models.dialects import reasoning as think
from gymctl.servers.models.dialects.errors import ConversionError
from gymctl.servers.models.dialects.responses_to_chat import UPSTREAM_CALL_ID

ReasoningRule = Literal["parse", "refuse", "ignore"]
"""`parse` makes one reasoning item of all reasoning (think blocks in the text included); `refuse` fails when
the upstream sends any out of band; `ignore` drops what comes out of band and leaves the text alone."""

_ECHOED = (
    "background",
    "conversation",
    "max_output_tokens",
    "max_tool_calls",
    "previous_response_id",
    "prompt",
    "prompt_cache_key",
    "reasoning",
    "safety_identifier",
    "service_tier",
    "temperature",
    "text",
    "top_logprobs",
    "top_p",
    "truncation",
)
_COUNTS = (
    "prompt_tokens",
    "prompt_tokens_details",
    "completion_tokens",
    "completion_tokens_details",
    "total_tokens",
    "cached_input_tokens",
    "cache_read_input_tokens",
    "reasoning_output_tokens",
)
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


def response(
    completion: Mapping[str, Any], params: Mapping[str, Any], *, reasoning: ReasoningRule = "parse"
) -> JsonObject:
    """Translate the answer to the request `params`; raise ConversionError if it is no chat completion."""
    choice = first_choice(completion)
    reason = _INCOMPLETE.get(finish_reason(choice, completion, params.get("max_output_tokens")) or "")
    output = output_items(choice["message"], reasoning=reasoning, taken=_call_ids(params.get("input")))
    if params.get("top_logprobs") is not None:
        _add_logprobs(output, choice)
    answer: JsonObject = {
        "id": f"resp_{uuid.uuid4().hex}",
        "created_at": completion.get("created") or time.time(),
        "error": None,
        "incomplete_details": {"reason": reason} if reason else None,
        "instructions": params.get("instructions"),
        "metadata": params.get("metadata"),
        "model": completion.get("model") or params.get("model"),
        "object": "response",
        "output": output,
        "parallel_tool_calls": params.get("parallel_tool_calls", True),
        "tool_choice": params.get("tool_choice", "auto"),
        "tools": params.get("tools", []),
        "status": "incomplete" if reason else "completed",
        "usage": usage(completion.get("usage")),
        "user": params.get("user"),
    }
    answer.update({key: params[key] for key in _ECHOED if params.get(key) is not None})
    if completion.get("system_fingerprint") is not None:  # which version of the model it was
        answer["system_fingerprint"] = completion["system_fingerprint"]
    if choice.get("native_finish_reason") is not None:
        answer["native_finish_reason"] = choice["native_finish_reason"]
    return answer


def first_choice(completion: Mapping[str, Any]) -> Mapping[str, Any]:
    """The first choice of a completion; raises ConversionError if the body is no chat completion."""
    choices = completion.get("choices")
    if not isinstance(choices, Sequence) or not choices:
        raise ConversionError(f"the upstream's answer holds no choices: {str(completion)[:500]}")
    if not isinstance(choices[0], Mapping) or not isinstance(choices[0].get("message"), Mapping):
        raise ConversionError(f"the upstream's answer holds no message: {str(completion)[:500]}")
    return choices[0]


def finish_reason(choice: Mapping[str, Any], completion: Mapping[str, Any], limit: int | None) -> str | None:
    """Why the generation ended. Some servers say `stop` of one that spent all its tokens on reasoning and
    has nothing to show for it; that is `length`."""
    finish = choice.get("finish_reason")
    message = choice["message"]
    if finish == "stop" and limit is not None and not (message.get("tool_calls") or message.get("refusal")):
        spent = (completion.get("usage") or {}).get("completion_tokens") or 0
        if spent >= limit and not think.split(_text_of(message))[1].strip():
            return "length"
    return finish


def _call_ids(items: Any) -> set[str]:
    if not isinstance(items, list):
        return set()
    return {item["call_id"] for item in items if item.get("type") == "function_call" and item.get("call_id")}


def output_items(
    message: Mapping[str, Any], *, reasoning: ReasoningRule = "parse", taken: Collection[str] = ()
) -> list[JsonObject]:
    """Reasoning, message, calls, in that order; never empty. Token ids go on the last one.

    taken: ids of the calls before this answer. A call that repeats one, or has none, gets an id of its own,
    so that its result is not taken for another's; what the upstream said is kept beside it for the replay.
    """
    thoughts, text = _thoughts(message, reasoning)
    items: list[JsonObject] = []
    if thoughts:
        summary = [{"type": "summary_text", "text": thought} for thought in thoughts]
        items.append({"id": f"rs_{uuid.uuid4().hex}", "summary": summary, "type": "reasoning"})
    known = set(taken)
    calls = [_call(call, known) for call in message.get("tool_calls") or ()]
    refusal = message.get("refusal")
    if text or refusal or not (items or calls):
        items.append(_message(text, refusal))
    items += calls
    if all(message.get(field) is not None for field in TOKEN_FIELDS):
        items[-1].update({field: message[field] for field in TOKEN_FIELDS})
        if message.get("routed_experts") is not None:
            items[-1]["routed_experts"] = message["routed_experts"]
    return items


def _text_of(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text") or "" for part in content)


def _thoughts(message: Mapping[str, Any], rule: ReasoningRule) -> tuple[list[str], str]:
    content = _text_of(message)
    apart = message.get("reasoning_content") or message.get("reasoning")
    if rule == "ignore":
        return [], content
    if rule == "refuse":
        if apart:
            raise ConversionError(
                "the upstream answered with reasoning, but no reasoning parser is configured "
                "(`uses_reasoning_parser: false`)"
            )
        return [], content
    inside, text = think.split(content)
    return ([apart] if apart else []) + inside, text


def _add_logprobs(output: Sequence[JsonObject], choice: Mapping[str, Any]) -> None:
    """The log probabilities that were asked for, on the text they belong to."""
    tokens = (choice.get("logprobs") or {}).get("content")
    for item in output:
        if item["type"] == "message" and item["content"][0]["type"] == "output_text":
            item["content"][0]["logprobs"] = tokens


def _message(text: str, refusal: str | None) -> JsonObject:
    content: list[JsonObject] = []
    if text or not refusal:
        content.append({"annotations": [], "text": text, "type": "output_text", "logprobs": None})
    if refusal:
        content.append({"refusal": refusal, "type": "refusal"})
    return {
        "id": f"msg_{uuid.uuid4().hex}",
        "content": content,
        "role": "assistant",
        "status": "completed",
        "type": "message",
    }


def _call(call: Mapping[str, Any], known: set[str]) -> JsonObject:
    upstream_id = call.get("id")
    call_id = upstream_id if upstream_id and upstream_id not in known else f"call_{uuid.uuid4().hex}"
    known.add(call_id)
    if call.get("type") == "custom":
        custom = call["custom"]
        return {
            "call_id": call_id,
            "input": custom.get("input") or "",
            "name": custom.get("name"),
            "type": "custom_tool_call",
            "id": call_id,
        }
    function = call.get("function")
    if not isinstance(function, Mapping):
        raise ConversionError(f"the upstream's tool call holds no function: {str(call)[:500]}")
    item: JsonObject = {
        "arguments": function.get("arguments") or "",
        "call_id": call_id,
        "name": function.get("name"),
        "type": "function_call",
        "id": call_id,
        "status": "completed",
    }
    if upstream_id and upstream_id != call_id:
        item[UPSTREAM_CALL_ID] = upstream_id
    return item


def usage(counts: Mapping[str, Any] | None) -> JsonObject | None:
    """Prompt counts as input, completion counts as output; what the upstream does not say is null, and what
    only this upstream says is kept."""
    if counts is None:
        return None
    prompt, completion = counts.get("prompt_tokens") or 0, counts.get("completion_tokens") or 0
    cached = (counts.get("prompt_tokens_details") or {}).get("cached_tokens")
    for key in ("cached_input_tokens", "cache_read_input_tokens"):
        cached = counts.get(key) if cached is None else cached
    reasoned = (counts.get("completion_tokens_details") or {}).get("reasoning_tokens")
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": completion,
        "output_tokens_details": {
            "reasoning_tokens": counts.get("reasoning_output_tokens") if reasoned is None else reasoned
        },
        "total_tokens": counts.get("total_tokens") or prompt + completion,
        **{key: value for key, value in counts.items() if key not in _COUNTS and value is not None},
    }
