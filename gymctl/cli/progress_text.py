"""`--progress text`: how people who come from NeMo Gym see a run (CONTRACT 9.11).

    Collecting rollouts: 40/80 (50%) · 31.0 s · 77.4 rollouts/min
      weather_environment_server: 40 left · reward 0.750 · final_count 2.1

A block at each whole percent up to 99, at 99.5 and at 100, and a line for each rollout that was dropped. What
is kept is a sum for each number that records have, whatever their count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gymctl.cli.output import Console
from gymctl.cli.table import duration
from gymctl.contract.rollout import ENVIRONMENT_SERVER
from gymctl.metrics.outcomes import Outcome
from gymctl.metrics.statistics import number
from gymctl.metrics.tally import Tally

ERROR_CHARACTERS = 200


@dataclass(slots=True)
class TextBlocks:
    tally: Tally
    console: Console
    clock: Callable[[], float]
    left: Counter[str]
    """Rollouts that each environment server still has to answer."""
    clean: Callable[[str], str] = str
    """Takes secrets out of what servers said."""
    _start: float = field(init=False)
    _kept: int = field(init=False)
    _step: int = field(init=False)
    _sums: dict[str, dict[str, tuple[float, int]]] = field(default_factory=dict)
    """Environment server -> number -> its sum and count."""

    def __post_init__(self) -> None:
        self._start, self._kept, self._step = self.clock(), self.tally.finished, self._reached()

    def __call__(self, rollout: str, outcome: Outcome, record: Mapping[str, Any]) -> None:
        """One rollout has ended for good."""
        name = record.get(ENVIRONMENT_SERVER)
        if isinstance(name, str):
            self.left[name] -= 1
        if outcome.failure is not None:
            said = self.clean(outcome.cause or outcome.reason)
            self.console.say(f"dropped {rollout} ({outcome.failure}): {said[:ERROR_CHARACTERS]}")
        elif isinstance(name, str):
            sums = self._sums.setdefault(name, {})
            for key, value in record.items():
                if not key.startswith("_") and (told := number(value)) is not None:
                    total, count = sums.get(key, (0.0, 0))
                    sums[key] = total + told, count + 1
        reached = self._reached()
        if reached > self._step:
            self._step = reached
            self.console.say("\n".join(self.block()))

    def _reached(self) -> int:
        """The last of the steps, in half percents: 2, 4 … 198, 199, 200."""
        halves = self.tally.finished * 200 // max(self.tally.planned, 1)
        return halves if halves >= 198 else halves - halves % 2

    def block(self) -> list[str]:
        done, planned, seconds = self.tally.finished, self.tally.planned, self.clock() - self._start
        speed = (done - self._kept) / seconds * 60 if seconds > 0 else 0.0
        share = f"{done:,}/{planned:,} ({self._step / 2:g}%)"
        lines = [f"Collecting rollouts: {share} · {duration(seconds)} · {speed:,.1f} rollouts/min"]
        for name in sorted(self.left):
            means = [f"{key} {total / count:.4g}" for key, (total, count) in self._sums.get(name, {}).items()]
            lines.append(" · ".join([f"  {name}: {max(self.left[name], 0):,} left", *means]))
        return lines
