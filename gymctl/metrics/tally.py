"""The running count of one run: per-task sums and outcomes; memory does not grow with finished rollouts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from gymctl.contract.rollout import OUTCOME, Row, rollout_key
from gymctl.metrics.headline import Headline, TaskScore, headline
from gymctl.metrics.outcomes import FailureClass, Outcome
from gymctl.metrics.students import t_quantile
from gymctl.metrics.usage import Usage

FEWEST_TASKS = 5
EXAMPLES = 3
"""Rollouts that are named for each reason of failures."""
SLOWEST = 3
"""Running rollouts that are named."""
Price = Callable[[Mapping[str, Any], Usage], float | None]
"""USD of a record with its usage; None: the price of its model is not known."""
Watch = Callable[[str, Outcome, Mapping[str, Any]], None]


@dataclass(slots=True)
class Tally:
    """Everything that the progress display and the result table are made of."""

    tasks: dict[Hashable, TaskScore] = field(default_factory=dict)
    """By task index."""
    repeats: int = 1
    """Attempts asked for per task: the k of pass@k."""
    ks: tuple[int, ...] = ()
    """Other k than that of `repeats`, for pass@k and pass^k."""
    planned: int = 0
    scored: int = 0
    """With a reward, or with a failure that counts as 0."""
    limited: int = 0
    zeros: Counter[FailureClass] = field(default_factory=Counter)
    """Failures that the benchmark declares to count as 0: scored, and none of `failed`."""
    malformed_calls: int = 0
    broken_calls: int = 0
    failed: Counter[FailureClass] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    causes: dict[str, str] = field(default_factory=dict)
    """Reason -> what was said in the first rollout that failed so."""
    examples: dict[str, list[str]] = field(default_factory=dict)
    """Reason -> the first rollouts that failed so."""
    usage: Usage = field(default_factory=Usage)
    """Of all attempts, those too that were followed by another one."""
    retried: int = 0
    """Failed attempts that were followed by another one."""
    retried_tokens: int = 0
    price: Price | None = None
    """What the usage of a record costs; without it no cost is counted."""
    cost: float = 0.0
    """USD, of the records that have a price."""
    unpriced: int = 0
    """Records with a usage and without a price."""
    passed: int = 0
    """Rollouts that passed a cap of theirs: their answers count, and it is told."""
    unmetered: int = 0
    """Answered rollouts without a usage."""
    running: dict[str, float] = field(default_factory=dict)
    """Rollout id -> when it was started, by the loop's clock."""
    asked: dict[str, str] = field(default_factory=dict)
    """Rollout id -> the environment server that was asked for it."""
    waits: dict[str, str] = field(default_factory=dict)
    """Of the slowest ones: the server behind it that they wait for, as of a moment ago."""
    watch: Watch | None = None
    """Told of each rollout that has ended for good, after it was counted."""
    _tasks_scored: int = 0
    _means: float = 0.0
    """Running sums over task means and their squares: good enough to look at, never for the result."""
    _squares: float = 0.0

    def plan(self, task: Hashable, attempts: int = 1) -> None:
        self.tasks.setdefault(task, TaskScore()).planned += attempts
        self.planned += attempts

    def add(self, row: Row, outcome: Outcome, record: Mapping[str, Any]) -> None:
        """Count one finished rollout of an input row."""
        task, rollout = rollout_key(row)
        self.count(task, f"{task}-{rollout}", outcome, record)

    def count(self, task: Hashable, name: str, outcome: Outcome, record: Mapping[str, Any]) -> None:
        """Count one finished rollout of a task; `name` is how a user finds it."""
        if outcome.reward is not None:
            self._score(self.tasks.setdefault(task, TaskScore()), outcome.reward)
            self.limited += outcome.is_limited
            self.malformed_calls += outcome.malformed_calls
            self.broken_calls += outcome.broken_calls
        elif outcome.failure is not None:
            self._fail(task, name, outcome, outcome.failure)
        stamp = record.get(OUTCOME)
        self.passed += isinstance(stamp, Mapping) and bool(stamp.get("passed"))
        self.spend(record)
        if self.watch is not None:
            self.watch(name, outcome, record)

    def retry(self, record: Mapping[str, Any]) -> None:
        """Count a failed attempt that will be followed by another one at the same rollout."""
        self.retried += 1
        self.retried_tokens += self.spend(record)

    def give_up(self, row: Row, outcome: Outcome) -> None:
        """The last attempt that was counted by `retry` will not be followed by another one after all."""
        self.retried -= 1
        self.add(row, outcome, {})

    def spend(self, record: Mapping[str, Any]) -> int:
        """Count only what the record used; returns its tokens."""
        used = Usage.of(record)
        if used is None:
            self.unmetered += "response" in record
            return 0
        self.usage.add(used)
        if self.price is not None:
            cost = self.price(record, used)
            self.cost += cost or 0.0
            self.unpriced += cost is None
        return used.total

    def _fail(self, task: Hashable, name: str, outcome: Outcome, failure: FailureClass) -> None:
        reason = f"{failure}: {outcome.reason}"
        self.reasons[reason] += 1
        self.causes.setdefault(reason, outcome.cause)
        examples = self.examples.setdefault(reason, [])
        if len(examples) < EXAMPLES:
            examples.append(name)
        if outcome.counts_as_zero:
            self.zeros[failure] += 1
            self._score(self.tasks.setdefault(task, TaskScore()), 0.0)
        else:
            self.failed[failure] += 1

    @property
    def input_tokens(self) -> int:
        return self.usage.input

    @property
    def output_tokens(self) -> int:
        return self.usage.output

    @property
    def finished(self) -> int:
        return self.scored + self.failed.total()

    @property
    def not_run(self) -> int:
        """Neither scored nor failed. Includes rollouts that were running when the run was stopped."""
        return self.planned - self.finished

    @property
    def reward_so_far(self) -> tuple[float, float | None] | None:
        """Mean of task means over what is scored, and half of its t interval; for display while running.

        No interval for a handful of tasks: it would be wider than the scale."""
        if not self._tasks_scored:
            return None
        count = self._tasks_scored
        centre = self._means / count
        spread = self._squares / count - centre * centre
        if count < FEWEST_TASKS or not 1e-12 < spread < math.inf:
            return centre, None
        return centre, t_quantile(0.975, count - 1) * math.sqrt(spread / (count - 1))

    def _score(self, task: TaskScore, reward: float) -> None:
        before = task.mean if task.scored else 0.0
        self._tasks_scored += not task.scored
        task.add(reward)
        self.scored += 1
        self._means += task.mean - before
        self._squares += task.mean * task.mean - before * before  # `**` raises where `*` is infinite

    def slowest(self) -> list[tuple[str, float]]:
        """Running rollouts and their start, in the order in which they were started: 65,536 of them are not
        sorted each time."""
        return list(islice(self.running.items(), SLOWEST))

    def headline(self) -> Headline:
        return headline(list(self.tasks.values()), self.repeats, self.ks)
