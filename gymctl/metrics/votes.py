"""Majority votes over the answers of a run: majority@k, with the tie rule of CONTRACT 10.5.

The score is that of the most frequent pair of answer and score among a task's first k attempts; of tied
pairs the mean, and 0 when no attempt has an answer. An absent answer never wins. Answers are compared as they
stand: a server that wants `" c"` and `"C"` to be one answer says so in the field.
"""

from __future__ import annotations

import json
from collections.abc import Hashable
from typing import Any

from gymctl.metrics.headline import PassAt
from gymctl.metrics.pass_at_k import Attempt, majority
from gymctl.metrics.statistics import mean


class Votes:
    """Filled rollout by rollout; the order has no influence."""

    def __init__(self) -> None:
        self.has_answers = False
        self._tasks: dict[Hashable, dict[int, Attempt]] = {}

    def add(self, task: Hashable, rollout: int, reward: float, answer: Any) -> None:
        self.has_answers = self.has_answers or answer is not None
        self._tasks.setdefault(task, {})[rollout] = Attempt(reward, _plain(answer))

    def at(self, k: int) -> PassAt | None:
        """Over the tasks with k scored attempts; None when there is none."""
        tasks = [attempts for attempts in self._tasks.values() if len(attempts) >= k]
        firsts = ([attempts[rollout] for rollout in sorted(attempts)[:k]] for attempts in tasks)
        return PassAt(k, mean([majority(first) for first in firsts]), len(tasks)) if tasks else None


def _plain(answer: Any) -> Hashable:
    return json.dumps(answer, sort_keys=True) if isinstance(answer, (dict, list)) else answer
