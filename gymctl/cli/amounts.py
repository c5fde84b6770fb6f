"""Bytes as a person reads them."""

from __future__ import annotations


def size(number: float) -> str:
    """`812 B`, `3.4 MB`, `1.2 GB`: decimal units, as Docker shows them."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000 or unit == "GB":
            break
        number /= 1000
    return f"{number:.0f} {unit}" if unit == "B" or number >= 100 else f"{number:.1f} {unit}"
