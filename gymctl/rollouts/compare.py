"""From the files of two or more runs to what `gymctl compare` says of them; the first is the baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gymctl.metrics.comparison import Difference, Rules, Verdict, difference, loss, verdict
from gymctl.metrics.signflip import holm
from gymctl.rollouts.pairing import Matching, RunTasks, match


@dataclass(frozen=True, slots=True)
class Group:
    """The comparison within one group of tasks; its p-value is adjusted for the number of groups."""

    name: str
    found: Difference
    p: float


@dataclass(frozen=True, slots=True)
class Compared:
    """One run against the baseline."""

    a: RunTasks
    b: RunTasks
    matching: Matching
    found: Difference | None
    """None when no task has a score in both."""
    p: float
    """What decides, adjusted for the number of comparisons; 1 without a pair."""
    verdict: Verdict
    loss: float | None
    """By how much B may be worse; None: nobody can tell."""
    is_covered: bool
    """Enough of both runs has a score; else the worst case counts as well."""
    groups: tuple[Group, ...]


def compare(
    runs: Sequence[RunTasks], rules: Rules, *, min_coverage: float, is_grouped: bool, seed: int = 0
) -> list[Compared]:
    """Each of the others against the first run."""
    baseline, *others = runs
    matchings = [match(baseline, other) for other in others]
    found = [difference(one.pairs, is_unit=one.is_unit, seed=seed) for one in matchings]
    adjusted = holm([one.p if one else 1.0 for one in found])
    return [
        _compared(baseline, other, matching, one, p, rules, min_coverage, is_grouped=is_grouped, seed=seed)
        for other, matching, one, p in zip(others, matchings, found, adjusted, strict=True)
    ]


def _compared(
    a: RunTasks,
    b: RunTasks,
    matching: Matching,
    found: Difference | None,
    p: float,
    rules: Rules,
    min_coverage: float,
    *,
    is_grouped: bool,
    seed: int,
) -> Compared:
    is_covered = min(matching.coverage_a, matching.coverage_b) >= min_coverage
    word: Verdict = "undecided"
    if found is not None:
        word = verdict(found, p, rules, matching.bounds, is_covered=is_covered)
    return Compared(
        a,
        b,
        matching,
        found,
        p,
        word,
        loss(found, rules, matching.bounds, is_covered=is_covered),
        is_covered,
        tuple(_groups(matching, seed)) if is_grouped else (),
    )


def _groups(matching: Matching, seed: int) -> list[Group]:
    names = sorted(matching.groups)
    found = [difference(matching.groups[name], is_unit=matching.is_unit, seed=seed) for name in names]
    with_pairs = [(name, one) for name, one in zip(names, found, strict=True) if one is not None]
    adjusted = holm([one.p for _, one in with_pairs])
    return [Group(name, one, p) for (name, one), p in zip(with_pairs, adjusted, strict=True)]
