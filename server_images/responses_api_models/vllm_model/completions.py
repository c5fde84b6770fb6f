"""Chat over /completions: a base model's prompt out of messages, and a message out of its text.

render_chat_template: false     one user message, before it perhaps one of the system, as they stand
true, `tokenizer` a folder      its chat template, rendered here
true, no `tokenizer`            the endpoint's own template, rendered by its /tokenize: the prompt is ids
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from gymctl.contract.responses import JsonObject
from gymctl.servers.models.server import ConversionError

Prompt: TypeAlias = "str | list[int]"

_CHAT_ONLY = frozenset(
    {
        *("messages", "tools", "tool_choice", "parallel_tool_calls", "chat_template_kwargs", "metadata"),
        *("add_generation_prompt", "continue_final_message", "reasoning_effort", "top_logprobs", "logprobs"),
        *("max_completion_tokens", "verbosity", "store", "service_tier", "modalities", "prediction"),
        *("moderation", "prompt_cache_key", "prompt_cache_retention", "safety_identifier"),
        *("web_search_options", "thinking", "output_config", "stream_options"),
    }
)
_CHANGES_THE_ANSWER = ("modalities", "prediction", "web_search_options", "thinking", "output_config")


def raw_prompt(messages: Sequence[Mapping[str, object]], has_tools: bool) -> str:
    """The text of the messages. Raises ConversionError for anything that would need a template."""
    roles = [message["role"] for message in messages]
    if roles not in (["user"], ["system", "user"]):
        raise ConversionError(
            f"without `render_chat_template` /completions takes a user message, before it perhaps one of the "
            f"system; got {roles}"
        )
    if has_tools:
        raise ConversionError(
            "without `render_chat_template` there is nothing that tells a model of its tools"
        )
    return "\n\n".join(_text(message) for message in messages)


def check_text_only(messages: Sequence[Mapping[str, object]]) -> None:
    for message in messages:
        _text(message)


def _text(message: Mapping[str, object]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    assert isinstance(content, list)
    for part in content:
        if part.get("type") != "text":
            raise ConversionError(f"/completions takes text only, got a part of type {part.get('type')!r}")
    return "".join(part.get("text") or "" for part in content)


def body(chat: JsonObject, prompt: Prompt, wants_tokens: bool) -> JsonObject:
    """The request for /completions that asks the same as the chat request."""
    for key in _CHANGES_THE_ANSWER:
        if chat.get(key) is not None:
            raise ConversionError(f"`{key}` has no counterpart in /completions")
    asked = {key: value for key, value in chat.items() if key not in _CHAT_ONLY}
    if "max_tokens" not in asked and chat.get("max_completion_tokens") is not None:
        asked["max_tokens"] = chat["max_completion_tokens"]
    if chat.get("logprobs") or chat.get("top_logprobs") is not None:
        asked["logprobs"] = chat.get("top_logprobs") or 0
    if wants_tokens:
        asked |= {"return_token_ids": True, "return_tokens_as_token_ids": True}
    return {**asked, "prompt": prompt}


def chat_completion(answer: JsonObject, prompt: Prompt) -> JsonObject:
    """The answer of /completions as a chat completion, what it tells of tokens where chat has it."""
    choices = answer.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise ConversionError(f"the upstream's answer holds no choices: {str(answer)[:500]}")
    text = choices[0]
    choice: JsonObject = {
        "index": 0,
        "message": {"role": "assistant", "content": text.get("text") or ""},
        "finish_reason": text.get("finish_reason") or "stop",
        "logprobs": _logprobs(text.get("logprobs"), text.get("token_ids")),
    }
    chat = {key: value for key, value in answer.items() if key not in ("choices", "object")}
    chat |= {"object": "chat.completion", "choices": [choice]}
    prompt_ids = text.get("prompt_token_ids")
    if prompt_ids is None and isinstance(prompt, list):
        prompt_ids = prompt
    if text.get("token_ids") is not None and prompt_ids is not None:
        choice["token_ids"], chat["prompt_token_ids"] = text["token_ids"], prompt_ids
    return chat


def _logprobs(logprobs: JsonObject | None, ids: Sequence[int] | None) -> JsonObject | None:
    """Log probabilities in chat's shape. An endpoint that tells ids may name the tokens by their text."""
    if not logprobs or logprobs.get("token_logprobs") is None:
        return None
    names, scores = logprobs.get("tokens") or [], logprobs["token_logprobs"]
    if ids is not None and not any(str(name).startswith("token_id:") for name in names):
        names = [f"token_id:{number}" for number in ids]
    if len(names) != len(scores):
        raise ConversionError(f"the upstream named {len(names)} tokens and scored {len(scores)}")
    return {"content": [{"token": n, "logprob": s} for n, s in zip(names, scores, strict=True)]}
