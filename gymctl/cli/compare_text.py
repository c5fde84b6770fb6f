"""What `gymctl compare` prints: lines, Markdown or JSON; a difference never without its interval and gaps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

from gymctl.cli.compare_differs import differs_json, differs_rows
from gymctl.counts import counted
from gymctl.metrics.comparison import Difference, Rules
from gymctl.rollouts.compare import Compared, Group
from gymctl.rollouts.pairing import REWARD, RunTasks

_LABEL_WIDTH = 9
_SHOWN_TASKS = 5


@dataclass(frozen=True, slots=True)
class Told:
    """Everything that is printed."""

    runs: tuple[RunTasks, ...]
    found: tuple[Compared, ...]
    metric: str
    group_field: str | None
    rules: Rules
    allowed: float | None
    """What the gate lets pass; None: no gate."""

    def letter(self, run: RunTasks) -> str:
        number = next(index for index, one in enumerate(self.runs) if one is run)
        return ascii_uppercase[number] if number < len(ascii_uppercase) else f"R{number + 1}"


def passes(one: Compared, allowed: float) -> bool:
    return one.loss is not None and one.loss <= allowed


def gate_words(one: Compared, allowed: float) -> str:
    """`gate failed: may lose up to 0.092, allowed 0.020`."""
    if one.loss is None:
        return f"gate failed: nobody can tell how much is lost, allowed {allowed:.3f}"
    word = "passed" if passes(one, allowed) else "failed"
    return f"gate {word}: may lose up to {one.loss:.3f}, allowed {allowed:.3f}"


def as_lines(told: Told) -> list[str]:
    """The text for people."""
    lines = []
    for one in told.found:
        lines += [*([""] if lines else []), _title(told, one), ""]
        lines += [f" {label:<{_LABEL_WIDTH}} {text}".rstrip() for label, text in _rows(told, one)]
    return lines


def as_markdown(told: Told) -> list[str]:
    """A heading and a table for each comparison."""
    lines = []
    for one in told.found:
        lines += [*([""] if lines else []), f"**{_title(told, one)}**", "", "| | |", "|---|---|"]
        lines += [f"| {label.strip()} | {_escaped(text)} |" for label, text in _rows(told, one) if text]
    return lines


def next_step(told: Told) -> str | None:
    """One command worth typing now."""
    for one in told.found:
        for run, coverage in ((one.b, one.matching.coverage_b), (one.a, one.matching.coverage_a)):
            if coverage < 1:
                return f"next: gymctl why {run.path}"
    needed = [one.found.needed for one in told.found if one.found and one.verdict == "undecided"]
    attempts = [one.attempts for one in needed if one and one.attempts]
    return f"next: run both with -k {max(attempts)}, then compare again" if attempts else None


def _title(told: Told, one: Compared) -> str:
    return "      ".join(
        " ".join(
            [
                told.letter(run),
                run.name,
                *([f"  {run.model}"] if run.model else []),
                "" if one.found is None else f" {value:.3f}",
            ]
        ).rstrip()
        for run, value in (
            (one.a, one.found.mean_a if one.found else 0.0),
            (one.b, one.found.mean_b if one.found else 0.0),
        )
    )


def _rows(told: Told, one: Compared) -> Iterator[tuple[str, str]]:
    if told.metric != REWARD:
        yield "metric", told.metric + (", lower is better" if told.rules.is_lower_better else "")
    yield from differs_rows(one)
    yield "paired", _paired(one)
    for text in _left_out(told, one):
        yield "", text
    yield "", ""
    found = one.found
    name = f"{told.letter(one.b)} − {told.letter(one.a)}"
    if found is None:
        yield name, "unknown: no task has a score in both"
    else:
        yield name, _difference(found, one.p if len(told.found) > 1 else None)
        if found.bootstrap is not None:
            yield "", f"bootstrap {signed(found.bootstrap[0])} – {signed(found.bootstrap[1])}"
    yield "verdict", _verdict(told, one)
    if found is not None:
        yield from _design(found, one)
        yield "tasks", _moved(found, one)
    for group in one.groups:
        yield ("" if group is not one.groups[0] else "by group"), _group(group)
    yield "", ""
    yield "coverage", _coverage(told, one)


def _paired(one: Compared) -> str:
    count = len(one.matching.pairs)
    clusters = one.found.clusters if one.found else count
    grouped = f" in {counted(clusters, 'cluster')}" if clusters != count else ""
    return f"{counted(count, 'task')} in both, same content{grouped} · {one.matching.left_out:,} left out"


def _left_out(told: Told, one: Compared) -> Iterator[str]:
    a, b = told.letter(one.a), told.letter(one.b)
    for what, tasks in (
        ("changed", one.matching.changed),
        (f"only in {a}", one.matching.only_a),
        (f"only in {b}", one.matching.only_b),
        ("without a score in one of them", one.matching.unscored),
    ):
        if tasks:
            yield f"{what}: {_named(tasks)}"


def _named(tasks: Sequence[int]) -> str:
    rest = len(tasks) - 2 * _SHOWN_TASKS
    shown = ", ".join(map(str, tasks[: 2 * _SHOWN_TASKS]))
    return f"{shown} and {rest:,} more" if rest > 0 else shown


def _difference(found: Difference, adjusted: float | None) -> str:
    kind = "exact sign flips" if found.test.is_exact else "sign flips"
    after = "" if adjusted is None else f", {p_value(adjusted)} after Holm"
    if found.interval is None:
        why = "one task or cluster" if found.clusters < 2 else "every task differs by the same"
        return f"{signed(found.value)}   no interval: {why}"
    flips = f"{p_value(found.test.p)} ({kind})"
    if found.interval.method == "t":
        p = f"{p_value(found.p)}{after} · {flips}"
    else:
        p = f"{flips}{after} · exact binomial interval"
    low, high = found.interval.low, found.interval.high
    return f"{signed(found.value)}   95 % {signed(low)} – {signed(high)}     {p}"


def _verdict(told: Told, one: Compared) -> str:
    parts = [one.verdict]
    if not one.is_covered:
        parts.append("coverage is too low: the worst case counts too")
    if told.rules.margin is not None and one.verdict == "equivalent":
        parts.append(f"inside of ± {told.rules.margin:g}")
    if told.allowed is not None:
        parts.append(gate_words(one, told.allowed))
    return f"{parts[0]:<10}" + "     ".join(["", *parts[1:]]) if len(parts) > 1 else parts[0]


def _design(found: Difference, one: Compared) -> Iterator[tuple[str, str]]:
    parts = []
    if found.visible is not None:
        parts.append(f"smallest difference visible at 80 %: {found.visible:.3f}")
    if found.unpaired_half is not None and found.interval is not None:
        half = (found.interval.high - found.interval.low) / 2
        parts.append(f"unpaired the interval would be ± {found.unpaired_half:.3f}, not ± {half:.3f}")
    if parts:
        yield "design", " · ".join(parts)
    if one.verdict == "undecided" and found.needed is not None:
        attempts = found.needed.attempts
        more = f", or k = {attempts}" if attempts else ""
        yield "needs", f"≈ {found.needed.more_tasks:,} more tasks{more}, if the difference is as observed"


def _moved(found: Difference, one: Compared) -> str:
    text = f"better {found.better:,} · same {found.same:,} · worse {found.worse:,}"
    is_loss = found.value < 0
    moved = sorted(one.matching.pairs, key=lambda pair: (pair.difference * (1 if is_loss else -1), pair.task))
    moved = [pair for pair in moved if (pair.difference < 0 if is_loss else pair.difference > 0)]
    if not moved:
        return text
    names = ", ".join(str(one.a.tasks[pair.task].index) for pair in moved[:_SHOWN_TASKS])
    return f"{text}     most {'lost' if is_loss else 'gained'}: {names}"


def _group(group: Group) -> str:
    found = group.found
    span = (
        f"95 % {signed(found.interval.low)} – {signed(found.interval.high)}"
        if found.interval
        else "no interval"
    )
    name = "".join(character if character.isprintable() else "?" for character in group.name[:40])
    return (
        f"{name}   {counted(found.tasks, 'task')}   {found.mean_a:.3f} → {found.mean_b:.3f}   "
        f"{signed(found.value)}   {span}   {p_value(group.p)}"
    )


def _coverage(told: Told, one: Compared) -> str:
    a, b, matching = told.letter(one.a), told.letter(one.b), one.matching
    text = f"{a} {matching.coverage_a:.1%}, {b} {matching.coverage_b:.1%}"
    if matching.coverage_a == matching.coverage_b == 1:
        return text
    if matching.bounds is None:
        return f"{text}: worst and best case unknown, values leave 0 – 1"
    low, high = matching.bounds
    worst, best = (high, low) if told.rules.is_lower_better else (low, high)
    return f"{text}: worst case for {b} − {a} {signed(worst)}, best case {signed(best)}"


def signed(value: float) -> str:
    """`+0.012`, `−0.040`; `0.000` without a sign."""
    text = f"{value:+.3f}"
    return "0.000" if float(text) == 0 else text.replace("-", "−")


def p_value(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p {p:.3f}"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").strip()


def as_json(told: Told) -> dict[str, Any]:
    """All numbers, unrounded; a schema that only grows."""
    return {
        "runs": [
            {"letter": told.letter(run), "name": run.name, "path": str(run.path), "model": run.model}
            for run in told.runs
        ],
        "metric": told.metric,
        "lower_is_better": told.rules.is_lower_better,
        "margin": told.rules.margin,
        "comparisons": [_comparison_json(told, one) for one in told.found],
        "gate": None
        if told.allowed is None
        else {
            "no_worse_than": told.allowed,
            "passed": all(passes(one, told.allowed) for one in told.found),
        },
    }


def _comparison_json(told: Told, one: Compared) -> dict[str, Any]:
    matching, a = one.matching, one.a
    return {
        "a": told.letter(a),
        "b": told.letter(one.b),
        "verdict": one.verdict,
        **({} if one.found is None else _numbers(one.found)),
        "differs": differs_json(one),
        "p_adjusted": one.p,
        "may_lose": one.loss,
        "paired": len(matching.pairs),
        "left_out": {
            "changed": matching.changed,
            "only_a": matching.only_a,
            "only_b": matching.only_b,
            "unscored": matching.unscored,
        },
        "coverage": {"a": matching.coverage_a, "b": matching.coverage_b, "is_enough": one.is_covered},
        "bounds": list(matching.bounds) if matching.bounds else None,
        "groups": [
            {"name": group.name, **_numbers(group.found), "p_adjusted": group.p} for group in one.groups
        ],
    }


def _numbers(found: Difference) -> dict[str, Any]:
    needed = found.needed
    return {
        "mean_a": found.mean_a,
        "mean_b": found.mean_b,
        "difference": found.value,
        "interval_95": [found.interval.low, found.interval.high] if found.interval else None,
        "interval_method": found.interval.method if found.interval else None,
        "interval_90": [found.narrow.low, found.narrow.high] if found.narrow else None,
        "bootstrap_95": list(found.bootstrap) if found.bootstrap else None,
        "unpaired_half_width": found.unpaired_half,
        "p": found.p,
        "p_sign_flip": found.test.p,
        "p_sign_flip_is_exact": found.test.is_exact,
        "tasks": found.tasks,
        "clusters": found.clusters,
        "better": found.better,
        "same": found.same,
        "worse": found.worse,
        "smallest_visible": found.visible,
        "needed": {"more_tasks": needed.more_tasks, "attempts": needed.attempts} if needed else None,
    }
