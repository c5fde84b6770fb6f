"""What is to be sent next: rows of the inputs file, and failed rollouts whose pause is over."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from gymctl.contract.rollout import ATTEMPT_INDEX, Row
from gymctl.metrics.outcomes import FailureClass, Outcome
from gymctl.rollouts.attempts import REUSE, again
from gymctl.rollouts.encoding import dumps

_NONE: Mapping[FailureClass, int] = MappingProxyType({})


@dataclass(slots=True)
class Work:
    """One attempt that is to be made."""

    line: bytes
    """The row as it is sent."""
    row: Row
    failed: Outcome | None = None
    """How the attempt before this one ended, in this run."""
    retries: Mapping[FailureClass, int] = field(default_factory=lambda: _NONE)
    """By class, how often this rollout was tried again in this run."""

    @property
    def earlier_failures(self) -> int:
        return int(self.row.get(ATTEMPT_INDEX) or 0)

    def again(self, record: Row, outcome: Outcome) -> Work:
        """The next attempt at the same rollout, after this one ended as `record`."""
        row = again(self.row, self.earlier_failures + 1, reuses=bool(record.get(REUSE)))
        retries = dict(self.retries)
        if outcome.failure is not None:
            retries[outcome.failure] = retries.get(outcome.failure, 0) + 1
        return Work(dumps(row), row, outcome, retries)


class Queue:
    """Retries that are due go first. While `most_waiting` pause, no further row is read: memory has an end
    although everything may fail."""

    def __init__(self, inputs: Iterator[tuple[bytes, Row]], most_waiting: int) -> None:
        self._inputs: Iterator[tuple[bytes, Row]] | None = inputs
        self._most_waiting = most_waiting
        self._paused: list[tuple[float, int, Work]] = []
        self._order = itertools.count()

    def next(self, now: float) -> Work | None:
        """None: nothing may be sent now; `next_due` tells whether there will be something later."""
        if self._paused and self._paused[0][0] <= now:
            return heapq.heappop(self._paused)[2]
        if self._inputs is None or len(self._paused) >= self._most_waiting:
            return None
        item = next(self._inputs, None)
        if item is None:
            self._inputs = None
            return None
        return Work(*item)

    def put_back(self, work: Work, due: float) -> None:
        heapq.heappush(self._paused, (due, next(self._order), work))

    @property
    def next_due(self) -> float | None:
        """When the next pause ends."""
        return self._paused[0][0] if self._paused else None

    @property
    def is_empty(self) -> bool:
        """Nothing is left to be sent, now or later; known after `next` has returned None."""
        return self._inputs is None and not self._paused

    def has_more(self) -> bool:
        """Whether a row or a retry is left. Reads a row ahead."""
        if not self._paused and self._inputs is not None:
            item = next(self._inputs, None)
            self._inputs = None if item is None else itertools.chain((item,), self._inputs)
        return not self.is_empty

    def abandon(self) -> Iterator[Work]:
        """Everything that pauses, when the run stops."""
        while self._paused:
            yield self._paused.pop()[2]
