"""Reasoning inside text: wrapped in think tags on its way to chat, taken out again on the way back.

A block ends at the tag that closes it, blocks inside it counted; where the tags do not balance, at the first
closing tag. An opening tag without any closing tag behind it, and a closing tag that opens nowhere, are text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_BEGIN, _END = "<think>", "</think>"
_TAG = re.compile(f"{_BEGIN}|{_END}")


def wrap(thoughts: Iterable[str]) -> str:
    """Each non-empty thought in its own pair of tags, in order."""
    return "".join(f"{_BEGIN}{thought}{_END}" for thought in thoughts if thought)


def split(text: str) -> tuple[list[str], str]:
    """The thoughts in `text`, and `text` without them."""
    if _BEGIN not in text:
        return [], text
    thoughts: list[str] = []
    kept: list[str] = []
    place = 0
    for begin, end in _blocks(text):
        if begin >= place:
            kept.append(text[place:begin])
            thoughts.append(text[begin + len(_BEGIN) : end])
            place = end + len(_END)
    return thoughts, "".join([*kept, text[place:]])


def _blocks(text: str) -> list[tuple[int, int]]:
    """Where each opening tag and its closing tag stand, by the place of the first; blocks may overlap."""
    partner: dict[int, int] = {}
    opened: list[int] = []
    unmatched_since_close: list[int] = []
    for tag in _TAG.finditer(text):
        place = tag.start()
        if tag.group() == _BEGIN:
            opened.append(place)
            unmatched_since_close.append(place)
            continue
        if opened:
            partner[opened.pop()] = place
        for begin in unmatched_since_close:
            partner.setdefault(begin, place)  # replaced when its own closing tag comes
        unmatched_since_close.clear()
    return sorted(partner.items())
