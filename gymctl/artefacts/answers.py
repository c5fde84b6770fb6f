"""What a stranger sends, read with care: never more than is expected, whatever it is made of."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import aiohttp

MOST_BYTES = 4 << 20
"""Of a manifest or a list, as registries themselves accept."""
_CHUNK = 1 << 16


async def at_most(answer: aiohttp.ClientResponse, size: int = MOST_BYTES) -> bytes | None:
    """The body; None when it has more bytes than `size`."""
    data = bytearray()
    while more := await answer.content.read(_CHUNK):
        data += more
        if len(data) > size:
            return None
    return bytes(data)


def json_object(data: bytes | None) -> dict[str, Any] | None:
    """None when it is no JSON, or no object."""
    try:
        found = json.loads(data or b"")
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def list_in(found: Mapping[str, Any], key: str) -> list[Any]:
    """The list under a key; empty when something else stands there."""
    value = found.get(key)
    return value if isinstance(value, list) else []
