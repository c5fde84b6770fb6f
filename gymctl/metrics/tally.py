"""The running count of one run: per-task sums and outcomes; memory does not grow with finished rollouts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gymctl.contract.rollout import Row, rollout_key
from gymctl.metrics.headline import Headline, TaskScore, headline
from gymctl.metrics.outcomes import FailureClass, Outcome
from gymctl.metrics.statistics import number
from gymctl.metrics.students import t_quantile

FEWEST_TASKS = 5
EXAMPLES = 3
"""Rollouts that are named for each reason of failures."""


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
    input_tokens: int = 0
    output_tokens: int = 0
    running: dict[str, float] = field(default_factory=dict)
    """Rollout id -> when it was started, by the loop's clock."""
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
        self.input_tokens += _usage(record, "input_tokens")
        self.output_tokens += _usage(record, "output_tokens")

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
        if count < FEWEST_TASKS or spread <= 1e-12:
            return centre, None
        return centre, t_quantile(0.975, count - 1) * math.sqrt(spread / (count - 1))

    def _score(self, task: TaskScore, reward: float) -> None:
        before = task.mean if task.scored else 0.0
        self._tasks_scored += not task.scored
        task.add(reward)
        self.scored += 1
        self._means += task.mean - before
        self._squares += task.mean**2 - before**2

    def headline(self) -> Headline:
        return headline(list(self.tasks.values()), self.repeats, self.ks)


def _usage(record: Mapping[str, Any], name: str) -> int:
    response = record.get("response")
    usage = response.get("usage") if isinstance(response, dict) else None
    value = number(usage.get(name)) if isinstance(usage, dict) else None
    return int(value) if value is not None else 0
