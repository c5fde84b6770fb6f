"""The numbers of a run beside the reward: every numeric field of its scored rollouts, eight bytes a value.

A column is a number at the top level whose name does not begin with `_`, a number of `response.usage`, or a
number in an object that holds nothing else, such as `reward_components/format`. What is no number is left
out, and each column says how many rollouts have it: one that half of them lack is a mean over the other half.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gymctl.metrics.aggregate import MASK
from gymctl.metrics.statistics import mean, median, number, sample_std


@dataclass(frozen=True, slots=True)
class Column:
    """One numeric field over rollouts, not over tasks."""

    name: str
    count: int
    mean: float
    median: float
    std: float | None
    """None of a single value."""
    low: float
    high: float


class Columns:
    """Filled rollout by rollout; the order has no influence."""

    def __init__(self) -> None:
        self._values: dict[str, array[float]] = {}

    def add(self, record: Mapping[str, Any]) -> None:
        for name, value in _numbers(record):
            self._values.setdefault(name, array("d")).append(value)

    def found(self) -> list[Column]:
        """By name, the reward first."""
        names = sorted(self._values, key=lambda name: (name != "reward", name))
        return [_column(name, self._values[name]) for name in names]


def _column(name: str, values: array[float]) -> Column:
    std = sample_std(values) if len(values) > 1 else None
    return Column(name, len(values), mean(values), median(values), std, min(values), max(values))


def _numbers(record: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    response = record.get("response")
    usage = response.get("usage") if isinstance(response, Mapping) else None
    for name, value in {**record, **(usage if isinstance(usage, Mapping) else {})}.items():
        if name.startswith("_") or name == MASK:
            continue
        if (converted := number(value)) is not None:
            yield name, converted
        elif isinstance(value, Mapping):
            parts = [
                (f"{name}/{inner}", part)
                for inner, told in value.items()
                if (part := number(told)) is not None
            ]
            if len(parts) == len(value):
                yield from parts
