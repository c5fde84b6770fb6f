"""B108: what was in flight while a server behind it was started anew is made again, from the start."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from aiohttp import web

from gymctl.contract.servers import Address, ServerEntry
from gymctl.rollouts.world import youngest
from gymctl.transport import MEMORY_HEADER, Transport


def entry(port: int) -> ServerEntry:
    address = Address(kind="resources_servers", implementation="x", host="127.0.0.1", port=port)
    return ServerEntry(name=f"s{port}", address=address)


async def served(told: str | None) -> tuple[web.AppRunner, int]:
    async def livez(request: web.Request) -> web.Response:
        return web.json_response({}, headers={} if told is None else {MEMORY_HEADER: told})

    app = web.Application()
    app.router.add_get("/livez", livez)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, runner.addresses[0][1]


async def test_the_youngest_server_counts_and_a_foreign_one_says_nothing() -> None:
    old, young, foreign, odd = await asyncio.gather(*map(served, ("900.5", "2.25", None, "soon")))
    async with Transport() as transport:

        async def age(*servers: tuple[Any, int]) -> float:
            return time.time() - await youngest(transport, [entry(port) for _, port in servers])

        assert 900 < await age(old, foreign) < 1000
        assert 2 < await age(old, young, foreign) < 100
        assert await age(foreign, odd) > 1e9
        await young[0].cleanup()
        assert await age(old, young) < 100, "one that does not answer is no part of the old world"
    for runner, _ in (old, foreign, odd):
        await runner.cleanup()
