"""The result table of `gymctl eval`: a number never without its interval, coverage and what is missing."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gymctl.cli.health_text import found, health_text, is_worth_a_line
from gymctl.counts import counted
from gymctl.metrics.headline import Headline, PassAt
from gymctl.metrics.outcomes import FAILURE_CLASSES, FailureClass
from gymctl.metrics.tally import Tally

LABEL_WIDTH = 11
_SHOWN_REASONS = 3
NOTICEABLE = 0.001
"""A pooled mean that differs by more from the mean of task means is worth a line."""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What the table says beside the numbers."""

    title: str
    model: str | None
    seconds: float | None
    """None: nobody measured it."""
    min_coverage: float
    kept: int = 0
    """Rollouts of earlier sessions, which took no part in `seconds`."""
    why_not_run: str | None = None
    """`interrupted`, `server died`."""
    is_scripted: bool = False
    missing_as_zero: int = 0
    """Rollouts that were not run and count as 0 in the metrics file."""
    prices_of: str | None = None
    """The date of the price file."""
    health: Mapping[str, Any] | None = None
    """What the health check found: `run` of `quality_summary.json`."""


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
        "clusters": head.clusters,
        "bounds": list(head.bounds) if head.bounds else None,
        "pooled_mean": head.pooled if is_enough else None,
        "coverage": head.coverage,
        "min_coverage": facts.min_coverage,
        "tasks": {"planned": head.tasks_planned, "scored": head.tasks_scored},
        "rollouts": {
            "planned": tally.planned,
            "scored": tally.scored,
            "limited": tally.limited,
            "counted_as_zero": {name: tally.zeros[name] for name in FAILURE_CLASSES},
            "malformed_tool_calls": tally.malformed_calls,
            "broken_tool_calls": tally.broken_calls,
            "over_a_cap": tally.passed,
            "retried": tally.retried,
            "failed": {name: tally.failed[name] for name in FAILURE_CLASSES},
            "not_run": tally.not_run,
        },
        "coverage_counts": _coverage_counts(tally, facts),
        "repeats": tally.repeats,
        "pass_at": _passes_json(head.pass_at) if is_enough else [],
        "pass_all": _passes_json(head.pass_all) if is_enough else [],
        "tokens": {
            "input": tally.usage.input,
            "cached": tally.usage.cached,
            "output": tally.usage.output,
            "of_retried": tally.retried_tokens,
        },
        "cost_usd": tally.cost if tally.price is not None and not tally.unpriced else None,
        "prices_of": facts.prices_of,
        "health": None
        if facts.health is None
        else {"verdicts": facts.health["verdicts"], "issues": found(facts.health)},
        "seconds": facts.seconds,
    }


def _coverage_counts(tally: Tally, facts: RunFacts) -> dict[str, int]:
    """The scalars `coverage/*` of CONTRACT 9.9, about the metrics file."""
    zeros = tally.zeros.total()
    return {
        "expected": tally.planned,
        "scored": tally.scored - zeros,
        "missing": tally.planned - tally.scored - facts.missing_as_zero,
        "imputed": zeros + facts.missing_as_zero,
    }


def _passes_json(found: Sequence[PassAt]) -> list[dict[str, Any]]:
    return [{"k": at.k, "value": at.value, "tasks": at.tasks} for at in found]


def _title(head: Headline, tally: Tally, facts: RunFacts) -> str:
    parts = [facts.title, *([facts.model] if facts.model else [])]
    if head.tasks_planned * tally.repeats == tally.planned:
        size = f"{counted(head.tasks_planned, 'task')} × {tally.repeats}"
    else:
        size = f"{counted(head.tasks_planned, 'task')}, {counted(tally.planned, 'rollout')}"
    return " · ".join([*parts, size])


def _rows(head: Headline, tally: Tally, facts: RunFacts) -> list[tuple[str, str]]:
    rows = [("reward", _reward(head, facts)), ("coverage", _coverage(head))]
    is_enough = head.coverage >= facts.min_coverage
    if is_enough and head.pass_at:
        rows.append((f"pass@{head.pass_at[0].k}", _passes(head, tally)))
        rows += [(f"pass^{at.k}", f"{at.value:.3f}   solved every time") for at in head.pass_all]
    if is_enough and (told := _why_pooled_differs(head, facts)) is not None:
        rows.append(("", told))
    rows.append(("outcomes", _outcomes(tally, facts)))
    if facts.health is not None and is_worth_a_line(facts.health):
        rows.append(("health", health_text(facts.health)))
    if tally.price is not None and tally.usage.total:
        rows.append(("cost", _cost(tally, facts)))
    if tally.usage.total:
        rows.append(("tokens", _tokens(tally)))
    if facts.seconds is not None:
        made = tally.finished - facts.kept
        speed = f"    {made / facts.seconds:.1f} rollouts/s" if facts.seconds > 0 and made > 0 else ""
        rows.append(("time", f"{duration(facts.seconds)}{speed}"))
    return rows


def _why_pooled_differs(head: Headline, facts: RunFacts) -> str | None:
    """The mean of the metrics file is over rollouts; None when it is the headline, too."""
    if head.mean is None or head.pooled is None:
        return None
    missing = facts.missing_as_zero
    pooled = head.pooled * head.scored / (head.scored + missing)
    if abs(head.mean - pooled) <= NOTICEABLE:
        return None
    if missing:
        count = counted(missing, "missing rollout counts", "missing rollouts count")
        return f"mean in the metrics file {pooled:.3f}: {count} as 0 there"
    return f"mean over rollouts {pooled:.3f}: tasks have different numbers of scores"


def _reward(head: Headline, facts: RunFacts) -> str:
    if head.coverage < facts.min_coverage:
        return _range(head, facts)
    if head.mean is None:
        return "no rollout has a score" if head.planned else "no rollout was planned"
    tasks = counted(head.tasks_scored, "task")
    if head.interval is None:
        return f"{head.mean:.3f}   no interval: {_why_no_interval(head)}     {tasks}"
    method = "clustered by task" if head.interval.method == "t" else "exact binomial over tasks"
    if head.clusters is not None:
        exact = "" if head.interval.method == "t" else ", exact binomial"
        method = f"in {counted(head.clusters, 'cluster')}{exact}"
    return f"{head.mean:.3f}   95 % {span(head.interval.low, head.interval.high)}     {tasks}, {method}"


def span(low: float, high: float) -> str:
    """`0.578 – 0.670`, with as many digits as it takes to see that it has a width."""
    for digits in range(3, 18):
        texts = f"{low:.{digits}f}", f"{high:.{digits}f}"
        if texts[0] != texts[1]:
            return " – ".join(texts)
    return f"{low!r} – {high!r}"


def _range(head: Headline, facts: RunFacts) -> str:
    why = f"coverage is under {facts.min_coverage:.0%}: no single number"
    if head.bounds is None:
        return f"unknown: {why}"
    return f"{head.bounds[0]:.3f} – {head.bounds[1]:.3f}     {why}"


def _why_no_interval(head: Headline) -> str:
    return "one task" if head.tasks_scored == 1 else "all tasks scored the same"


def _coverage(head: Headline) -> str:
    share = f"{head.scored:,} of {head.planned:,} ({head.coverage:.1%})"
    if head.tasks_scored < head.tasks_planned and head.planned > head.tasks_planned:
        share += f", {head.tasks_scored:,} of {head.tasks_planned:,} tasks"
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
        text += f"   pass@{at.k}  {at.value:.3f}"
    last = head.pass_at[-1]
    wanted = max(tally.ks or (tally.repeats,))
    if wanted > 1:
        text += f"     over {_which_tasks(last, head)}"
    if last.k < wanted:
        text += f"; pass@{wanted}: no task has {wanted} scored attempts"
    return text


def _which_tasks(at: PassAt, head: Headline) -> str:
    if at.tasks == head.tasks_planned:
        return "the one task" if at.tasks == 1 else f"all {at.tasks:,} tasks"
    return f"the {counted(at.tasks, 'task')} with {'a score' if at.k == 1 else f'all {at.k} attempts'}"


def _outcomes(tally: Tally, facts: RunFacts) -> str:
    notes = [f"limit reached {tally.limited:,}"] if tally.limited else []
    if tally.zeros:
        notes.append(f"counted as 0: {_by_class(tally.zeros)}")
    in_brackets = f" ({'; '.join(notes)})" if notes else ""
    parts = [f"scored {tally.scored:,}{in_brackets}"]
    failed = tally.failed.total()
    if failed:
        parts.append(f"failed {failed:,} ({_by_class(tally.failed)})")
    if tally.not_run:
        why = f" ({facts.why_not_run})" if facts.why_not_run else ""
        parts.append(f"not run {tally.not_run:,}{why}")
    if tally.passed:
        parts.append(f"over a cap per rollout {tally.passed:,}")
    if tally.retried:
        parts.append(f"tried again {tally.retried:,}")
    if tally.malformed_calls:
        parts.append(f"malformed tool calls {tally.malformed_calls:,}")
    if tally.broken_calls:
        parts.append(f"tool calls that their server failed {tally.broken_calls:,}")
    return " · ".join(parts)


def _by_class(counts: Counter[FailureClass]) -> str:
    return ", ".join(f"{name} {counts[name]:,}" for name in FAILURE_CLASSES if counts[name])


def reason_lines(tally: Tally, clean: Callable[[str], str] = str) -> list[str]:
    """The most frequent reasons of failures with their first rollouts, and what was said in the first one.

    `clean` hides secrets in what a server said.
    """
    lines: list[str] = []
    for reason, count in tally.reasons.most_common(_SHOWN_REASONS):
        named = tally.examples[reason]
        which = ", ".join([*named, *(["…"] if count > len(named) else [])])
        cause = clean(tally.causes.get(reason, ""))
        lines += [f"{count:,} × {reason}   ({which})", *([f"    {cause}"] if cause else [])]
    return lines


def under_floor(tally: Tally, rollouts: Path) -> str:
    """What to do about a coverage that is too low."""
    lower = "--min-coverage lowers the floor"
    return f"gymctl why {shlex.quote(str(rollouts))} tells the causes; {lower}" if tally.failed else lower


def _cost(tally: Tally, facts: RunFacts) -> str:
    dated = f"     prices of {facts.prices_of}" if facts.prices_of else ""
    if not tally.unpriced:
        return f"{money(tally.cost)}{dated}"
    if not tally.cost:
        return f"unknown: no price of this model is known (--prices){dated}"
    return f"unknown: {money(tally.cost)}, and {tally.unpriced:,} answers of models without a price{dated}"


def money(dollars: float) -> str:
    return f"${dollars:,.2f}" if dollars >= 0.1 or not dollars else f"${dollars:.4f}"


def _tokens(tally: Tally) -> str:
    used = tally.usage
    cached = f" ({_short(used.cached)} cached)" if used.cached else ""
    text = f"{_short(used.input)} in{cached} · {_short(used.output)} out"
    if tally.retried_tokens:
        text += f"     retries added {tally.retried_tokens / max(used.total - tally.retried_tokens, 1):.1%}"
    if tally.unmetered:
        text += f"     {counted(tally.unmetered, 'answer')} without usage"
    return text


def _row(label: str, text: str) -> str:
    return f" {label:<{LABEL_WIDTH}} {text}".rstrip()


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
