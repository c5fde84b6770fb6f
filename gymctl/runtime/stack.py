"""What the layers above a runtime see: a stack that is up, its server table, its state, its end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from gymctl.contract.servers import ServerTable
from gymctl.images.lock import Lock
from gymctl.runtime.inforce import InForce

RuntimeName = Literal["compose", "process"]
RuntimeChoice = Literal["auto", "compose", "process"]


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """One line of `gymctl ps`."""

    server: str
    kind: str
    state: str
    """ready, starting, stopped, failed"""
    url: str | None
    image: str | None = None
    container: str | None = None
    exit_code: int | None = None
    was_out_of_memory: bool = False
    seconds_up: float | None = None
    restarts: int = 0
    profile: str = "closed"
    """How its container is fenced in: closed, or compat (compose/profiles.py)."""


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a server runs in, as it is and not as it was asked for."""

    limits: InForce
    image: str | None = None
    """As the compose file names it."""
    image_id: str | None = None
    digest: str | None = None
    """`repository@sha256:…`, where a registry knows the image."""
    profile: str | None = None


@dataclass(frozen=True, slots=True)
class StackFacts:
    """Of a whole project that is up."""

    servers: Mapping[str, ServerFacts]
    """The head among them."""
    engine: str | None = None
    compose: str | None = None
    """Versions."""
    compose_text: str | None = None


@dataclass(frozen=True, slots=True)
class ServerDeath:
    """A server that stopped without being asked: the reason, not the symptom."""

    server: str
    exit_code: int | None
    was_out_of_memory: bool
    last_lines: tuple[str, ...]
    needed_by: tuple[str, ...] = ()
    """Servers that are lost with it, beside those whose calls lead to it (Ray is in no server table)."""

    def __str__(self) -> str:
        cause = "out of memory" if self.was_out_of_memory else f"exit {self.exit_code}"
        return f"`{self.server}` stopped ({cause})"


class Reporter(Protocol):
    """How a runtime tells the user what it does; implemented by the CLI, silent in tests."""

    def step(self, name: str, text: str) -> None:
        """`step("images", "3 in use, 1 built")`: one aligned line, printed once, when the step is done."""

    def note(self, text: str) -> None:
        """One full line of its own, for something the user must know."""

    def progress(self, text: str) -> None:
        """What is going on right now; replaced by the next call; nothing in a pipe."""


class Stack(Protocol):
    """A project that is up and ready."""

    @property
    def project(self) -> str: ...
    @property
    def runtime(self) -> RuntimeName: ...
    @property
    def head_url(self) -> str: ...
    @property
    def table(self) -> ServerTable: ...

    def deaths(self) -> AsyncIterator[ServerDeath]:
        """Yield each server that dies from now on, within about a second of its death."""
        ...

    async def status(self) -> Sequence[ServerStatus]: ...

    async def facts(self) -> StackFacts:
        """What the servers run in; asks each container, so it takes a tenth of a second for each."""
        ...

    async def lock(self) -> Lock | None:
        """Which images the servers run; None where they run none."""
        ...

    async def release(self) -> None:
        """Let the project live on after this process; an attached one ends with its starter."""
        ...

    async def down(self) -> None:
        """Stop and remove everything of the project. Idempotent; shielded from cancellation by its caller."""
        ...
