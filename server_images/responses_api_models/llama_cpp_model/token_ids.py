"""The exact tokens of an answer with their log probabilities, as CONTRACT 8.4 asks for them.

llama.cpp gives a log probability to every piece of text that it hands out, and it hands text out by whole
characters: of the tokens that make up an emoji only the last is reported. The others are scored afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gymctl.contract.responses import TOKEN_FIELDS, JsonObject
from gymctl.servers.models.server import ConversionError

if TYPE_CHECKING:
    from engine import Engine

REQUEST: JsonObject = {"return_tokens": True, "verbose": True}
"""What a chat request needs so that its answer names all tokens."""


async def add(completion: JsonObject, prompt_ids: list[int], engine: Engine) -> None:
    """Put the three fields on the answer's message. Raises ConversionError when they cannot be right."""
    counted = completion["usage"]["prompt_tokens"]
    if counted != len(prompt_ids):
        raise ConversionError(
            f"the prompt has {counted} tokens, but {len(prompt_ids)} ids were found; "
            "set `return_token_id_information: false` if token ids are not needed"
        )
    choice = completion["choices"][0]
    tokens: list[int] = completion["__verbose"]["tokens"]
    entries: list[dict[str, Any]] = (choice.get("logprobs") or {}).get("content") or []
    known = aligned(tokens, [(entry["id"], entry["logprob"]) for entry in entries])
    scores: list[float] = []
    for place, (token, score) in enumerate(zip(tokens, known, strict=True)):
        if score is None:
            score = await engine.log_probability(prompt_ids + tokens[:place], token)
        scores.append(score)
    choice["message"].update(zip(TOKEN_FIELDS, (prompt_ids, tokens, scores), strict=True))


def aligned(tokens: Sequence[int], scored: Sequence[tuple[int, float]]) -> list[float | None]:
    """The score of each token; None where it is not known.

    `scored` are some of the tokens, in order. Which ones is certain where laying them over the tokens as far
    left, and as far right, as they go leads to the same place.
    """
    leftmost = _places(tokens, [token for token, _ in scored])
    rightmost = _places(tokens[::-1], [token for token, _ in reversed(scored)])
    scores: list[float | None] = [None] * len(tokens)
    for (_, score), left, right in zip(scored, leftmost, reversed(rightmost), strict=True):
        if left == len(tokens) - 1 - right:
            scores[left] = score
    return scores


def _places(tokens: Sequence[int], some: Sequence[int]) -> list[int]:
    places: list[int] = []
    place = -1
    for token in some:
        try:
            place = tokens.index(token, place + 1)
        except ValueError as error:
            raise ConversionError("llama.cpp scored a token that it did not generate") from error
        places.append(place)
    return places
