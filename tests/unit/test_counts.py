"""How many of what: one is one."""

from __future__ import annotations

import pytest

from gymctl.counts import counted


@pytest.mark.parametrize(
    ("number", "words", "text"),
    [
        (1, ("image",), "1 image"),
        (0, ("image",), "0 images"),
        (1234, ("image",), "1,234 images"),
        (1, ("row is", "rows are"), "1 row is"),
        (2, ("row is", "rows are"), "2 rows are"),
    ],
)
def test_one_is_one(number: int, words: tuple[str, ...], text: str) -> None:
    assert counted(number, *words) == text
