"""The header `Retry-After`: seconds, or a date."""

from __future__ import annotations

import email.utils
import math
import time

RETRY_AFTER = "retry-after"


def seconds(text: str | None, now: float | None = None) -> float:
    """How long to wait; 0 when nothing usable is said. `now`: seconds since 1970."""
    if not text:
        return 0.0
    try:
        value = float(text)
    except ValueError:
        value = _until(text, time.time() if now is None else now)
    return value if math.isfinite(value) and value > 0 else 0.0


def _until(date: str, now: float) -> float:
    try:
        return email.utils.parsedate_to_datetime(date).timestamp() - now
    except ValueError:
        return 0.0
