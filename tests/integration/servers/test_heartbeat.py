"""A slow `/run` that keeps its connection busy, for clients with a limit on silence, as axolotl has one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from gymctl.servers import AgentConfig, AgentServer
from gymctl.servers.inprocess import make_part, serving
from gymctl.transport import KEY_HEADER

ROW = {"responses_create_params": {"input": "hi"}}
BEATS = b"   "
"""Three of them: the connection is busy while the work lasts."""


class Slow(AgentServer):
    """Plays until it is told to end; a row with `is_quick` is played at once."""

    config: AgentConfig

    def __init__(self, part: Any) -> None:
        super().__init__(part)
        self.began, self.end, self.left = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def run(self, row: dict[str, Any], params: dict[str, Any], cookies: dict[str, str]) -> Any:
        self.began.set()
        try:
            if "is_quick" not in row:
                await self.end.wait()
        finally:
            self.left.set()
        if "fault" in row:
            raise ValueError(row["fault"])
        return {**row, "reward": 1.0}


@asynccontextmanager
async def slow(beat: float | None) -> AsyncIterator[tuple[str, Slow]]:
    made = Slow(make_part("slow", "responses_api_agents", "slow", {"run_heartbeat_seconds": beat}))
    app = Slow.app()
    app.server_class = lambda part: made  # type: ignore[assignment, misc]
    async with serving(app.build(made.part)) as url:
        yield f"{url}/run", made


@asynccontextmanager
async def posted(
    url: str, row: dict[str, Any], silence: float | None = None, **headers: str
) -> AsyncIterator[aiohttp.ClientResponse]:
    """silence: seconds after which the client takes a silent server for dead."""
    limit = aiohttp.ClientTimeout(total=None, sock_read=silence)
    async with (
        aiohttp.ClientSession(timeout=limit) as http,
        http.post(url, json={**ROW, **row}, headers=headers) as answer,
    ):
        yield answer


async def test_a_client_hears_of_a_long_episode_and_gets_the_late_answer() -> None:
    async with slow(0.1) as (url, server), posted(url, {}) as answer:
        assert await answer.content.readexactly(len(BEATS)) == BEATS
        server.end.set()
        assert (answer.status, json.loads(await answer.read())["reward"]) == (200, 1.0)


async def test_without_heartbeats_a_limit_on_silence_cuts_the_episode() -> None:
    async with slow(None) as (url, _):
        with pytest.raises(aiohttp.SocketTimeoutError):
            async with posted(url, {}, silence=0.5):
                pass


async def test_a_quick_answer_and_a_quick_failure_are_as_ever() -> None:
    async with slow(60) as (url, _):
        async with posted(url, {"is_quick": True}) as answer:
            assert (answer.status, (await answer.read())[:1]) == (200, b"{")
        async with posted(url, {"is_quick": True, "fault": "no luck"}) as answer:
            assert (answer.status, await answer.json()) == (500, "ValueError('no luck')")


async def test_a_late_failure_is_in_the_body() -> None:
    """Where axolotl and TRL look for it; the status is out."""
    async with slow(0.1) as (url, server), posted(url, {"fault": "no luck"}) as answer:
        assert await answer.content.readexactly(len(BEATS)) == BEATS
        server.end.set()
        assert answer.status == 200
        assert json.loads(await answer.read()) == {"error": "ValueError('no luck')"}


async def test_our_own_callers_get_the_status_of_a_late_failure() -> None:
    async with slow(0.1) as (url, server):
        asyncio.get_running_loop().call_later(0.3, server.end.set)  # some beats later
        async with posted(url, {"fault": "no luck"}, **{KEY_HEADER: "k1"}) as answer:
            assert (answer.status, await answer.json()) == (500, "ValueError('no luck')")


async def test_the_work_ends_with_its_caller() -> None:
    async with slow(0.1) as (url, server):
        async with posted(url, {}) as answer:
            await answer.content.readexactly(len(BEATS))
            assert server.began.is_set() and not server.left.is_set()
        await asyncio.wait_for(server.left.wait(), 30)
