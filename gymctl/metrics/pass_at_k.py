"""The pass@k family for `compute_metrics` (CONTRACT 10.5); all values in per cent.

    pass@k/s             the chance that at least one of k attempts succeeds, mean over tasks
    pass@1[avg-of-k]/s   the mean of the first k attempts, mean over tasks
    majority@k/s         the score of the answer that most of the first k attempts gave
    per_sample_aggregate the mean over tasks of every single attempt, by score

`s` is the name of a score: `accuracy` is the reward, unless you say what your scores are.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gymctl.contract.rollout import Row
from gymctl.metrics.hooks import Tasks
from gymctl.metrics.statistics import mean, number, sample_std

Scores = Callable[[Row], Mapping[str, Any]]
Answer = Callable[[Row], Hashable]

NO_ANSWER = "no_answer"
PER_SAMPLE = "per_sample_aggregate"
STATISTICS = ("std_dev_across_runs", "std_err_across_runs", "avg_sample_std_dev")
"""Last parts of names that are no scores."""


@dataclass(frozen=True, slots=True)
class Attempt:
    score: float
    answer: Hashable


def reward_as_accuracy(row: Row) -> dict[str, Any]:
    return {"accuracy": row.get("reward")}


def passes(
    tasks: Tasks, *, scores: Scores = reward_as_accuracy, answer: Answer | None = None
) -> dict[str, Any]:
    """The whole family, for every k up to the largest number of attempts at a task.

    scores: the numbers of a row by name; what is no number is left out. answer: the row's answer, None when
    it has none; adds the majority votes and the score `no_answer`.
    """
    metrics: dict[str, Any] = {}
    samples: dict[str, list[float]] = {}
    for name, attempts in _by_score(tasks, scores, answer).items():
        most = max(len(task) for task in attempts)
        columns = [[task[place].score for task in attempts if place < len(task)] for place in range(most)]
        samples[name] = [100 * mean(column) for column in columns]
        for k in range(1, most + 1):
            metrics[f"pass@{k}/{name}"] = _mean([pass_at(k, task) for task in attempts if len(task) >= k])
            average = f"pass@1[avg-of-{k}]/{name}"
            metrics[average] = _mean([mean([attempt.score for attempt in task[:k]]) for task in attempts])
            if k > 1:
                spread = sample_std(samples[name][:k])
                metrics[f"{average}/std_dev_across_runs"] = spread
                metrics[f"{average}/std_err_across_runs"] = spread / math.sqrt(k)
            if answer is not None:
                metrics[f"majority@{k}/{name}"] = _mean([majority(task[:k]) for task in attempts])
    return {**metrics, PER_SAMPLE: samples} if samples else {}


def sample_spreads(tasks: Tasks, *, scores: Scores = reward_as_accuracy) -> dict[str, float]:
    """`pass@1[avg-of-k]/s/avg_sample_std_dev`: how much the first k attempts at one task differ, not in per
    cent; the mean over tasks with two attempts or more."""
    metrics: dict[str, float] = {}
    for name, attempts in _by_score(tasks, scores, None).items():
        several = [[attempt.score for attempt in task] for task in attempts if len(task) > 1]
        for k in range(2, max(map(len, several), default=0) + 1):
            spreads = [sample_std(values[:k]) for values in several]
            metrics[f"pass@1[avg-of-{k}]/{name}/avg_sample_std_dev"] = mean(spreads)
    return metrics


def by_subset(tasks: Tasks, key: str, metrics: Callable[[Tasks], Mapping[str, Any]]) -> dict[str, Any]:
    """`metrics` of each group of tasks, as `<value>/<name>`; a task belongs to the first true value that its
    rows have under `key`, or to no group."""
    subsets: dict[Any, list[Sequence[Row]]] = {}
    for task in tasks:
        value = next((row[key] for row in task if row.get(key)), None)
        if value is not None:
            subsets.setdefault(str(value), []).append(task)
    return {
        f"{value}/{name}": metric
        for value, members in subsets.items()
        for name, metric in metrics(members).items()
        if name != PER_SAMPLE
    }


def highest_k(
    metrics: Mapping[str, Any], family: str, names: Collection[str] | None = None
) -> dict[str, Any]:
    """The entries of one family with its largest k: `pass@{k}`, `pass@1[avg-of-{k}]` or `majority@{k}`.

    names: the scores wanted; all when None. Statistics about a score are never among them.
    """
    before, _, after = family.partition("{k}")
    pattern = re.compile(rf"{re.escape(before)}(\d+){re.escape(after)}/(.+)")
    found: dict[int, dict[str, Any]] = {}
    for name, value in metrics.items():
        match = pattern.fullmatch(name)
        if match is None or match[2].rpartition("/")[2] in STATISTICS:
            continue
        if names is None or match[2] in names:
            found.setdefault(int(match[1]), {})[name] = value
    return found[max(found)] if found else {}


def pass_at(k: int, task: Sequence[Attempt]) -> float:
    """Of attempts that are right or wrong, the share of all choices of k that hold a right one, which has no
    bias; of other scores the best of the first k."""
    values = [attempt.score for attempt in task]
    if any(value not in (0, 1) for value in values):
        return max(values[:k])
    wrong = values.count(0)
    return 1 - math.comb(wrong, k) / math.comb(len(values), k)


def majority(attempts: Sequence[Attempt]) -> float:
    """The score of the most frequent answer with its score; of tied ones the mean, without answers 0."""
    votes = Counter((attempt.answer, attempt.score) for attempt in attempts if attempt.answer is not None)
    if not votes:
        return 0.0
    most = max(votes.values())
    return mean([score for (_, score), count in votes.items() if count == most])


def _by_score(tasks: Tasks, scores: Scores, answer: Answer | None) -> dict[str, list[list[Attempt]]]:
    """Every score's attempts, by task; a task without any is left out."""
    found: dict[str, list[list[Attempt]]] = {}
    for task in tasks:
        attempts: dict[str, list[Attempt]] = {}
        for row in task:
            given = None if answer is None else answer(row)
            own = dict(scores(row))
            if answer is not None:
                own[NO_ANSWER] = given is None
            for name, value in own.items():
                score = number(value)
                if score is not None:
                    attempts.setdefault(name, []).append(Attempt(score, given))
        for name, listed in attempts.items():
            found.setdefault(name, []).append(listed)
    return found


def _mean(values: Sequence[float]) -> float:
    return 100 * mean(values)
