"""Two programs' files, field by field.

    for found in differences(left_folder, right_folder, "rollouts.jsonl"):
        found.place        # "rollouts.jsonl: response.output[].id": list items of one kind are one place
        found.key          # (3, 1): the rollout, where the file has one a line
        found.left, found.right     # ABSENT where one side has no such field

Lists at the top, and lines, are compared row by row: those with an identity by it, whatever their order.
Numbers are equal within 1e-9 of each other: two programs may add in another order.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TOLERANCE = 1e-9


class _Absent:
    def __repr__(self) -> str:
        return "(absent)"


ABSENT = _Absent()
Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    place: str
    key: Key
    left: Any
    right: Any


def differences(left: Path, right: Path, name: str) -> Iterator[Difference]:
    """Of one file of two folders; a file that only one side has is one difference."""
    files = left / name, right / name
    if not all(file.exists() for file in files):
        if any(file.exists() for file in files):
            yield Difference(name, (), *("there" if file.exists() else ABSENT for file in files))
        return
    ours, theirs = (_rows(file) for file in files)
    for key in {**ours, **theirs}:
        for path, *values in _deep("", ours.get(key, ABSENT), theirs.get(key, ABSENT)):
            yield Difference(f"{name}: {path}" if path else name, key, *values)


def compared(folder: Path, name: str) -> int:
    """How many values a file holds, to say how much was compared."""
    file = folder / name
    return sum(_leaves(row) for row in _rows(file).values()) if file.exists() else 0


def _rows(file: Path) -> dict[Key, Any]:
    text = file.read_text("utf-8")
    if file.suffix == ".json":
        return _by_identity(json.loads(text))
    return _by_identity([json.loads(line) for line in text.split("\n") if line])


def _by_identity(rows: Any) -> dict[Key, Any]:
    if not isinstance(rows, list):
        return {(): rows}
    found: dict[Key, Any] = {}
    for position, row in enumerate(rows):
        key = _identity(row) or (position,)
        same = sum(other[: len(key)] == key for other in found)
        found[(*key, same) if same else key] = row
    return found


def _identity(row: Any) -> Key:
    if not isinstance(row, dict):
        return ()
    if "verdict" in row:
        return (row["rollout_id"],)
    names = ("_ng_task_index", "_ng_rollout_index", "_ng_attempt_index", "_ng_environment_server")
    key = (*(row.get(name) for name in names), (row.get("agent_ref") or {}).get("name"))
    return key if any(part is not None for part in key) else ()


def _deep(path: str, left: Any, right: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(left, dict) and isinstance(right, dict):
        for name in {**left, **right}:
            inner = f"{path}.{name}" if path else name
            yield from _deep(inner, left.get(name, ABSENT), right.get(name, ABSENT))
    elif isinstance(left, list) and isinstance(right, list):
        for position in range(max(len(left), len(right))):
            pair = (side[position] if position < len(side) else ABSENT for side in (left, right))
            yield from _deep(f"{path}[]", *pair)
    elif not _equal(left, right):
        yield path, left, right


def _equal(left: Any, right: Any) -> bool:
    numbers = [
        value for value in (left, right) if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    if len(numbers) == 2 and type(left) is not type(right):
        return False
    if len(numbers) == 2:
        return math.isclose(left, right, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return type(left) is type(right) and left == right


def _leaves(value: Any) -> int:
    if isinstance(value, dict):
        return sum(map(_leaves, value.values()))
    return sum(map(_leaves, value)) if isinstance(value, list) else 1
