"""How many rollouts may run at once, learned from a provider that says when it is too many.

    answered        the limit grows: fast when far below where it was refused before, by one per round, then
                    slowly there, faster again beyond
    refused         the limit falls, by a share and to what was not refused of a round; then a pause, at least
                    as long as `Retry-After` asks
    refused often   without one answer between: one rollout at a time looks whether it is over, and each
                    refusal doubles the pause

`--concurrency` is where it starts, and its ceiling. No clock and no sleep in here: callers bring the time.
"""

from __future__ import annotations

import math
import random

from gymctl.contract.rollout import RETRY_AFTER_KEY, Row
from gymctl.metrics.outcomes import FAILED_CALL, Outcome

FIRST_FALL = 0.85
FURTHER_FALL = 0.7
"""While the last fall has not been enough."""
NEAR = 0.9
"""Share of the limit that was refused from which on growth is slow."""
SLOW_GROWTH = 0.1
FEWEST_ANSWERS = 50
"""Before one more is tried where it was refused: at most 2 % of refusals, however low the limit."""
ACCELERATION = 0.2
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0
LONGEST_ASKED_SECONDS = 3600.0
"""A provider that asks for more is asked again after this."""
SPREAD = 0.25
REFUSALS_TO_PROBE = 5

_OVERLOAD = frozenset({"429", "503", "529"})


class Governor:
    def __init__(self, ceiling: int) -> None:
        self.limit = float(ceiling)
        self.in_flight = 0
        self.refusals = 0
        """Answers that said "too many", or could not be had, in all."""
        self.resumes_at = 0.0
        """Nothing is sent before."""
        self._ceiling = float(ceiling)
        self._refused_at = math.inf
        """The limit when it last fell."""
        self._falls = 0
        """Since a round was answered without a refusal."""
        self._sent = 0
        self._sent_before_fall = 0
        self._answers = 0
        """Since the last refusal."""
        self._refused_of_round = 0
        """Of what was sent before the last fall."""
        self._least = 1.0
        self._refused_in_a_row = 0
        self._probe: int | None = None

    @property
    def is_probing(self) -> bool:
        return self._refused_in_a_row >= REFUSALS_TO_PROBE

    def admits(self, now: float) -> bool:
        """Whether one more rollout may be sent."""
        if now < self.resumes_at or (self.is_probing and self._probe is not None):
            return False
        return self.in_flight < int(self.limit)

    def sent(self) -> int:
        """Count a rollout as running; returns its ticket, to be handed to one of the three below."""
        self.in_flight += 1
        self._sent += 1
        if self.is_probing:
            self._probe = self._sent
        return self._sent

    def left(self, ticket: int) -> None:
        """A rollout ended without saying anything about the provider."""
        self.in_flight -= 1
        if ticket == self._probe:
            self._probe = None

    def answered(self, ticket: int) -> None:
        """The provider did its part."""
        self.left(ticket)
        self._refused_in_a_row = 0
        self._answers += 1
        if self._answers >= int(self.limit):
            self._falls = 0
        self.limit = min(self._ceiling, self.limit + self._growth())

    def refused(self, ticket: int, now: float, asked_seconds: float = 0.0) -> None:
        """The provider was too busy, or not there."""
        self.left(ticket)
        self.refusals += 1
        self._answers = 0
        own = 0.0
        if ticket > self._sent_before_fall:
            own = min(FIRST_PAUSE_SECONDS * 2 ** min(self._falls, 10), LONGEST_PAUSE_SECONDS)
            self._fall()
        self._refused_of_round += 1
        # The rest of what was sent together has been taken: it is about what the provider can do.
        self.limit = max(self._least, min(self.limit, self._refused_at - self._refused_of_round))
        self._refused_in_a_row += 1
        asked = min(asked_seconds, LONGEST_ASKED_SECONDS)
        self.resumes_at = max(self.resumes_at, now + max(own, asked) * random.uniform(1.0, 1.0 + SPREAD))

    def _fall(self) -> None:
        # What runs beside a lone probe is being served: not too many.
        self._least = float(min(max(1, self.in_flight), int(self.limit))) if self.is_probing else 1.0
        self._refused_at = self.limit
        self._refused_of_round = 0
        self.limit = max(self._least, self.limit * (FURTHER_FALL if self._falls else FIRST_FALL))
        self._falls += 1
        self._sent_before_fall = self._sent

    def _growth(self) -> float:
        """By one answer: doubling, by one per round, slowly, and by more per round again."""
        limit, refused_at = self.limit, self._refused_at
        if limit < refused_at / 2:
            return 1.0
        if limit < min(refused_at * NEAR, int(refused_at) - 1 if refused_at < math.inf else math.inf):
            return 1.0 / limit
        beyond = min(1.0, ACCELERATION * max(0.0, limit - refused_at))
        return min(SLOW_GROWTH / limit, 1 / FEWEST_ANSWERS) + beyond / limit


def overload(record: Row, outcome: Outcome) -> float | None:
    """Whether a failure says that too much was asked at once, and for how many seconds it asks to wait."""
    call = record.get(FAILED_CALL)
    is_judges = isinstance(call, str) and ":" not in call.partition("/")[0]  # a model server speaks
    if outcome.failure not in ("model", "infrastructure") and not (
        outcome.failure == "verifier" and is_judges
    ):
        return None
    result = call.rpartition(" ")[2] if isinstance(call, str) else str(record.get("_ng_failure_http_status"))
    is_gone = outcome.failure == "model" and result == "transport_unreachable"
    if result in _OVERLOAD or is_gone or record.get("_ng_failure_stage") == "admission":
        return float(record.get(RETRY_AFTER_KEY) or 0.0)
    return None
