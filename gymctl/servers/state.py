"""What a server remembers of a session: typed objects, capped in number, forgotten when idle.

A handler gets the object by asking for it:

    @dataclass
    class Count(SessionState):
        value: int = 0

    class Counter(ResourcesServer):
        @tool
        async def increment(self, amount: int, count: Count) -> int: ...

It is made on first use, without arguments. A session that has been scored is kept a little longer (a verify
may be repeated) and is the first to go when room is needed; one that is still open is never given up for
another, a new one is refused instead.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from starlette.exceptions import HTTPException

logger = logging.getLogger("gymctl.server")

SCORED_SECONDS = 300.0


class SessionState:
    """Base of the objects that hold a session's state."""

    async def close(self) -> None:
        """Release what the object holds. When this raises, the session counts as not closed."""


S = TypeVar("S", bound=SessionState)


@dataclass(slots=True)
class _Session:
    used: float
    states: dict[type[SessionState], SessionState] = field(default_factory=dict)


class SessionStore:
    """All sessions of one server process, by session id."""

    def __init__(
        self, *, maximum: int, idle_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._maximum = maximum
        self._idle_seconds = idle_seconds
        self._clock = clock
        # Both in order of last use, so that expiry only ever looks at the front.
        self._open: OrderedDict[str, _Session] = OrderedDict()
        self._scored: OrderedDict[str, _Session] = OrderedDict()
        self._evicted: list[_Session] = []

    def __len__(self) -> int:
        return len(self._open) + len(self._scored)

    def get(self, session_id: str, state_class: type[S]) -> S:
        """The session's object of this class. Raises 503 when a new session finds no room."""
        session = self._touch(session_id)
        state = session.states.get(state_class)
        if not isinstance(state, state_class):
            state = session.states[state_class] = state_class()
        return state

    def find(self, session_id: str, state_class: type[S]) -> S | None:
        """The session's object of this class, if it was made; nothing is made here."""
        session = self._open.get(session_id) or self._scored.get(session_id)
        if session is None or state_class not in session.states:
            return None
        return self.get(session_id, state_class)

    def _touch(self, session_id: str) -> _Session:
        now = self._clock()
        for sessions in (self._open, self._scored):
            session = sessions.get(session_id)
            if session is not None:
                session.used = now
                sessions.move_to_end(session_id)
                return session
        if len(self) >= self._maximum:
            self._make_room(now)
        session = self._open[session_id] = _Session(now)
        return session

    def _make_room(self, now: float) -> None:
        if self._scored:
            self._evicted.append(self._scored.popitem(last=False)[1])
        elif self._open and next(iter(self._open.values())).used <= now - self._idle_seconds:
            self._evicted.append(self._open.popitem(last=False)[1])
        else:
            raise HTTPException(503, f"all {self._maximum} sessions are in use; raise `max_sessions`")

    def scored(self, session_id: str) -> None:
        """The session has its reward: from now on it may go first."""
        session = self._open.pop(session_id, None)
        if session is not None:
            self._scored[session_id] = session

    async def close(self, session_id: str) -> None:
        """Release and forget. When a release raises, the session stays and may be closed again."""
        session = self._open.get(session_id) or self._scored.get(session_id)
        if session is None:
            return
        for state_class, state in list(session.states.items()):
            await state.close()
            del session.states[state_class]
        self._open.pop(session_id, None)
        self._scored.pop(session_id, None)

    async def sweep(self) -> None:
        """Forget what has been idle for too long; called every now and then."""
        now = self._clock()
        for sessions, seconds in ((self._scored, SCORED_SECONDS), (self._open, self._idle_seconds)):
            while sessions and next(iter(sessions.values())).used <= now - seconds:
                self._evicted.append(sessions.popitem(last=False)[1])
        evicted, self._evicted = self._evicted, []
        await _release(evicted)

    async def close_all(self) -> None:
        everything = [*self._evicted, *self._open.values(), *self._scored.values()]
        self._open.clear()
        self._scored.clear()
        self._evicted = []
        await _release(everything)


async def _release(sessions: Iterable[_Session]) -> None:
    """Nobody waits for these: one that cannot be released must not keep the others."""
    for session in sessions:
        for state in session.states.values():
            try:
                await state.close()
            except (OSError, RuntimeError, ValueError, LookupError, TypeError, AttributeError):
                logger.exception("an idle session's %s was not released", type(state).__name__)
