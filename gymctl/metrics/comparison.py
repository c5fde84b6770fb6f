"""Two runs over the same tasks: every number of `gymctl compare`, and the one word that follows from them.

    better, worse   the 95 % interval says so, and for several comparisons its p-value after Holm, too
    equivalent      the 90 % interval lies inside of the margin: two one-sided tests at 5 % each (Schuirmann,
                    J. Pharmacokinet. Biopharm. 15, 1987); it goes before better and worse, since whoever
                    names a margin does not care for what happens inside of it
    undecided       neither

The p-value that decides is that of the interval: of t, or where t is too narrow, of the sign flips. Sign
flips are shown in any case, but where most tasks are tied they are no test at 5 %: four tasks that moved, all
in one direction, have a mid-p of 0.063. Of equal runs with 30 tasks near the ceiling they find 1.5 % to
differ, t finds 4.4 %. (For rewards of 0 and 1 this t test is nearly the asymptotic McNemar test; Fagerland,
Lydersen and Laake, BMC Med. Res. Methodol. 13:91, 2013, compare it with exact and mid-p ones.) Differences of
equal runs are symmetric, and there t hardly errs but to the safe side (Efron, J. Am. Stat. Assoc. 64, 1969).

Where more than the floor allows is missing from a run, its point is no point: then better and worse must
also hold in the worst case, whatever the missing rollouts would have scored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gymctl.metrics.bootstrap import bootstrap_interval
from gymctl.metrics.intervals import Interval
from gymctl.metrics.paired import Clusters, Pair, paired_interval, t_p_value, unpaired_half_width
from gymctl.metrics.power import Needed, needed, smallest_visible
from gymctl.metrics.signflip import SignFlip, sign_flip
from gymctl.metrics.statistics import mean

ALPHA = 0.05
Verdict = Literal["better", "worse", "equivalent", "undecided"]


@dataclass(frozen=True, slots=True)
class Difference:
    """B - A over the tasks that have a score in both."""

    tasks: int
    clusters: int
    mean_a: float
    mean_b: float
    value: float
    interval: Interval | None
    narrow: Interval | None
    """The 90 % interval, for equivalence."""
    bootstrap: tuple[float, float] | None
    unpaired_half: float | None
    p: float
    """What decides: the p-value of the interval."""
    test: SignFlip
    better: int
    same: int
    worse: int
    visible: float | None
    """The smallest difference that this design finds in 80 % of all cases."""
    needed: Needed | None


def difference(
    pairs: Sequence[Pair], *, is_unit: bool, seed: int = 0, draws: int | None = None
) -> Difference | None:
    """All numbers of one comparison; None without a pair.

    is_unit: rewards lie in [0, 1]. draws: resamples of the bootstrap, by default as many as are useful."""
    if not pairs:
        return None
    clusters = Clusters.of(pairs)
    interval = paired_interval(pairs, clusters, is_unit=is_unit)
    test = sign_flip(clusters.totals, seed=seed)
    is_by_t = interval is not None and interval.method == "t"
    return Difference(
        tasks=len(pairs),
        clusters=len(clusters.totals),
        mean_a=mean([float(pair.a) for pair in pairs]),
        mean_b=mean([float(pair.b) for pair in pairs]),
        value=clusters.mean,
        interval=interval,
        narrow=paired_interval(pairs, clusters, is_unit=is_unit, confidence=0.9),
        bootstrap=bootstrap_interval(clusters, seed=seed, draws=draws),
        unpaired_half=unpaired_half_width(pairs),
        p=t_p_value(clusters) if is_by_t else test.p,
        test=test,
        better=sum(pair.difference > 0 for pair in pairs),
        same=sum(pair.difference == 0 for pair in pairs),
        worse=sum(pair.difference < 0 for pair in pairs),
        visible=smallest_visible(clusters),
        needed=needed(pairs, clusters),
    )


@dataclass(frozen=True, slots=True)
class Rules:
    """What the user calls better, and how much is nothing."""

    margin: float | None = None
    is_lower_better: bool = False


def verdict(
    found: Difference, p: float, rules: Rules, bounds: tuple[float, float] | None, *, is_covered: bool
) -> Verdict:
    """`p` is adjusted for the number of comparisons; `bounds`: lowest and highest B - A; None: unknown."""
    if is_covered and rules.margin is not None and found.narrow is not None:
        low, high = found.narrow.low, found.narrow.high
        if -rules.margin < low and high < rules.margin:
            return "equivalent"
    if found.interval is None or p > ALPHA:
        return "undecided"
    ranges = [(found.interval.low, found.interval.high)]
    if not is_covered:
        ranges.append(bounds or (float("-inf"), float("inf")))
    if all(low > 0 for low, _ in ranges):
        return "worse" if rules.is_lower_better else "better"
    if all(high < 0 for _, high in ranges):
        return "better" if rules.is_lower_better else "worse"
    return "undecided"


def loss(
    found: Difference | None, rules: Rules, bounds: tuple[float, float] | None, *, is_covered: bool
) -> float | None:
    """By how much B may be worse than A (0: not at all): the end of the 95 % interval, and where too much is
    missing the worst case as well. None: nobody can tell."""
    if found is None or found.interval is None:
        return None
    ranges = [(found.interval.low, found.interval.high)]
    if not is_covered:
        if bounds is None:
            return None
        ranges.append(bounds)
    worst = [high if rules.is_lower_better else -low for low, high in ranges]
    return max(0.0, *worst)
