"""Which server the slowest rollouts really wait for: the agent, model or resources server behind the first.

Each server of ours knows whom it has called for a rollout (contract/waiting.py); we go from one to the next.
Only the few slowest are asked for, once a second, and only when they are slow: the cost does not grow with
the number of rollouts. Foreign servers and groups of workers cannot tell; they are asked once who they are.
"""

from __future__ import annotations

import asyncio

from gymctl.contract.servers import ServerTable
from gymctl.contract.waiting import WAITING_PATH, waits_for
from gymctl.metrics.tally import Tally
from gymctl.transport import ROLLOUT, Transport, TransportError

PAUSE_SECONDS = 1.0
SLOW_SECONDS = 2.0
"""Younger rollouts are not asked for."""
PATIENCE = 1.0
"""For one answer: a server that is busy is asked again later."""


class Waiting:
    """Of one run over one server table."""

    def __init__(self, transport: Transport, table: ServerTable) -> None:
        self._transport = transport
        self._table = table
        self._tells: dict[str, bool] = {}

    async def follow(self, tally: Tally) -> None:
        """Keep `tally.waits` up to date, until cancelled."""
        while True:
            await asyncio.sleep(PAUSE_SECONDS)
            tally.waits = await self.look(tally)

    async def look(self, tally: Tally) -> dict[str, str]:
        """Rollout id -> the server that it waits for, of the slowest ones."""
        now = asyncio.get_running_loop().time()
        old = [name for name, since in tally.slowest() if now - since >= SLOW_SECONDS]
        slow = [name for name in old if name in tally.asked]
        async with asyncio.TaskGroup() as group:
            tasks = {name: group.create_task(self._behind(name, tally.asked[name])) for name in slow}
        return {name: task.result() for name, task in tasks.items()}

    async def _behind(self, rollout: str, server: str) -> str:
        """The last server of the chain that is known."""
        ROLLOUT.set(rollout)
        seen: set[str] = set()
        while server not in seen and await self._can_tell(server):
            seen.add(server)
            try:
                answer = await self._transport.call(
                    "GET", f"{self._table[server].url}{WAITING_PATH}", timeout=PATIENCE, retry_seconds=0
                )
            except TransportError:
                break
            named = None if answer.is_error else waits_for(answer.body)
            if named is None:
                break
            server = named
        return server

    async def _can_tell(self, server: str) -> bool:
        if server not in self._table:
            return False
        if server not in self._tells:
            self._tells[server] = await self._transport.answers_later(self._table[server].url)
        return self._tells[server]
