"""Reasoning inside text: wrapped in think tags on its way to chat, taken out again on the way back."""

from __future__ import annotations

import re
from collections.abc import Iterable

_THINK = re.compile(r"<think>(.*?)</think>", re.DOTALL)


def wrap(thoughts: Iterable[str]) -> str:
    """Each non-empty thought in its own pair of tags, in order."""
    return "".join(f"<think>{thought}</think>" for thought in thoughts if thought)


def split(text: str) -> tuple[list[str], str]:
    """The thoughts in `text`, and `text` without them. A tag that is not closed is text."""
    return _THINK.findall(text), _THINK.sub("", text)
