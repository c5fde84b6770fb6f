"""Reasoning inside text: wrapped in think tags on its way to chat, taken out again on the way back."""

from __future__ import annotations

from collections.abc import Iterable

_BEGIN, _END = "<think>", "</think>"


def wrap(thoughts: Iterable[str]) -> str:
    """Each non-empty thought in its own pair of tags, in order."""
    return "".join(f"{_BEGIN}{thought}{_END}" for thought in thoughts if thought)


def split(text: str) -> tuple[list[str], str]:
    """The thoughts in `text`, and `text` without them. A tag that is not closed is text."""
    thoughts: list[str] = []
    kept: list[str] = []
    before, begin, rest = text.partition(_BEGIN)
    while begin:
        thought, end, after = rest.partition(_END)
        if not end:
            break
        thoughts.append(thought)
        kept.append(before)
        before, begin, rest = after.partition(_BEGIN)
    return thoughts, "".join([*kept, before, begin, rest])
