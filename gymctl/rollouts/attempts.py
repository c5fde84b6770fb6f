"""How often a rollout may be tried, and which failure is the last one (CONTRACT 9.8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gymctl.contract.rollout import ATTEMPT_INDEX, FAILURE_CLASS, OUTCOME, Row

VARIABLE = "NEMO_GYM_MAX_ROLLOUT_ATTEMPTS"
MOST = 3
TERMINAL = "_ng_failure_terminal"
REUSE = "reuse_cached_deliverable"
_TIMEOUTS = frozenset({"timeout_exceeded", "reference_missing", "eval_missing", "transport_ineligible"})
_NEVER_AGAIN = "skipped"


@dataclass(frozen=True, slots=True)
class AttemptPolicy:
    """When a failed rollout is not tried again."""

    most: int = MOST
    """Attempts in all, over every session of a run."""
    retries_terminal_timeouts: bool = False

    def is_terminal(self, record: Row) -> bool:
        """Whether a failure record says that another attempt cannot come out differently."""
        stamp = record.get(OUTCOME)
        if isinstance(stamp, Mapping) and stamp.get("counts_as_zero") is True:
            return True  # declared to be an answer
        label = record.get(FAILURE_CLASS)
        if label == _NEVER_AGAIN:
            return True
        if self.retries_terminal_timeouts and label in _TIMEOUTS:
            return False
        return bool(record.get(TERMINAL))

    def is_over(self, failures: int, record: Row) -> bool:
        """Whether a rollout with so many failures, the last one `record`, stays failed."""
        return failures >= self.most or self.is_terminal(record)


def most_attempts(environ: Mapping[str, str]) -> tuple[int, str | None]:
    """The cap that the environment sets, and a warning when it sets none that can be used."""
    text = environ.get(VARIABLE, "").strip()
    if not text:
        return MOST, None
    try:
        most = int(text)
    except ValueError:
        most = 0
    if most < 1:
        return MOST, f"`{VARIABLE}` must be a whole number of at least 1, got `{text}`: taking {MOST}"
    return most, None


def again(row: Row, failures: int, *, reuses: bool = False) -> Row:
    """The row of the next attempt, after so many that failed."""
    retried = {**row, ATTEMPT_INDEX: failures}
    return {**retried, REUSE: True} if reuses else retried
