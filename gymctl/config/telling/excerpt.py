"""The line of a YAML file that an error points at, with a caret under the column and without secrets.

What is hidden is decided from the file's own structure, not from its text: every scalar under a secret's key,
also where it spans lines or stands inside `{…}`. Below a syntax error there is no structure; there a line is
hidden when it, or a key that it is indented under, looks like a secret's.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from gymctl.config.reading.roots import ENV_FILE
from gymctl.config.tree.masking import MASK, is_header, is_reference, is_secret, redact, secrets_of
from gymctl.errors import Place

_LARGEST = 1_000_000
_WIDTH = 100
_KEY = re.compile(r"\s*[\w.$-]+\s*:(?=\s)")
_WORD = re.compile(r"[\w.-]+")


def excerpt(place: Place) -> list[str]:
    """Two lines, ready to print; none when the file or its line cannot be read (any more)."""
    text = _text(Path(place.source))
    lines = [] if text is None else text.splitlines()
    if text is None or place.line is None or place.column is None or not 0 < place.line <= len(lines):
        return []
    scan = _scan(text)
    env = _text(Path(ENV_FILE))
    secrets = scan.secrets | (_scan(env).secrets if env is not None else set())
    is_env = Path(place.source).name == ENV_FILE
    shown, column = _hidden(lines, place.line - 1, place.column - 1, scan, is_env=is_env)
    shown, column = _moved(shown, redact(shown, secrets), column)
    shown, column = _trimmed("".join(map(_printable, shown)), column)
    number = str(place.line)
    under = "".join("  " if unicodedata.east_asian_width(char) in "WF" else " " for char in shown[:column])
    return [f"   {number} | {shown}", f"   {' ' * len(number)} | {under}^"]


@dataclass
class _Scan:
    """What the events of a file say about its secrets."""

    spans: list[tuple[tuple[int, int], tuple[int, int]]] = field(default_factory=list)
    """From (line, column) to (line, column), end excluded, counted from 0."""
    secrets: set[str] = field(default_factory=set)
    broken_from: int | None = None
    """The line from which on nothing is known: the last thing that was understood before a syntax error."""


@dataclass
class _Open:
    """A mapping or a sequence that is being read."""

    is_mapping: bool
    key: str
    """Of a mapping: the last key that was read; of a sequence: the key that it stands under."""
    is_header: bool
    has_key: bool = False


def _text(path: Path) -> str | None:
    try:
        if path.stat().st_size > _LARGEST:
            return None
        return path.read_text("utf-8")
    except (OSError, ValueError):
        return None


def _scan(text: str) -> _Scan:
    scan = _Scan()
    stack: list[_Open] = []
    line = 0
    try:
        for event in _events(text):
            line = event.start_mark.line
            _take(event, stack, scan)
    except yaml.YAMLError:
        scan.broken_from = line
    return scan


def _events(text: str) -> Iterator[Any]:
    return yaml.parse(text, Loader=yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader)


def _take(event: Any, stack: list[_Open], scan: _Scan) -> None:
    top = stack[-1] if stack else None
    if isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
        stack.pop()
        return
    if not isinstance(event, yaml.NodeEvent):
        return
    is_key = top is not None and top.is_mapping and not top.has_key
    if top is not None and top.is_mapping:
        top.has_key = is_key
    if isinstance(event, yaml.ScalarEvent):
        if is_key and top is not None:
            top.key = event.value
        elif top is not None:
            _value(event, top, scan)
        else:
            _hide(event, scan)  # a document that is one bare text: perhaps the file of a key
    elif isinstance(event, yaml.AliasEvent):
        if not is_key and top is not None and (top.is_header or is_secret(top.key)):
            _hide(event, scan)  # a key that begins with `*`
    elif isinstance(event, yaml.CollectionStartEvent):
        key = "" if top is None or is_key else top.key
        inside = top is None and isinstance(
            event, yaml.SequenceStartEvent
        )  # no config, perhaps a list of keys
        if top is not None:
            inside = top.is_header or is_header(key) or (not top.is_mapping and is_secret(top.key))
        stack.append(_Open(isinstance(event, yaml.MappingStartEvent), key, inside))


def _value(event: yaml.ScalarEvent, parent: _Open, scan: _Scan) -> None:
    scan.secrets |= secrets_of({"headers" if parent.is_header else parent.key: event.value})
    if (parent.is_header or is_secret(parent.key)) and not is_reference(event.value) and event.value:
        _hide(event, scan)


def _hide(event: Any, scan: _Scan) -> None:
    start, end = event.start_mark, event.end_mark
    scan.spans.append(((start.line, start.column), (end.line, end.column)))


def _hidden(lines: list[str], row: int, column: int, scan: _Scan, *, is_env: bool) -> tuple[str, int]:
    """The line without the secrets that stand under a secret's key."""
    line = lines[row]
    if scan.broken_from is not None and (is_env or row >= scan.broken_from):
        return _guessed(lines, row, column, is_env=is_env)
    for start, end in reversed(scan.spans):
        if not start[0] <= row <= end[0] or (row == end[0] and end[1] == 0 and start[0] < row):
            continue
        first = start[1] if start[0] == row else _depth(line)
        last = end[1] if end[0] == row else len(line)
        if first < last:
            column = column if column <= first else max(first, column - (last - first) + len(MASK))
            line = line[:first] + MASK + line[last:]
    return line, column


def _guessed(lines: list[str], row: int, column: int, *, is_env: bool) -> tuple[str, int]:
    """The line without what may be a secret, told from the words before it and the keys above it."""
    line = lines[row]
    depth = _depth(line)
    for above in range(row - 1, -1, -1):
        if lines[above].strip() and _depth(lines[above]) < depth:
            depth = _depth(lines[above])
            if _named(lines[above]) is not None:
                return line[: _depth(line)] + MASK, min(column, _depth(line))
    end = _named(line)
    if is_env:
        end = match.end() if (match := _KEY.match(line)) else _depth(line)
    if end is None or not line[end:].strip():
        return line, column
    separator = " " if end > _depth(line) else ""
    return line[:end] + separator + MASK, min(column, end)


def _named(line: str) -> int | None:
    """Where the first word ends that names a secret."""
    for match in _WORD.finditer(line):
        if is_secret(match[0]) or is_header(match[0]):
            colon = re.match(r"[\"']?\s*:", line[match.end() :])
            return match.end() + (colon.end() if colon else 0)
    return None


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def _moved(line: str, redacted: str, column: int) -> tuple[str, int]:
    """The caret stays at its text when something before it was shortened."""
    if line[:column] == redacted[:column]:
        return redacted, column
    return redacted, max(0, len(redacted) - (len(line) - column))


def _trimmed(line: str, column: int) -> tuple[str, int]:
    line = line.rstrip()
    if len(line) <= _WIDTH:
        return line, column
    start = 0 if column < _WIDTH - 20 else column - _WIDTH // 2
    shown = line[start : start + _WIDTH]
    if start + _WIDTH < len(line):
        shown = shown[:-1] + "…"
    return ("…" + shown[1:], column - start) if start else (shown, column)


def _printable(char: str) -> str:
    if char == "\t":
        return "→"
    return char if char.isprintable() else "\N{REPLACEMENT CHARACTER}"
