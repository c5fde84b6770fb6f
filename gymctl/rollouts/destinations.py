"""The environment servers of a run: calls that are open to each, and what becomes of them when it dies.

death        rollouts that need the dead server fail at once as infrastructure
no answer    a server that refuses connections for long enough is as good as dead
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field

from gymctl.contract.rollout import Row
from gymctl.contract.servers import ServerTable
from gymctl.errors import ServerError
from gymctl.rollouts.failures import Death, Lost, blame
from gymctl.rollouts.route import depends_on
from gymctl.transport import Transport, TransportError

UNREACHABLE_SECONDS = 10.0
"""A server that refuses connections for so long is lost."""
DEATH_NOTICE_SECONDS = 2.0
"""A broken connection is often seen before the news of the death that broke it."""
QUIET_SECONDS = 10.0
"""Connections that break without a death do not each cost such a wait."""


@dataclass(slots=True)
class Destination:
    """An environment server of this run and the calls that are open to it."""

    name: str
    url: str
    implementation: str
    needs: frozenset[str]
    guards: set[asyncio.Timeout] = field(default_factory=set)
    lost: Lost | None = None


class Destinations:
    """Of one run over one server table."""

    def __init__(
        self,
        table: ServerTable,
        unreachable_seconds: float,
        death_notice_seconds: float,
        on_loss: Callable[[], None],
    ) -> None:
        """`on_loss` is called each time a server that this run needs is lost."""
        self.lost: list[Lost] = []
        """Servers of this run that died or cannot be reached, in order."""
        self._table = table
        self._unreachable_seconds = unreachable_seconds
        self._death_notice_seconds = death_notice_seconds
        self._on_loss = on_loss
        self._by_name: dict[str, Destination] = {}
        self._is_watching = False
        self._news = asyncio.Event()
        self._quiet_until = 0.0

    def __getitem__(self, name: str) -> Destination:
        if name not in self._by_name:
            entry = self._table[name]
            self._by_name[name] = Destination(
                name, entry.url, entry.address.implementation, depends_on(self._table, name)
            )
        return self._by_name[name]

    async def check(self, transport: Transport, servers: Iterable[str]) -> None:
        """Ask every environment server of the plan for a sign of life. Raises ServerError."""
        for name in servers:
            destination = self[name]
            try:
                await transport.call(
                    "GET",
                    f"{destination.url}/readyz",
                    timeout=self._unreachable_seconds * 2,
                    retry_seconds=self._unreachable_seconds,
                )
            except TransportError as error:
                raise ServerError(
                    f"the environment server `{name}` does not answer",
                    where=destination.url,
                    hint="gymctl ps shows what is running",
                    details=[error.detail],
                ) from error

    async def watch(self, deaths: AsyncIterator[Death]) -> None:
        self._is_watching = True
        try:
            async for death in deaths:
                self._lose(Lost.of(death))
        finally:
            self._is_watching = False

    async def unreachable(self, destination: Destination) -> None:
        """Nobody told us of a death, and yet the server has refused connections for long enough."""
        await self._notice(destination)
        if destination.lost is None:
            seconds = self._unreachable_seconds
            self._lose(Lost(destination.name, f"refuses connections at {destination.url} for {seconds:g} s"))

    async def is_death(self, destination: Destination, record: Row) -> bool:
        """Whether a lost server explains an infrastructure failure; if so the record names it."""
        if (
            record.get("_ng_failure_stage") == "admission"
            or record.get("failure_kind") == "transport_timeout"
        ):
            return False
        await self._notice(destination)
        if destination.lost is None:
            return False
        blame(record, destination.lost)
        return True

    def _lose(self, lost: Lost) -> None:
        """Fail what needs the lost server."""
        loop = asyncio.get_running_loop()
        for destination in self._by_name.values():
            if destination.needs.isdisjoint((lost.server, *lost.needed_by)):
                continue
            if not self.lost or self.lost[-1] != lost:
                self.lost.append(lost)
            destination.lost = destination.lost or lost
            for guard in destination.guards:
                guard.reschedule(loop.time())
        self._news.set()
        if self.lost:
            self._on_loss()

    async def _notice(self, destination: Destination) -> None:
        """Give the news of a death a moment to arrive; not again soon after a moment that brought none."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._quiet_until:
            return
        end = loop.time() + self._death_notice_seconds
        while self._is_watching and destination.lost is None and loop.time() < end:
            self._news.clear()
            try:
                async with asyncio.timeout_at(end):
                    await self._news.wait()
            except TimeoutError:
                self._quiet_until = loop.time() + QUIET_SECONDS
                return
