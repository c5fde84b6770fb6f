"""Agent sessions: bound to one seed request, closed once, with a receipt that can be asked for again.

             seed               close              receipt expires
(unknown) ─────────▶ open ─────────────▶ closed ─────────────────▶ closed, no receipt
    └──────────────────── close ───────────▲          (CONTRACT 6.3, 6.4)
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator
from starlette.exceptions import HTTPException

from gymctl.contract.episodes import EpisodeId, Strict, TaskId
from gymctl.servers.agents.observing import Activation
from gymctl.servers.stack.recent import Recent

REMEMBERED = 262144


class DirectHttpAccess(Strict):
    """Tools at `<base_url>/<tool>`."""

    kind: Literal["direct_http"]
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    required: bool = True
    base_url: str
    cookies: dict[str, str] = Field(default_factory=dict)
    headers: dict[str, str] = Field(default_factory=dict)


class McpConnection(Strict):
    transport: Literal["streamable_http"]
    url: str
    headers: dict[str, str] = Field(default_factory=dict)


class McpAccess(Strict):
    """Tools of an MCP server."""

    kind: Literal["mcp"]
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    required: bool = True
    connection: McpConnection


ToolAccess = Annotated[DirectHttpAccess | McpAccess, Field(discriminator="kind")]


def unique_names(accesses: list[ToolAccess]) -> list[ToolAccess]:
    names = [access.name for access in accesses]
    if len(set(names)) != len(names):
        raise ValueError("tool access names must be unique")
    return accesses


def direct_access(accesses: list[ToolAccess]) -> DirectHttpAccess | None:
    """The one direct HTTP access a session may have. Raises when it asks for what a plain agent cannot do."""
    required = [access.name for access in accesses if access.kind == "mcp" and access.required]
    if required:
        raise ValueError(f"this agent cannot use MCP tools, but {', '.join(required)} is required")
    direct = [access for access in accesses if isinstance(access, DirectHttpAccess)]
    if len(direct) > 1:
        names = ", ".join(access.name for access in direct)
        raise ValueError(f"at most one direct_http access can be used, got {names}")
    return direct[0] if direct else None


class AgentSeed(Strict):
    """Body of `POST /v1/agent_sessions`."""

    agent_session_id: str = Field(min_length=1)
    episode_id: EpisodeId
    task_id: TaskId
    tool_accesses: list[ToolAccess] = Field(default_factory=list)
    sandbox_access: dict[str, Any] | None = None

    @field_validator("tool_accesses")
    @classmethod
    def _unique_names(cls, accesses: list[ToolAccess]) -> list[ToolAccess]:
        return unique_names(accesses)


class AgentClose(Strict):
    """Body of `POST /v1/agent_sessions/close`."""

    agent_session_id: str = Field(min_length=1)
    episode_id: EpisodeId


class AgentReceipt(Strict):
    """Answer of a close; the same again for the same close."""

    agent_session_id: str
    agent_observations: dict[str, Any] | None = None
    resources_cookies: dict[str, str] | None = None


class AgentSession:
    """One open session. `cookies` is the jar of its resources server; None when it was granted no tools."""

    def __init__(self, seed: AgentSeed) -> None:
        self.seed = seed
        self.lock = asyncio.Lock()
        self.is_open = False
        self.is_closing = False
        self.tools: DirectHttpAccess | None = None
        self.cookies: dict[str, str] | None = None
        self.activations: set[asyncio.Task[Any]] = set()
        self.observed: list[Activation] = []
        """One for each activation, in their order; empty while observability is off."""

    @asynccontextmanager
    async def activation(self) -> AsyncIterator[None]:
        """One turn of the agent; a close ends the turns that are still running."""
        task = asyncio.current_task()
        assert task is not None
        self.activations.add(task)
        try:
            yield
        finally:
            self.activations.discard(task)

    def observations(self, source: str) -> dict[str, Any] | None:
        """The bundle of the close receipt; None when nothing was observed."""
        if not self.observed:
            return None
        records = [record for activation in self.observed for record in activation.records()]
        gaps = [gap for activation in self.observed for gap in activation.gaps]
        return {"source": source, "records": records, "gaps": gaps}

    async def end_activations(self) -> None:
        running = [task for task in self.activations if task is not asyncio.current_task()]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)


@dataclass(frozen=True, slots=True)
class _Kept:
    """A receipt that may still be asked for."""

    receipt: AgentReceipt
    episode_id: EpisodeId
    expires: float


class AgentSessions:
    """The sessions of one agent server. Refusals are HTTP errors with the texts of CONTRACT 6.3 and 6.4."""

    def __init__(self, receipt_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._receipt_seconds = receipt_seconds
        self._clock = clock
        self._open: dict[str, AgentSession] = {}
        self._closed: Recent[str, bool] = Recent(REMEMBERED)
        self._receipts: OrderedDict[str, _Kept] = OrderedDict()
        """In the order in which they expire; a closed session keeps nothing but its id after that."""

    def __len__(self) -> int:
        return len(self._open)

    def bound(self, seed: AgentSeed, cookie_id: str | None) -> AgentSession:
        """The session this seed belongs to, made if it is new. Set up under its lock."""
        session_id = seed.agent_session_id
        if cookie_id is not None and cookie_id != session_id:
            raise HTTPException(409, "agent_session_id does not match the session cookie")
        if session_id in self._closed:
            raise HTTPException(409, "Agent session is already closed")
        session = self._open.get(session_id)
        if session is None:
            if cookie_id is not None:
                raise HTTPException(409, "Agent session cookie has expired")
            session = self._open[session_id] = AgentSession(seed)
        if session.is_closing:
            raise HTTPException(409, "Agent session is closing")
        if session.seed != seed:
            raise HTTPException(409, "agent_session_id is already bound to another seed request")
        return session

    def active(self, session_id: str) -> AgentSession:
        """The open session that a turn runs in."""
        session = self._open.get(session_id)
        if session is None or session.is_closing or not session.is_open:
            raise HTTPException(409, "Unknown or closing agent_session_id")
        return session

    def receipt(self, close: AgentClose, cookie_id: str | None) -> AgentReceipt | None:
        """What an earlier close, or one of an id never seen, is answered with; None: there is work to do."""
        session_id = close.agent_session_id
        if cookie_id is not None and cookie_id != session_id:
            raise HTTPException(409, "agent_session_id does not match the session cookie")
        self._expire()
        kept = self._receipts.get(session_id)
        if kept is not None:
            if kept.episode_id != close.episode_id:
                raise HTTPException(409, "episode_id does not match the seeded agent session")
            return kept.receipt
        session = self._open.get(session_id)
        if session is not None:
            if session.seed.episode_id != close.episode_id:
                raise HTTPException(409, "episode_id does not match the seeded agent session")
            return None
        if cookie_id is not None:
            raise HTTPException(409, "Agent session cookie has expired")
        self._closed.put(session_id, True)
        return AgentReceipt(agent_session_id=session_id)

    def closing(self, session_id: str) -> AgentSession | None:
        """The session to clean up; from now on it takes no turns. A failed clean-up may be tried again."""
        session = self._open.get(session_id)
        if session is not None:
            session.is_closing = True
        return session

    def forget(self, session: AgentSession) -> None:
        """A session that was never set up: its id is free again."""
        self._open.pop(session.seed.agent_session_id, None)

    def closed(self, session: AgentSession, receipt: AgentReceipt) -> None:
        session_id = session.seed.agent_session_id
        expires = self._clock() + self._receipt_seconds
        self._receipts[session_id] = _Kept(receipt, session.seed.episode_id, expires)
        self._closed.put(session_id, True)
        self._open.pop(session_id, None)

    def _expire(self) -> None:
        now = self._clock()
        while self._receipts and next(iter(self._receipts.values())).expires <= now:
            self._receipts.popitem(last=False)
