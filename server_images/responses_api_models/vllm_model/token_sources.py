"""The tokens of one call (CONTRACT 13.3), from wherever the endpoint tells them: whole and agreeing.

    1  the three fields on the message        training engines put them there
    2  the answer's `prompt_token_ids` and the choice's `token_ids`      vLLM with `return_token_ids`
    3  `token_id:<int>` in the choice's log probabilities, and /tokenize for the prompt

An earlier source counts; a later one that is there as well must say the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from gymctl.contract.responses import TOKEN_FIELDS, JsonObject
from gymctl.servers.models.dialects.token_fields import bundle
from gymctl.servers.models.server import ConversionError

_MARK = "token_id:"


async def put_on_message(completion: JsonObject, tokenize: Callable[[], Awaitable[Sequence[int]]]) -> None:
    """Move the tokens onto the message of the first choice, and take the transport's fields away.

    tokenize: the prompt's ids, asked for only where the answer does not tell them.
    """
    choice = completion["choices"][0]
    message = choice["message"]
    told = _told_by_vllm(completion.pop("prompt_token_ids", None), choice.pop("token_ids", None))
    experts = choice.pop("routed_experts", None)
    found = bundle(message, "the upstream's message")
    if found is None:
        generated, scores = _scored(choice)
        if told is not None and told[1] != generated:
            raise ConversionError("the upstream's `token_ids` are not the tokens of its log probabilities")
        prompt = told[0] if told is not None else _ids(await tokenize(), "/tokenize")
        found = dict(zip(TOKEN_FIELDS, (prompt, generated, scores), strict=True))
        choice["logprobs"] = None
    else:
        _ids(found["prompt_token_ids"], "the message's `prompt_token_ids`")
        _ids(found["generation_token_ids"], "the message's `generation_token_ids`")
        if told is not None and told != (found["prompt_token_ids"], found["generation_token_ids"]):
            raise ConversionError("the upstream's token ids on the message and beside it are not the same")
    message.update(found)
    if experts is not None and message.get("routed_experts") is None:
        message["routed_experts"] = experts  # vLLM tells them beside the message, training engines on it


def _told_by_vllm(prompt: Any, generated: Any) -> tuple[list[int], list[int]] | None:
    if prompt is None and generated is None:
        return None
    if prompt is None or generated is None:
        missing = "`prompt_token_ids`" if prompt is None else "the choice's `token_ids`"
        raise ConversionError(f"the upstream told only half of the token ids: {missing} are missing")
    return _ids(prompt, "the answer's `prompt_token_ids`"), _ids(generated, "the choice's `token_ids`")


def _scored(choice: JsonObject) -> tuple[list[int], list[float]]:
    entries = (choice.get("logprobs") or {}).get("content")
    if not isinstance(entries, list):
        raise ConversionError(
            "the upstream told no log probabilities, which token ids were to be read from; "
            "does it take `logprobs` and `return_tokens_as_token_ids`?"
        )
    ids: list[int] = []
    scores: list[float] = []
    for entry in entries:
        ids.append(token_id(entry.get("token")))
        score = entry.get("logprob")
        if not isinstance(score, int | float):
            raise ConversionError(f"the upstream's log probability {score!r} is not a number")
        scores.append(float(score))
    return ids, scores


def token_id(text: Any) -> int:
    """The number in `token_id:<int>`."""
    if isinstance(text, str) and text.startswith(_MARK) and text[len(_MARK) :].isdecimal():
        return int(text[len(_MARK) :])
    raise ConversionError(f"the upstream names a token {text!r:.80}, not `{_MARK}<number>`")


def _ids(value: Any, place: str) -> list[int]:
    if not isinstance(value, list) or not set(map(type, value)) <= {int}:
        raise ConversionError(f"{place} is not a list of whole numbers: {str(value)[:200]}")
    return value
