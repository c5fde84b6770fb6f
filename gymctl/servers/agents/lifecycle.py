"""The life of an agent session between its requests: set up once, undone when that fails, closed once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from starlette.exceptions import HTTPException

from gymctl.servers.agents.sessions import (
    AgentClose,
    AgentReceipt,
    AgentSeed,
    AgentSession,
    AgentSessions,
    ToolAccess,
)


class Harness(Protocol):
    """What an agent does of its own when a session begins and ends."""

    async def open_session(self, session: AgentSession, accesses: list[ToolAccess]) -> None: ...

    async def close_session(self, session: AgentSession) -> None: ...


class SessionLifecycle:
    """Opens and closes the sessions of one agent; what goes on with one session happens one after the other.

    `accesses` are the configured ones, `source` names the agent in the observations of a receipt.
    """

    def __init__(
        self, sessions: AgentSessions, harness: Harness, accesses: Sequence[ToolAccess], source: str
    ) -> None:
        self._sessions = sessions
        self._harness = harness
        self._accesses = accesses
        self._source = source

    async def open(self, seed: AgentSeed, cookie_id: str | None) -> None:
        """Set the session of this seed up, unless it is. Refusals are HTTP errors (CONTRACT 6.3)."""
        session = self._sessions.bound(seed, cookie_id)
        async with session.lock:
            # While we waited, the session may have been closed or, its set-up failed, forgotten.
            if self._sessions.bound(seed, cookie_id) is not session:
                raise HTTPException(409, "Agent session is closing")
            if not session.is_open:
                await self._set_up(session, seed)

    async def _set_up(self, session: AgentSession, seed: AgentSeed) -> None:
        """Configured accesses are overlaid by name with the request's.

        A failed set-up is undone and its id free again; if it cannot be undone, the session stays in closing.
        """
        accesses = {access.name: access for access in [*self._accesses, *seed.tool_accesses]}
        try:
            await self._harness.open_session(session, list(accesses.values()))
            session.is_open = True
        finally:
            if not session.is_open:
                session.is_closing = True
                await self._harness.close_session(session)
                self._sessions.forget(session)

    async def close(self, close: AgentClose, cookie_id: str | None) -> AgentReceipt:
        """End the session's turns and undo its set-up; a close that was answered gets its receipt again."""
        receipt = self._sessions.receipt(close, cookie_id)
        if receipt is not None:
            return receipt
        session = self._sessions.closing(close.agent_session_id)
        assert session is not None
        async with session.lock:
            earlier = self._sessions.receipt(close, cookie_id)
            if earlier is not None:
                return earlier
            await session.end_activations()
            await self._harness.close_session(session)
            receipt = AgentReceipt(
                agent_session_id=close.agent_session_id,
                agent_observations=session.observations(self._source),
                resources_cookies=session.cookies,
            )
            self._sessions.closed(session, receipt)
            return receipt
