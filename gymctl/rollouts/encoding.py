"""JSON lines in and out: orjson, and the standard library for the values that orjson refuses.

Python's json reads and writes NaN, infinities and integers beyond 64 bits; orjson refuses to read the first
two, turns them into null when it writes, and reads the third as a float or refuses it. A lone surrogate is
written as an escape. So a row survives a round trip whatever a server put into it.
"""

from __future__ import annotations

import json
import math
from typing import Any, NamedTuple

import orjson

_DIGITS_TO_ZERO = bytes.maketrans(b"123456789", b"000000000")
_LONG = b"0" * 19
"""As many digits in a row may be an integer that orjson would turn into a float without a word."""


class Parsed(NamedTuple):
    value: Any
    is_plain: bool
    """orjson read it: it holds no NaN and no infinity."""


def parse(line: bytes) -> Parsed:
    """Parse one JSON value. Raises ValueError (json.JSONDecodeError has line and column)."""
    if _LONG in line.translate(_DIGITS_TO_ZERO):
        return Parsed(json.loads(line), is_plain=False)
    try:
        return Parsed(orjson.loads(line), is_plain=True)
    except orjson.JSONDecodeError:
        return Parsed(json.loads(line.decode("utf-8", errors="strict")), is_plain=False)


def loads(line: bytes) -> Any:
    """The value of `parse`."""
    return parse(line).value


def unreadable(error: ValueError | RecursionError) -> str:
    """What `loads` found wrong with a line, with the column where there is one."""
    match error:
        case json.JSONDecodeError():
            return f"this line is not JSON: {error.msg} at column {error.colno}"
        case UnicodeDecodeError():
            return f"this line is not UTF-8 (byte {error.start + 1})"
        case _:
            return f"this line cannot be read: {error}"


def dumps(value: Any, *, is_plain: bool = False) -> bytes:
    """One line of JSON, without the newline. `is_plain`: the caller knows that there is no NaN in it; to look
    for one takes several times as long as encoding does."""
    try:
        encoded = orjson.dumps(value)
    except (orjson.JSONEncodeError, TypeError):
        return json.dumps(value, separators=(",", ":")).encode("ascii")
    if not is_plain and b"null" in encoded and _has_non_finite(value):
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
