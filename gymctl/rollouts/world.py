"""Is the world of an attempt that was in flight still there?

A rollout that went on while a server behind it was started anew may have met errors and lost state that are
nobody's doing: its result must not be taken.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection

from gymctl.contract.servers import ServerEntry
from gymctl.transport import MEMORY_HEADER, Transport, TransportError

_SECONDS = 5.0


async def youngest(transport: Transport, servers: Collection[ServerEntry]) -> float:
    """When the last of the servers began, in seconds since 1970: what was in flight then is of another world.

    A server that does not answer counts as begun now. Foreign servers tell nothing, and know no idempotency
    keys either: nothing is taken from them.
    """
    return max(await asyncio.gather(*(_began(transport, server) for server in servers)), default=0.0)


async def _began(transport: Transport, server: ServerEntry) -> float:
    try:
        answer = await transport.call("GET", f"{server.url}/livez", timeout=_SECONDS, retry_seconds=0)
    except TransportError:
        return time.time()
    told = answer.header(MEMORY_HEADER)
    try:
        return time.time() - float(told) if told is not None else 0.0
    except ValueError:
        return 0.0
