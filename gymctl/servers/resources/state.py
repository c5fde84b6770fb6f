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
another, a new one is refused instead. A call for a session that is over is refused as well: what it would
find is not what it left there. A session that nobody has heard of begins with new state.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from starlette.exceptions import HTTPException

from gymctl.servers.stack.recent import Recent

logger = logging.getLogger("gymctl.server")

SCORED_SECONDS = 300.0
RETRY_AFTER_SECONDS = 1
REMEMBERED = 262144
"""Sessions that are over and known to be, at most."""


class SessionState:
    """Base of the objects that hold a session's state."""

    def close(self) -> Awaitable[None] | None:
        """Release what the object holds. When this raises, the session counts as not closed.

        Override it as `async def`, or as a plain `def`, which runs in a thread.
        """


S = TypeVar("S", bound=SessionState)


@dataclass(slots=True)
class _Session:
    used: float
    states: dict[type[SessionState], SessionState] = field(default_factory=dict)


class SessionStore:
    """All sessions of one server process, by session id."""

    def __init__(
        self,
        *,
        maximum: int,
        idle_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        run: Callable[[Callable[[], Any]], Awaitable[Any]] = asyncio.to_thread,
    ) -> None:
        """run: how a state's plain `close` is run beside the event loop."""
        self._maximum = maximum
        self._idle_seconds = idle_seconds
        self._scored_seconds = min(SCORED_SECONDS, idle_seconds)
        self._clock = clock
        self._run = run
        # Both in order of last use, so that expiry only ever looks at the front.
        self._open: OrderedDict[str, _Session] = OrderedDict()
        self._scored: OrderedDict[str, _Session] = OrderedDict()
        self._evicted: list[_Session] = []
        self._over: Recent[str, str] = Recent(REMEMBERED)
        """Why a session is over, by id."""

    def __len__(self) -> int:
        return len(self._open) + len(self._scored)

    def get(self, session_id: str, state_class: type[S]) -> S:
        """The session's object of this class. Raises 503 when a new session finds no room, 410 for one that
        is over."""
        session = self._used(session_id) or self._unheard_of(session_id)
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

    def _used(self, session_id: str) -> _Session | None:
        for sessions in (self._open, self._scored):
            session = sessions.get(session_id)
            if session is not None:
                session.used = self._clock()
                sessions.move_to_end(session_id)
                return session
        return None

    def _unheard_of(self, session_id: str) -> _Session:
        why = self._over.get(session_id)
        if why is not None:
            raise HTTPException(410, f"session expired: {why}; seed it again to begin anew")
        return self._placed(session_id)

    def _placed(self, session_id: str) -> _Session:
        now = self._clock()
        if len(self) >= self._maximum:
            self._make_room(now)
        session = self._open[session_id] = _Session(now)
        return session

    def _make_room(self, now: float) -> None:
        if self._scored:
            self._evict_first(self._scored, "it was scored, and its place was needed")
        elif self._open and next(iter(self._open.values())).used <= now - self._idle_seconds:
            self._evict_first(self._open, self._idle_reason)
        else:
            raise HTTPException(
                503,
                f"all {self._maximum} sessions are in use; close some, or raise `max_sessions`",
                headers={"Retry-After": str(RETRY_AFTER_SECONDS)},
            )

    @property
    def _idle_reason(self) -> str:
        return f"nobody used it for {self._idle_seconds:g} s (`session_idle_seconds`)"

    def _evict_first(self, sessions: OrderedDict[str, _Session], why: str) -> None:
        session_id, session = sessions.popitem(last=False)
        self._evicted.append(session)
        self._over.put(session_id, why)

    def scored(self, session_id: str) -> None:
        """The session has its reward, or its verifier failed: from now on it may go first."""
        session = self._open.pop(session_id, None)
        if session is not None:
            self._scored[session_id] = session

    async def begin(self, session_id: str) -> None:
        """Take a place for a new session; what an earlier one of this id held is released. Raises 503."""
        await self.forget(session_id)
        self._placed(session_id)
        self._over.drop(session_id)

    async def close(self, session_id: str) -> None:
        """Release, and refuse from now on. When a release raises, the session can be closed again."""
        await self.forget(session_id)
        self._over.put(session_id, "it was closed")

    async def forget(self, session_id: str) -> None:
        """Release, and know nothing of the session any more. When a release raises, it stays."""
        session = self._open.get(session_id) or self._scored.get(session_id)
        if session is None:
            return
        for state_class, state in list(session.states.items()):
            await self._close(state)
            session.states.pop(state_class, None)
        self._open.pop(session_id, None)
        self._scored.pop(session_id, None)

    async def _close(self, state: SessionState) -> None:
        if inspect.iscoroutinefunction(state.close):
            await state.close()
        elif type(state).close is not SessionState.close:
            await self._run(state.close)

    async def sweep(self) -> None:
        """Forget what has been idle for too long; called every now and then."""
        now = self._clock()
        for sessions, seconds, why in (
            (self._scored, self._scored_seconds, f"it was scored more than {self._scored_seconds:g} s ago"),
            (self._open, self._idle_seconds, self._idle_reason),
        ):
            while sessions and next(iter(sessions.values())).used <= now - seconds:
                self._evict_first(sessions, why)
        evicted, self._evicted = self._evicted, []
        await self._release_all(evicted)

    async def close_all(self) -> None:
        everything = [*self._evicted, *self._open.values(), *self._scored.values()]
        self._open.clear()
        self._scored.clear()
        self._evicted = []
        await self._release_all(everything)

    async def _release_all(self, sessions: Iterable[_Session]) -> None:
        """Nobody waits for these: one that cannot be released must not keep the others."""
        for session in sessions:
            for state in list(session.states.values()):
                try:
                    await self._close(state)
                except Exception:  # an author's; whatever it is, the sweeper goes on
                    logger.exception("an idle session's %s was not released", type(state).__name__)
