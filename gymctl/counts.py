"""How many of what, as people write it."""

from __future__ import annotations


def counted(number: int, one: str, many: str | None = None) -> str:
    """`1 image`, `2 images`, `1,200 images`; `many` where an s does not make it: `rows are` of `row is`."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"
