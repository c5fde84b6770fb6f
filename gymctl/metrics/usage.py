"""The tokens that a rollout's model calls used, as its `response.usage` tells; of a rollout that was cut off
before it had one, the recorded calls that it had finished, where calls are recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gymctl.contract.rollout import FAILURE_CLASS, MODEL_CALLS
from gymctl.metrics.statistics import number


@dataclass(slots=True)
class Usage:
    """`cached` is the part of `input` that the provider had in its cache."""

    input: int = 0
    cached: int = 0
    output: int = 0

    @property
    def total(self) -> int:
        return self.input + self.output

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Usage | None:
        """None when nothing usable is told."""
        response = record.get("response") or record.get("_ng_failure_partial_response")
        usage = response.get("usage") if isinstance(response, dict) else _of_calls(record)
        if not isinstance(usage, dict):
            return None
        read, written = number(usage.get("input_tokens")), number(usage.get("output_tokens"))
        if read is None and written is None:
            return None
        details = usage.get("input_tokens_details")
        cached = number(details.get("cached_tokens")) if isinstance(details, dict) else None
        read = read or 0
        return cls(int(read), int(min(cached or 0, read)), int(written or 0))

    def add(self, other: Usage) -> None:
        self.input += other.input
        self.cached += other.cached
        self.output += other.output


def recorded_calls(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    capture = record.get(MODEL_CALLS)
    calls = capture.get("calls") if isinstance(capture, dict) else None
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def _of_calls(record: Mapping[str, Any]) -> dict[str, Any] | None:
    calls = recorded_calls(record)
    if record.get(FAILURE_CLASS) is None or not calls:
        return None

    def total(key: str) -> float | None:
        told = [value for call in calls if (value := number(call.get(key))) is not None]
        return sum(told) if told else None

    cached = {"cached_tokens": total("cached_tokens")}
    return {
        "input_tokens": total("tokens_in"),
        "output_tokens": total("tokens_out"),
        "input_tokens_details": cached,
    }
