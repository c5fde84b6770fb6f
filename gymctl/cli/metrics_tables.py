"""What `gymctl metrics` prints below the headline: tasks, groups, columns, majority votes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from gymctl.cli.table import LABEL_WIDTH, RunFacts, result_json, span
from gymctl.counts import counted
from gymctl.metrics.headline import PassAt
from gymctl.metrics.statistics import sample_std
from gymctl.metrics.tally import Tally
from gymctl.rollouts.measured import Measured, Wanted

Table = tuple[Sequence[str], list[Sequence[object]]]
_SHOWN_REWARDS = 8


def tables(measured: Measured, facts: RunFacts, wanted: Wanted) -> Iterator[Table]:
    """Header and rows of each table that is wanted."""
    if measured.groups:
        yield _groups(measured, facts, wanted)
    if wanted.tasks:
        rows = [_task_row(task) for task in profile(measured)]
        yield ("TASK", "SCORED", "MEAN", "STD", "MIN", "MAX", "REWARDS"), rows
    if measured.columns is not None:
        found = measured.columns.found()
        yield (
            ("COLUMN", "ROLLOUTS", "MEAN", "MEDIAN", "STD", "MIN", "MAX"),
            [
                (one.name, one.count, *map(_number, (one.mean, one.median, one.std, one.low, one.high)))
                for one in found
            ],
        )


def as_json(measured: Measured, facts: RunFacts, wanted: Wanted) -> dict[str, Any]:
    """The same as one object: that of `eval --json`, and what was asked beside it."""
    value = result_json(measured.tally, facts)
    if measured.votes is not None:
        value["majority_at"] = [
            {"k": at.k, "value": at.value, "tasks": at.tasks} for at in _votes(measured, wanted)
        ]
    if measured.groups:
        value["by"] = wanted.by
        value["groups"] = [
            {"group": name, **result_json(tally, replace(facts, title=name, seconds=None))}
            for name, tally in sorted(measured.groups.items())
        ]
    if wanted.tasks:
        value["by_task"] = profile(measured)
    if measured.columns is not None:
        value["columns"] = [
            {
                "name": one.name,
                "rollouts": one.count,
                "mean": one.mean,
                "median": one.median,
                "std": one.std,
                "min": one.low,
                "max": one.high,
            }
            for one in measured.columns.found()
        ]
    return value


def vote_lines(measured: Measured, wanted: Wanted) -> list[str]:
    return [
        f" {f'majority@{at.k}':<{LABEL_WIDTH}} {at.value:.3f}   the most frequent `{wanted.answer}`"
        f"     {counted(at.tasks, 'task')}"
        for at in _votes(measured, wanted)
    ]


def profile(measured: Measured) -> list[dict[str, Any]]:
    """Every task with its rewards, by rollout index; what has no value is None."""
    found: list[dict[str, Any]] = []
    for task, score in sorted(measured.tally.tasks.items(), key=lambda item: _order(item[0])):
        by_rollout = sorted(measured.rewards.get(task, {}).items())
        values = [reward for _, reward in by_rollout]
        found.append(
            {
                "task": task
                if isinstance(task, int)
                else list(task)
                if isinstance(task, tuple)
                else str(task),
                "planned": score.planned,
                "scored": score.scored,
                "solved": score.solved,
                "mean": score.mean if values else None,
                "std": sample_std(values) if len(values) > 1 else None,
                "min": min(values, default=None),
                "max": max(values, default=None),
                "rewards": {str(rollout): reward for rollout, reward in by_rollout},
            }
        )
    return found


def _order(task: Any) -> tuple[Any, ...]:
    return task if isinstance(task, tuple) else (task,)


def _task_row(task: dict[str, Any]) -> Sequence[object]:
    rewards = [f"{reward:g}" for reward in task["rewards"].values()]
    shown = " ".join(rewards[:_SHOWN_REWARDS]) + (" …" if len(rewards) > _SHOWN_REWARDS else "")
    name = task["task"] if isinstance(task["task"], int) else " ".join(map(str, task["task"]))
    numbers = [_number(task[key]) for key in ("mean", "std", "min", "max")]
    return (name, f"{task['scored']} of {task['planned']}", *numbers, shown)


def _groups(measured: Measured, facts: RunFacts, wanted: Wanted) -> Table:
    header = ((wanted.by or "").upper(), "TASKS", "REWARD", "95 %", "COVERAGE", "PASS", "FAILED")
    return header, [_group(name, tally, facts) for name, tally in sorted(measured.groups.items())]


def _group(name: str, tally: Tally, facts: RunFacts) -> Sequence[object]:
    head = tally.headline()
    coverage = f"{head.scored:,} of {head.planned:,}"
    if head.coverage < facts.min_coverage or head.mean is None:
        low, high = (f"{bound:.3f}" for bound in head.bounds) if head.bounds else ("?", "?")
        return (name, head.tasks_planned, f"{low} – {high}", "", coverage, "", tally.failed.total())
    interval = span(head.interval.low, head.interval.high) if head.interval is not None else ""
    passes = " · ".join(f"@{at.k} {at.value:.3f}" for at in head.pass_at)
    return (name, head.tasks_planned, f"{head.mean:.3f}", interval, coverage, passes, tally.failed.total())


def _votes(measured: Measured, wanted: Wanted) -> list[PassAt]:
    if measured.votes is None:
        return []
    ks = wanted.ks or (measured.tally.repeats,)
    return [found for k in ks if (found := measured.votes.at(k)) is not None]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.3f}"
