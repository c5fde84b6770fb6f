"""Pairs of equally good runs, and of runs that differ, for the tests of comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from gymctl.metrics.paired import Pair


def of(differences: Sequence[float], clusters: Sequence[str | None] | None = None) -> list[Pair]:
    """Tasks that differ by exactly this much, from 1/2 in the first run."""
    half = Fraction(1, 2)
    return [
        Pair(f"{index:05}", half, half + Fraction(value), clusters[index] if clusters else None)
        for index, value in enumerate(differences)
    ]


def simulated(
    generator: np.random.Generator,
    *,
    tasks: int,
    attempts: int,
    effect: float = 0.0,
    difficulty: tuple[float, float] = (1.0, 1.0),
    cluster_size: int = 1,
) -> list[Pair]:
    """Runs of 0/1 rewards; each task has its own chance, from a beta distribution. With clusters, half of
    them have a worse day in the second run and the other half a better one."""
    chance = generator.beta(*difficulty, size=tasks)
    mood = (
        generator.choice([-0.15, 0.15], size=-(-tasks // cluster_size)) if cluster_size > 1 else [0.0] * tasks
    )
    shift = np.array([mood[task // cluster_size] for task in range(tasks)]) + effect
    a = generator.binomial(attempts, chance)
    b = generator.binomial(attempts, np.clip(chance + shift, 0, 1))
    return [
        Pair(
            f"{task:05}",
            Fraction(int(a[task]), attempts),
            Fraction(int(b[task]), attempts),
            str(task // cluster_size) if cluster_size > 1 else None,
        )
        for task in range(tasks)
    ]
