"""Caps of a run on time, tokens and money: reached, nothing more is sent and what runs is waited for.

A cap is looked at before each rollout is sent, so it is passed by no more than the rollouts that were running
when it was reached. Tokens and money count all attempts, those of earlier sittings of a resumed run too; time
counts from the first rollout of this sitting.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass

from gymctl.metrics.tally import Tally
from gymctl.metrics.usage import Usage

FEWEST_DURATIONS = 5
"""Rollouts that must have ended before it is known how long one takes."""
MOST_DURATIONS = 256
_QUARTILE = 0.75


@dataclass(frozen=True, slots=True)
class Caps:
    """What one run may use. None: no cap."""

    seconds: float | None = None
    tokens: int | None = None
    cost: float | None = None
    """USD."""
    rollout_tokens: int | None = None
    rollout_cost: float | None = None
    dispatch_seconds: float | None = None
    """The run must be over by then: `dispatch_budget_s`."""
    drain_margin: float | None = None
    """Seconds before the end of that budget in which nothing is started. None: as long as three quarters of
    the last rollouts took, once a few have ended."""

    def of(self, cap: str) -> float | None:
        """The limit of a cap of the run, by its spelling."""
        limits = {
            "--max-time": self.seconds,
            "--max-tokens": self.tokens,
            "--max-cost": self.cost,
            "dispatch_budget_s": self.dispatch_seconds,
        }
        return limits.get(cap)

    def passed_by(self, usage: Usage | None, cost: float | None) -> list[str]:
        """The caps that one rollout has passed. It is known only from its answer, so the answer counts."""
        passed: list[str] = []
        if self.rollout_tokens is not None and usage is not None and usage.total > self.rollout_tokens:
            passed.append("tokens")
        if self.rollout_cost is not None and cost is not None and cost > self.rollout_cost:
            passed.append("cost")
        return passed


class Durations:
    """How long the last rollouts took; constant memory and time."""

    def __init__(self) -> None:
        self._last: deque[float] = deque()
        self._sorted: list[float] = []

    def add(self, seconds: float) -> None:
        if len(self._last) == MOST_DURATIONS:
            del self._sorted[bisect_left(self._sorted, self._last.popleft())]
        self._last.append(seconds)
        insort(self._sorted, seconds)

    @property
    def upper_quartile(self) -> float | None:
        """Three quarters took no longer. None while too few have ended."""
        count = len(self._sorted)
        return None if count < FEWEST_DURATIONS else self._sorted[min(int(count * _QUARTILE), count - 1)]


class Clock:
    """The caps of a run that goes on."""

    def __init__(self, caps: Caps) -> None:
        self._caps = caps
        self._start = 0.0
        self._durations = Durations()

    def start(self, now: float) -> None:
        self._start = now

    def ended(self, seconds: float) -> None:
        """A rollout took so long."""
        if self._caps.dispatch_seconds is not None and self._caps.drain_margin is None:
            self._durations.add(seconds)

    @property
    def ends_at(self) -> float | None:
        """When time is up, should nothing else end the run before."""
        limits = (self._caps.seconds, self._dispatch_end)
        return min((self._start + limit for limit in limits if limit is not None), default=None)

    def reached(self, now: float, tally: Tally) -> str | None:
        """The cap that has been reached, as it is spelled."""
        caps, elapsed = self._caps, now - self._start
        if caps.seconds is not None and elapsed >= caps.seconds:
            return "--max-time"
        if self._dispatch_end is not None and elapsed >= self._dispatch_end:
            return "dispatch_budget_s"
        if caps.tokens is not None and tally.input_tokens + tally.output_tokens >= caps.tokens:
            return "--max-tokens"
        if caps.cost is not None and tally.cost >= caps.cost:
            return "--max-cost"
        return None

    @property
    def _dispatch_end(self) -> float | None:
        budget = self._caps.dispatch_seconds
        if budget is None:
            return None
        margin = self._caps.drain_margin
        if margin is None:
            margin = self._durations.upper_quartile or 0.0
        return budget - margin
