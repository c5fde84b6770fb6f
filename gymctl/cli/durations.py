"""Spans of time as users write them: `14m`, `90s`, `1h30m`, or plain seconds."""

from __future__ import annotations

import math
import re

from gymctl.errors import UsageError

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_SPAN = re.compile(r"(?:\d+(?:\.\d+)?[smhd])+", re.ASCII)
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhd])", re.ASCII)
_NO_LIMIT = frozenset({"", "none", "null", "inf", ".inf"})


def seconds(text: str | None, flag: str) -> float | None:
    """A time limit above 0; nothing, `none` or `inf` is no limit. Raises UsageError."""
    wanted = "" if text is None else text.strip().lower()
    if wanted in _NO_LIMIT:
        return None
    value = _seconds(wanted)
    if not value > 0:
        raise UsageError(
            f"`{flag}` must be a time above 0 (seconds, or 90s, 14m, 1h30m), got `{text}`",
            hint="none is no limit",
        )
    return None if math.isinf(value) else value


def _seconds(text: str) -> float:
    """NaN when it is no time."""
    if _SPAN.fullmatch(text):
        return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    try:
        return float(text)
    except ValueError:
        return math.nan
