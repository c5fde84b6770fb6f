"""Secrets out of what is written, by value: keys that a prompt or an answer repeats."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

MASK = "****"


class Scrubber:
    def __init__(self, secrets: Iterable[str]) -> None:
        forms: set[str] = set()
        for secret in secrets:
            inside = secret
            for _ in range(3):  # as it is, in JSON, and in JSON that is a text inside JSON
                forms.add(inside)
                inside = json.dumps(inside, ensure_ascii=False)[1:-1]
        longest_first = sorted(filter(None, forms), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def text(self, text: str) -> str:
        return text if self._pattern is None else self._pattern.sub(MASK, text)
