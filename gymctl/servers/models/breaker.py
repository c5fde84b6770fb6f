"""A dead upstream: waited for at first, then given up; one call at a time looks whether it is back."""

from __future__ import annotations

import time
from collections.abc import Callable

PROBE_SECONDS = 5.0
"""Between two looks at an upstream that was given up."""


class Breaker:
    """Counts the time since a server was last reached. Open: given up, calls should fail at once."""

    def __init__(self, give_up_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._give_up_seconds = give_up_seconds
        self._clock = clock
        self._unreachable_since: float | None = None
        self._next_look = 0.0
        self._is_looking = False

    @property
    def is_open(self) -> bool:
        return self.seconds_left <= 0

    @property
    def seconds_left(self) -> float:
        """Until the server is given up; all of them while it is reached."""
        if self._unreachable_since is None:
            return max(self._give_up_seconds, 1.0)
        return self._unreachable_since + self._give_up_seconds - self._clock()

    def admits(self) -> bool:
        """May a call be made? While open: only the one that looks, which must end in `reached`, `missed` or
        `left`."""
        if not self.is_open:
            return True
        if self._is_looking or self._clock() < self._next_look:
            return False
        self._is_looking = True
        return True

    def reached(self) -> bool:
        """The server was there. True when that is news."""
        was_missing, self._unreachable_since = self._unreachable_since is not None, None
        self._is_looking = False
        return was_missing

    def missed(self) -> bool:
        """No connection could be made. True when that is news."""
        is_news = self._unreachable_since is None
        if is_news:
            self._unreachable_since = self._clock()
        self._next_look = self._clock() + PROBE_SECONDS
        self._is_looking = False
        return is_news

    def left(self) -> None:
        """A call ended without a result: its caller went away."""
        self._is_looking = False
