"""Failures that a benchmark declares to be the agent's own doing: they count as reward 0.

By default no failure does, because most say nothing about the model. But where the agent runs what it wrote,
a process that is killed for memory is its fault, and the benchmark may say so: `oom: zero`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from gymctl.contract.outcomes import CountsAs, FailureName
from gymctl.contract.rollout import FAILURE_CLASS
from gymctl.metrics.outcomes import Outcome

_TIMEOUTS = frozenset({"agent_timeout", "transport_timeout"})


@dataclass(frozen=True, slots=True)
class Declaration:
    """How failures count. A kind (`oom`, `timeout`) beats a class, and a label beats both."""

    names: Mapping[FailureName, CountsAs] = field(default_factory=dict)
    labels: frozenset[str] = frozenset()
    """`_ng_failure_class` of failures that count as 0 (CONTRACT 9.9)."""

    def applied(self, record: Mapping[str, Any], found: Outcome) -> Outcome:
        """The outcome of a record, marked when it counts as 0."""
        if found.failure is None or not self._is_zero(record, found):
            return found
        return replace(found, counts_as_zero=True)

    def _is_zero(self, record: Mapping[str, Any], found: Outcome) -> bool:
        if record.get(FAILURE_CLASS) in self.labels:
            return True
        kind = _kind(record)
        if kind is not None and kind in self.names:
            return self.names[kind] == "zero"
        return found.failure is not None and self.names.get(found.failure) == "zero"


def _kind(record: Mapping[str, Any]) -> Literal["oom", "timeout"] | None:
    kind = record.get("failure_kind")
    if kind == "provider_oom_killed" or record.get("_ng_failure_out_of_memory") is True:
        return "oom"
    if kind in _TIMEOUTS or record.get(FAILURE_CLASS) == "timeout_exceeded":
        return "timeout"
    return None
