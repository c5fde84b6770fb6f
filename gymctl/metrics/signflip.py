"""Is a difference more than chance? The sign-flip test, which assumes only symmetry around no difference.

If two runs are equally good, each task's difference (each cluster's sum of them) could as well have had the
other sign. The two-sided p-value is the share of all sign patterns whose sum is further from 0 than the
observed one, and half of those that are equally far (Fisher, The Design of Experiments, 1935, section 21;
the half is Lancaster's mid-p, J. Am. Stat. Assoc. 56, 1961: rewards of 0 and 1 have so many ties that a
full count finds differences in 1 - 3 % of equal runs instead of 5 %). It is counted exactly where the
patterns can be counted; else patterns are drawn, and the observed one is one of them (Phipson and Smyth,
Stat. Appl. Genet. Mol. Biol. 9, 2010).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from operator import getitem
from random import Random

DRAWS = 9_999
_LISTED = 14
"""So many differences have few enough patterns to list them all."""
_BIT_STEPS = 10_000_000_000
"""Work (bits moved) up to which sums on a grid are counted exactly; about 0.3 s."""
_OCTET = 8


@dataclass(frozen=True, slots=True)
class SignFlip:
    p: float
    is_exact: bool
    """Every pattern was counted; else `DRAWS` were drawn."""


def sign_flip(differences: Sequence[Fraction], *, seed: int = 0, draws: int = DRAWS) -> SignFlip:
    """The test over independent differences; their order has no influence. All zero (or none): p is 1."""
    sizes = sorted(abs(difference) for difference in differences if difference)
    if not sizes:
        return SignFlip(1.0, is_exact=True)
    observed = abs(sum(differences, Fraction(0)))
    scale = math.lcm(*(size.denominator for size in sizes))
    steps = [int(size * scale) for size in sizes]
    goal = int(observed * scale)
    if len(steps) <= _LISTED:
        return SignFlip(_listed(steps, goal), is_exact=True)
    if sum(steps) * len(steps) ** 2 <= _BIT_STEPS:
        return SignFlip(_counted(steps, goal), is_exact=True)
    return SignFlip(_drawn([float(size) for size in sizes], float(observed), seed, draws), is_exact=False)


def _listed(steps: Sequence[int], goal: int) -> float:
    sums = [0]
    for step in steps:
        sums = [total + signed for total in sums for signed in (step, -step)]
    beyond = sum(abs(total) > goal for total in sums)
    level = sum(abs(total) == goal for total in sums)
    return (beyond + level / 2) / len(sums)


def _counted(steps: Sequence[int], goal: int) -> float:
    """The product of all (1 + x^step) counts, for each total, the sets of differences that are positive. It
    is kept in one integer, a slot for each power of x (Kronecker substitution), so each factor is a shift and
    an addition."""
    slot = len(steps) // 8 + 1  # bytes: a slot must hold 2^n
    whole, product = sum(steps), 1
    for step in steps:
        product += product << (8 * slot * step)
    digits = product.to_bytes(slot * (whole + 1), "little")

    def count(total: int) -> int:
        return int.from_bytes(digits[slot * total : slot * (total + 1)], "little")

    # With the positive ones adding up to t the sum is 2t - whole; the counts are symmetric around 0.
    first = (whole + goal) // 2
    level = count(first) if goal else Fraction(count(first), 2)
    beyond = sum(count(total) for total in range(first + 1, whole + 1))
    return float(Fraction(2 * beyond + level) / (1 << len(steps)))


def _drawn(sizes: Sequence[float], observed: float, seed: int, draws: int) -> float:
    """Signs come a byte at a time: a table per eight differences holds their 256 signed sums."""
    generator = Random(seed)
    tables = [_signed_sums(sizes[start : start + _OCTET]) for start in range(0, len(sizes), _OCTET)]
    slack = 1e-9 * math.fsum(sizes)
    sums = [abs(sum(map(getitem, tables, generator.randbytes(len(tables))))) for _ in range(draws)]
    beyond = sum(total > observed + slack for total in sums)
    level = 1 + sum(abs(total - observed) <= slack for total in sums)
    return (beyond + level / 2) / (draws + 1)


def _signed_sums(sizes: Sequence[float]) -> list[float]:
    sums = [0.0]
    for size in [*sizes, *[0.0] * (_OCTET - len(sizes))]:
        sums = [total + signed for total in sums for signed in (size, -size)]
    return sums


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values for several comparisons, in the order given (Holm, Scand. J. Statist. 6, 1979)."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    raised = (min(1.0, (len(order) - rank) * p_values[index]) for rank, index in enumerate(order))
    adjusted = dict(zip(order, accumulate(raised, max), strict=True))
    return [adjusted[index] for index in range(len(p_values))]
