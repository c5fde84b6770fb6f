"""The result table of `gymctl eval`: a number never without its interval, coverage and what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gymctl.metrics.headline import Headline
from gymctl.metrics.outcomes import FAILURE_CLASSES
from gymctl.metrics.tally import Tally

LABEL_WIDTH = 11
NOTICEABLE = 0.001
"""A pooled mean that differs by more from the mean of task means is worth a line."""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What the table says beside the numbers."""

    title: str
    model: str | None
    seconds: float
    min_coverage: float
    why_not_run: str | None = None
    """`interrupted`, `server died`."""
    is_scripted: bool = False


def result_lines(tally: Tally, facts: RunFacts) -> list[str]:
    """The table, as lines of text."""
    head = tally.headline()
    lines = [_title(head, tally, facts), ""]
    lines += [_row(label, text) for label, text in _rows(head, tally, facts)]
    if facts.is_scripted:
        lines += [
            "",
            " scripted model: these answers come from a script, the score says nothing about a model",
        ]
    return lines


def result_json(tally: Tally, facts: RunFacts) -> dict[str, Any]:
    """The same as one JSON object; `reward` is null where the table shows a range instead."""
    head = tally.headline()
    is_enough = head.coverage >= facts.min_coverage
    interval = head.interval if is_enough else None
    return {
        "title": facts.title,
        "model": facts.model,
        "is_scripted": facts.is_scripted,
        "reward": head.mean if is_enough else None,
        "interval_95": [interval.low, interval.high] if interval else None,
        "interval_method": interval.method if interval else None,
        "bounds": list(head.bounds) if head.bounds else None,
        "pooled_mean": head.pooled if is_enough else None,
        "coverage": head.coverage,
        "min_coverage": facts.min_coverage,
        "tasks": {"planned": head.tasks_planned, "scored": head.tasks_scored},
        "rollouts": {
            "planned": tally.planned,
            "scored": tally.scored,
            "limited": tally.limited,
            "malformed_tool_calls": tally.malformed_calls,
            "broken_tool_calls": tally.broken_calls,
            "failed": {name: tally.failed[name] for name in FAILURE_CLASSES},
            "not_run": tally.not_run,
        },
        "repeats": tally.repeats,
        "pass_at": [{"k": at.k, "value": at.value, "tasks": at.tasks} for at in head.pass_at]
        if is_enough
        else [],
        "tokens": {"input": tally.input_tokens, "output": tally.output_tokens},
        "seconds": facts.seconds,
    }


def _title(head: Headline, tally: Tally, facts: RunFacts) -> str:
    parts = [facts.title, *([facts.model] if facts.model else [])]
    if head.tasks_planned * tally.repeats == tally.planned:
        size = f"{_count(head.tasks_planned, 'task')} × {tally.repeats}"
    else:
        size = f"{_count(head.tasks_planned, 'task')}, {_count(tally.planned, 'rollout')}"
    return " · ".join([*parts, size])


def _rows(head: Headline, tally: Tally, facts: RunFacts) -> list[tuple[str, str]]:
    rows = [("reward", _reward(head, facts)), ("coverage", _coverage(head))]
    is_enough = head.coverage >= facts.min_coverage
    if is_enough and head.pass_at:
        rows.append(("pass@1", _passes(head, tally)))
    if is_enough and abs((head.mean or 0) - (head.pooled or 0)) > NOTICEABLE:
        rows.append(("", f"mean over rollouts {head.pooled:.3f}: tasks have different numbers of scores"))
    rows.append(("outcomes", _outcomes(tally, facts)))
    if tally.input_tokens or tally.output_tokens:
        rows.append(("tokens", f"{_short(tally.input_tokens)} in · {_short(tally.output_tokens)} out"))
    speed = (
        f"    {tally.finished / facts.seconds:.1f} rollouts/s" if facts.seconds > 0 and tally.finished else ""
    )
    rows.append(("time", f"{duration(facts.seconds)}{speed}"))
    return rows


def _reward(head: Headline, facts: RunFacts) -> str:
    if head.coverage < facts.min_coverage:
        return _range(head, facts)
    if head.mean is None:
        return "no rollout has a score" if head.planned else "no rollout was planned"
    tasks = _count(head.tasks_scored, "task")
    if head.interval is None:
        return f"{head.mean:.3f}   no interval: {_why_no_interval(head)}     {tasks}"
    low, high = head.interval.low, head.interval.high
    method = "clustered by task" if head.interval.method == "t" else "exact binomial over tasks"
    return f"{head.mean:.3f}   95 % {low:.3f} – {high:.3f}     {tasks}, {method}"


def _range(head: Headline, facts: RunFacts) -> str:
    why = f"coverage is under {facts.min_coverage:.0%}: no single number"
    if head.bounds is None:
        return f"unknown: {why}"
    return f"{head.bounds[0]:.3f} – {head.bounds[1]:.3f}     {why}"


def _why_no_interval(head: Headline) -> str:
    return "one task" if head.tasks_scored == 1 else "all tasks scored the same"


def _coverage(head: Headline) -> str:
    share = f"{head.scored:,} of {head.planned:,} ({head.coverage:.1%})"
    missing = head.planned - head.scored
    if not missing:
        return share
    if head.bounds is None:
        return f"{share}     bounds unknown: rewards leave 0 – 1"
    low, high = head.bounds
    return f"{share}     if the {missing:,} missing were all wrong {low:.3f}, all right {high:.3f}"


def _passes(head: Headline, tally: Tally) -> str:
    first, *more = head.pass_at
    text = f"{first.value:.3f}"
    for at in more:
        rest = "all" if at.tasks == head.tasks_planned else "the"
        which = "" if at.tasks == head.tasks_planned else f" with all {at.k} attempts"
        text += f"   pass@{at.k}  {at.value:.3f}     over {rest} {at.tasks:,} tasks{which}"
    if tally.repeats > 1 and not more:
        text += f"   pass@{tally.repeats}  none: no task has all {tally.repeats} attempts"
    return text


def _outcomes(tally: Tally, facts: RunFacts) -> str:
    limited = f" (limit reached {tally.limited:,})" if tally.limited else ""
    parts = [f"scored {tally.scored:,}{limited}"]
    failed = tally.failed.total()
    if failed:
        classes = ", ".join(
            f"{name} {tally.failed[name]:,}" for name in FAILURE_CLASSES if tally.failed[name]
        )
        parts.append(f"failed {failed:,} ({classes})")
    if tally.not_run:
        why = f" ({facts.why_not_run})" if facts.why_not_run else ""
        parts.append(f"not run {tally.not_run:,}{why}")
    if tally.malformed_calls:
        parts.append(f"malformed tool calls {tally.malformed_calls:,}")
    if tally.broken_calls:
        parts.append(f"tool calls that their server failed {tally.broken_calls:,}")
    return " · ".join(parts)


def _row(label: str, text: str) -> str:
    return f" {label:<{LABEL_WIDTH}} {text}".rstrip()


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _short(tokens: int) -> str:
    if tokens >= 1_000_000:
        return f"{tokens / 1e6:.2f} M"
    return f"{tokens / 1e3:.1f} k" if tokens >= 10_000 else f"{tokens:,}"


def duration(seconds: float) -> str:
    """`4.2 s`, `3 m 05 s`, `2 h 07 m`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} m {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} m"


def file_lines(paths: Sequence[tuple[str, object]]) -> list[str]:
    """Where the files are."""
    return [_row(label, str(path)) for label, path in paths]
