"""What a stranger sends, read with care: never more than is expected, whatever it is made of."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urljoin

import aiohttp
from yarl import URL

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


def place_named(answer: aiohttp.ClientResponse) -> str | None:
    """The whole address in `Location`, empty meaning the one that was asked; None where it is none."""
    try:
        joined = urljoin(str(answer.url), answer.headers.get("Location", ""))
        URL(joined, encoded=True)
    except ValueError:
        return None
    return joined


def next_page(answer: aiohttp.ClientResponse) -> str | None:
    """Where the next page of a list is (RFC 8288)."""
    try:
        link = answer.links.get("next")
    except ValueError:
        return None
    return None if link is None else str(link["url"])
