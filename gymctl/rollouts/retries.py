"""Which failed rollouts are tried again in the same run, how often, and after what pause.

What may pass by itself is tried again: a provider that is overloaded or down, a connection that broke. What
will not pass is not: a refused key or request, a failure that the server calls terminal, a time limit, a dead
container. All attempts at a rollout count together, those of earlier runs on the same output too.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from gymctl.contract.rollout import FAILURE_CLASS, NO_PERSIST, RETRY_AFTER_KEY, Row
from gymctl.errors import UsageError
from gymctl.metrics.outcomes import FAILED_CALL, FAILURE_CLASSES, FailureClass, Outcome
from gymctl.rollouts.attempts import AttemptPolicy
from gymctl.rollouts.queue import Work

DEFAULT: Mapping[FailureClass, int] = MappingProxyType({"model": 2, "infrastructure": 2})
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0

_PASSING_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504, 520, 529})
_PASSING_AT_THE_DOOR = frozenset({429, 502, 503, 504})
"""Statuses of the environment server itself; its 500 is an error of the environment or of what it called."""
_PASSING_KINDS = frozenset({"transport_unreachable", "transport_peer_drop", "provider_unavailable"})
_NOT_PASSING_KINDS = frozenset(
    {"transport_timeout", "agent_timeout", "kill_shaped", "provider_oom_killed", "provider_quota_exhausted"}
)


@dataclass(frozen=True, slots=True)
class Retries:
    """`by_class`: how often a rollout that failed with that class is tried again. Nothing: never."""

    by_class: Mapping[FailureClass, int] = field(default_factory=dict[FailureClass, int])

    def pause(self, work: Work, record: Row, outcome: Outcome, policy: AttemptPolicy) -> float | None:
        """Seconds until the next attempt; None: this failure stands. `policy` counts earlier sessions too."""
        failure = outcome.failure
        if failure is None or record.get(FAILURE_CLASS) is None or record.get(NO_PERSIST):
            return None
        if work.retries.get(failure, 0) >= self.by_class.get(failure, 0):
            return None
        if policy.is_over(work.earlier_failures + 1, record) or not may_pass(record, failure):
            return None
        return backoff(sum(work.retries.values()) + 1, float(record.get(RETRY_AFTER_KEY) or 0.0))


def backoff(attempt: int, floor: float = 0.0) -> float:
    """A second, doubled with each attempt up to a minute, never under `floor`; and up to half more, so that
    what failed together does not come back together."""
    wanted = min(FIRST_PAUSE_SECONDS * 2 ** min(attempt - 1, 10), LONGEST_PAUSE_SECONDS)
    return max(wanted, floor) * random.uniform(1.0, 1.5)


def may_pass(record: Row, failure: FailureClass) -> bool:
    """Whether another attempt could end otherwise, as far as the record tells."""
    kind, call = record.get("failure_kind"), record.get(FAILED_CALL)
    is_busy = isinstance(call, str) and call.endswith(" 429")
    if isinstance(kind, str) and kind in _NOT_PASSING_KINDS and not is_busy:
        return False
    if failure not in ("model", "infrastructure"):
        return True
    if (isinstance(kind, str) and kind in _PASSING_KINDS) or record.get("_ng_failure_stage") == "admission":
        return True
    if isinstance(call, str):
        result = call.rpartition(" ")[2]
        return result in _PASSING_KINDS or (result.isdecimal() and int(result) in _PASSING_STATUSES)
    status = record.get("_ng_failure_http_status")
    if failure == "model":  # of a server that does not say which call failed
        return status in _PASSING_STATUSES
    return status in _PASSING_AT_THE_DOOR


def parse(texts: Sequence[str]) -> Mapping[FailureClass, int]:
    """`--retry CLASS=N`, several times, or `none`. Classes that are not named keep their default."""
    if "none" in texts:
        if len(texts) > 1:
            raise UsageError("`--retry none` goes with no other --retry")
        return {}
    found = dict(DEFAULT)
    for text in texts:
        name, _, number = text.partition("=")
        if name not in FAILURE_CLASSES or not (number.isascii() and number.isdecimal()):
            raise UsageError(
                f"`--retry` must be CLASS=N or none, got `{text}`",
                hint=f"CLASS is one of {', '.join(FAILURE_CLASSES)}; --retry model=2",
            )
        found[name] = int(number)
    return found
