"""JSON lines in and out: orjson, and the standard library for the values that orjson refuses.

Python's json reads and writes NaN, infinities and integers beyond 64 bits; orjson refuses to read the first
two, turns them into null when it writes, and reads the third as a float or refuses it. A lone surrogate is
written as an escape. So a row survives a round trip whatever a server put into it.
"""

from __future__ import annotations

import json
import math
from typing import Any

import orjson

_DIGITS_TO_ZERO = bytes.maketrans(b"123456789", b"000000000")
_LONG = b"0" * 19
"""As many digits in a row may be an integer that orjson would turn into a float without a word."""


def loads(line: bytes) -> Any:
    """Parse one JSON value. Raises ValueError (json.JSONDecodeError has line and column)."""
    if _LONG in line.translate(_DIGITS_TO_ZERO):
        return json.loads(line)
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return json.loads(line.decode("utf-8", errors="strict"))


def unreadable(error: ValueError | RecursionError) -> str:
    """What `loads` found wrong with a line, with the column where there is one."""
    match error:
        case json.JSONDecodeError():
            return f"this line is not JSON: {error.msg} at column {error.colno}"
        case UnicodeDecodeError():
            return f"this line is not UTF-8 (byte {error.start + 1})"
        case _:
            return f"this line cannot be read: {error}"


def dumps(value: Any) -> bytes:
    """One line of JSON, without the newline."""
    try:
        encoded = orjson.dumps(value)
    except (orjson.JSONEncodeError, TypeError):
        return json.dumps(value, separators=(",", ":")).encode("ascii")
    if b"null" in encoded and _has_non_finite(value):
        return json.dumps(value, separators=(",", ":")).encode("ascii")
    return encoded


def _has_non_finite(value: Any) -> bool:
    """Whether orjson wrote a null for a NaN or an infinity somewhere in `value`."""
    open_values = [value]
    while open_values:
        current = open_values.pop()
        if isinstance(current, float):
            if not math.isfinite(current):
                return True
        elif isinstance(current, dict):
            open_values.extend(current.values())
        elif isinstance(current, (list, tuple)):
            open_values.extend(current)
    return False
