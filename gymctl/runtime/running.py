"""What both kinds of project have in common: names, addresses, files, and how a death is described."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from pathlib import Path

from gymctl.compose.names import HEAD
from gymctl.contract.servers import ServerTable
from gymctl.images.lock import Lock
from gymctl.paths import ProjectPaths
from gymctl.runtime.logs import LogLine, LogQuery
from gymctl.runtime.stack import RuntimeName, ServerDeath, ServerStatus, StackFacts
from gymctl.runtime.state import ProjectState

LAST_LINES = 20


class RunningProject(ABC):
    """Base of ComposeStack and ProcessStack: a `runtime.stack.Stack`, with logs."""

    def __init__(self, paths: ProjectPaths, state: ProjectState) -> None:
        self.paths = paths
        self.state = state
        self.was_up = False
        """Whether `bring_up` found it ready and had nothing to do."""

    @property
    def project(self) -> str:
        return self.state.project

    @property
    def runtime(self) -> RuntimeName:
        return self.state.runtime

    @property
    def head_url(self) -> str:
        return self.state.head_url

    @property
    def table(self) -> ServerTable:
        return self.state.table

    @property
    def servers(self) -> Mapping[str, str]:
        """Service -> the name that users know; the head first, Ray's containers last."""
        named = {service: server for server, service in self.state.services.items()}
        return {HEAD: HEAD, **named, **{name: name for name in self.state.ray}}

    def log(self, service: str) -> Path:
        """Where a server's log is kept on disk: always for processes, for containers once they have died."""
        return self.paths.logs / f"{service}.log"

    def place(self, server: str) -> str:
        """Where to look for a server, in an error's second line."""
        service = self.state.services.get(server, server)
        return str(self.log(service))

    @abstractmethod
    async def facts(self) -> StackFacts: ...

    @abstractmethod
    def deaths(self) -> AsyncGenerator[ServerDeath]: ...

    @abstractmethod
    async def last_lines(self, server: str, count: int = LAST_LINES) -> tuple[str, ...]:
        """The end of a server's log; kept on disk beyond the server's life."""

    async def joined(self) -> Collection[str]:
        """Those of `state.ray` that are part of their cluster right now; only containers ever are."""
        return ()

    @abstractmethod
    async def status(self) -> Sequence[ServerStatus]: ...

    async def lock(self) -> Lock | None:
        """Which images the servers run; None where they run none."""
        return None

    @abstractmethod
    def logs(self, query: LogQuery) -> AsyncGenerator[LogLine]: ...

    @abstractmethod
    async def release(self) -> None: ...

    @abstractmethod
    async def down(self) -> None: ...
