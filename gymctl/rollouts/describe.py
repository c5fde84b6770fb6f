"""The figures of a dataset, `<stem>_metrics.json` (CONTRACT 8.7): how many rows, how long, which values.

Text is counted, numbers and booleans are summed up, lists by their elements; mappings are left out.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from gymctl.contract.rollout import Row, is_materialized

EXAMPLES = "Number of examples"
TOOLS = "Number of tools"
WORDS = "Json-dumped number of words (proxy for token count)"
TURNS = "Number of turns"
TEMPERATURE = "Temperature"
_LARGE = 1e150
_NOT_A_FIELD = frozenset({"responses_create_params", "agent_ref", "task_source", "skills_ref"})


@dataclass(slots=True)
class _Values:
    """What one field holds over all rows: eight bytes a number, sixteen a different text."""

    numbers: array[float] = field(default_factory=lambda: array("d"))
    texts: set[bytes] = field(default_factory=set)
    total: int = 0
    is_text: bool = False

    def add(self, value: object, times: int) -> None:
        self.total += times
        self.is_text = self.is_text or isinstance(value, str)
        self.texts.add(blake2b(str(value).encode("utf-8", "surrogatepass"), digest_size=16).digest())
        if isinstance(value, (bool, int, float)) and (number := _finite(value)) is not None:
            self.numbers.extend([number] * times)

    def document(self) -> dict[str, Any]:
        if self.is_text:
            return {"unique_count": len(self.texts), "total_count": self.total}
        return summary(self.numbers)


def summary(numbers: array[float]) -> dict[str, Any]:
    """Zeros where there is nothing, the sample deviation, two decimals (three below 1)."""
    count, largest = len(numbers), max(map(abs, numbers), default=0.0)
    # A sum of numbers near the end of the range would leave it, and so would their squares.
    scale = largest if largest > _LARGE else 1.0
    scaled = numbers if scale == 1.0 else array("d", (number / scale for number in numbers))
    found = {
        "Average": statistics.fmean(scaled) if count else 0.0,
        "Min": min(scaled, default=0.0),
        "Max": max(scaled, default=0.0),
        "Median": statistics.median(scaled) if count else 0.0,
        "Standard deviation": statistics.stdev(scaled) if count > 1 else 0.0,
    }
    most = sys.float_info.max / scale
    figures = {name: _rounded(min(value, most) * scale) for name, value in found.items()}
    return {"Total # non-null values": count, **figures}


@dataclass(slots=True)
class Description:
    """Filled row by row."""

    examples: int = 0
    _fixed: dict[str, array[float]] = field(
        default_factory=lambda: {name: array("d") for name in (TOOLS, WORDS, TURNS, TEMPERATURE)}
    )
    _fields: dict[str, _Values] = field(default_factory=dict)

    def add(self, row: Row, times: int = 1) -> None:
        self.examples += times
        task = row["task_input"] if is_materialized(row) else row
        if not isinstance(task, Mapping):
            return
        params = task.get("responses_create_params")
        for name, number in _fixed(params if isinstance(params, Mapping) else {}):
            self._fixed[name].extend([number] * times)
        for name, value in task.items():
            if name in _NOT_A_FIELD or name.startswith("_ng_"):
                continue
            for scalar in value if isinstance(value, list) else [value]:
                if isinstance(scalar, (str, bool, int, float)):
                    self._fields.setdefault(name, _Values()).add(scalar, times)

    def document(self) -> dict[str, Any]:
        return {
            EXAMPLES: self.examples,
            **{name: summary(numbers) for name, numbers in self._fixed.items()},
            **{name: values.document() for name, values in self._fields.items()},
        }


def conflicts(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Keys whose values differ by more than rounding, with both. A key that only one side has is none, nor is
    a median: NeMo Gym estimates it."""
    for key in old.keys() & new.keys() - {"Median"}:
        before, after = old[key], new[key]
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            yield from conflicts(before, after, f"{prefix}{key}.")
        elif not _is_close(before, after):
            yield f"{prefix}{key}: {before} there, {after} now"


def _is_close(before: object, after: object) -> bool:
    if isinstance(before, (int, float)) and isinstance(after, (int, float)):
        tolerance = 5e-3 if abs(before) >= 1 else 5e-4
        return abs(before - after) <= tolerance + 1e-12
    return before == after


def _fixed(params: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    tools, messages = params.get("tools"), params.get("input")
    if isinstance(tools, list):
        yield TOOLS, len(tools)
    yield WORDS, len(json.dumps(params).split())
    if isinstance(messages, list):
        asked = (message for message in messages if isinstance(message, Mapping))
        yield TURNS, sum(message.get("role") == "user" for message in asked)
    elif messages is not None:
        yield TURNS, 1
    temperature = params.get("temperature")
    if isinstance(temperature, (int, float)) and not isinstance(temperature, bool):
        number = _finite(temperature)
        if number is not None:
            yield TEMPERATURE, number


def _finite(value: float) -> float | None:
    """As a float; None for what has no place among finite ones."""
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # an integer beyond what a float can hold
        return None


def _rounded(value: float) -> float:
    return round(value, 2 if abs(value) >= 1 else 3)
