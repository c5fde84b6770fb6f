"""What YAML 1.1 makes of plain words and numbers, and how to write the text that was meant."""

from __future__ import annotations

import re
import shlex

from gymctl.config.model import Origin
from gymctl.config.reading.grammar import quoted
from gymctl.config.tree.origins import Path, dotted

_WORDS = frozenset({"yes", "no", "on", "off"})
_OCTAL = re.compile(r"[-+]?0[0-7_]+")


def is_plain(text: str, value: object) -> bool:
    """Is this how the value is written anyway? `12` and `true` are, `0012` and `no` are not."""
    if isinstance(value, bool):
        return text in ("true", "false")
    return text == (repr(value) if isinstance(value, float) else str(value))


def surprise(text: str, value: object) -> str | None:
    """How YAML 1.1 reads a plain scalar that most people read otherwise; None for all others."""
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}" if text.lower() in _WORDS else None
    if not isinstance(value, (int, float)):
        return None
    if ":" in text:
        return f"the number {value} (base 60)"
    if "_" in text:
        return f"the number {value}"
    if isinstance(value, int) and _OCTAL.fullmatch(text):
        return f"the number {value} (octal)"
    return None


def quote_hint(path: Path, value: object, origin: Origin | None, *, is_hidden: bool = False) -> str:
    """How to write the value of `path` as text where it was written."""
    if is_hidden or origin is None or isinstance(value, (dict, list)):
        return "put quotes around it"
    written = origin.raw if origin.raw is not None else _written(value)
    if origin.source.startswith("+"):
        return _quoted_token(path, written, origin)
    meaning = surprise(written, value)
    reason = f"; unquoted, YAML reads it as {meaning}" if meaning else ""
    place = "- " if isinstance(path[-1], int) else f"{path[-1]}: "
    return f'for text, quote it: {place}"{written}"{reason}'


def _quoted_token(path: Path, written: str, origin: Origin) -> str:
    if origin.source.lstrip("+") != dotted(path):
        return "put quotes around it"
    return f"for text, quote it twice: {shlex.quote(f'{origin.source}={quoted(written)}')}"


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
