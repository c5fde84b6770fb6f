"""The three token fields of one model call (CONTRACT 8.4): all of them, fitting each other, or none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymctl.contract.responses import TOKEN_FIELDS, JsonObject
from gymctl.servers.models.dialects.errors import ConversionError


def bundle(holder: Mapping[str, Any], place: str) -> JsonObject | None:
    """The three fields of an item or a chat message, or None if it has none (null is none).

    Raises ConversionError for some of them without the others, for anything but lists, and for a number of
    log probabilities that is not that of the tokens: training on it would go wrong silently. `place` names
    the holder.
    """
    given = {field: holder[field] for field in TOKEN_FIELDS if holder.get(field) is not None}
    if not given:
        return None
    missing = [field for field in TOKEN_FIELDS if field not in given]
    if missing:
        raise ConversionError(f"{place} has {', '.join(given)} without {', '.join(missing)}")
    for field, value in given.items():
        if not isinstance(value, list):
            raise ConversionError(f"`{field}` of {place} is a {type(value).__name__}, not a list")
    ids, scores = given["generation_token_ids"], given["generation_log_probs"]
    if len(ids) != len(scores):
        raise ConversionError(f"{place} has {len(ids)} generated tokens, but {len(scores)} log probabilities")
    return given
