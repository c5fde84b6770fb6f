"""A slow `/run` that keeps its connection busy, for clients with a limit on silence, as axolotl has one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from gymctl.servers import AgentConfig, AgentServer
from gymctl.servers.inprocess import make_part, serving
from gymctl.transport import KEY_HEADER

ROW = {"responses_create_params": {"input": "hi"}}
SILENCE = aiohttp.ClientTimeout(total=None, sock_read=1.2)


class Slow(AgentServer):
    config: AgentConfig

    async def run(self, row: dict[str, Any], params: dict[str, Any], cookies: dict[str, str]) -> Any:
        await asyncio.sleep(row.get("seconds", 2.0))
        if "fault" in row:
            raise ValueError(row["fault"])
        return {**row, "reward": 1.0}


@asynccontextmanager
async def slow(beat: float | None) -> AsyncIterator[str]:
    part = make_part("slow", "responses_api_agents", "slow", {"run_heartbeat_seconds": beat})
    async with serving(Slow.app().build(part)) as url:
        yield f"{url}/run"


async def posted(url: str, row: dict[str, Any], **headers: str) -> tuple[int, Any, bytes]:
    async with (
        aiohttp.ClientSession(timeout=SILENCE) as http,
        http.post(url, json={**ROW, **row}, headers=headers) as answer,
    ):
        return answer.status, await answer.json(), await answer.read()


async def test_a_client_with_a_limit_on_silence_gets_a_late_answer() -> None:
    async with slow(0.1) as url:
        status, answer, body = await posted(url, {})
    assert (status, answer["reward"]) == (200, 1.0)
    assert body.startswith(b"  ")


async def test_without_heartbeats_the_limit_cuts_the_episode() -> None:
    async with slow(None) as url:
        with pytest.raises(aiohttp.SocketTimeoutError):
            await posted(url, {})


async def test_a_quick_answer_and_a_quick_failure_are_as_ever() -> None:
    async with slow(10) as url:
        status, _, body = await posted(url, {"seconds": 0})
        assert (status, body[:1]) == (200, b"{")
        status, answer, _ = await posted(url, {"seconds": 0, "fault": "no luck"})
        assert (status, answer) == (500, "ValueError('no luck')")


async def test_a_late_failure_is_in_the_body() -> None:
    """Where axolotl and TRL look for it; the status is out."""
    async with slow(0.1) as url:
        status, answer, _ = await posted(url, {"seconds": 0.3, "fault": "no luck"})
    assert (status, answer) == (200, {"error": "ValueError('no luck')"})


async def test_our_own_callers_get_the_status_of_a_late_failure() -> None:
    async with slow(0.1) as url:
        status, answer, _ = await posted(url, {"seconds": 0.3, "fault": "no luck"}, **{KEY_HEADER: "k1"})
    assert (status, answer) == (500, "ValueError('no luck')")


async def test_the_work_ends_with_its_caller() -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    class Watched(Slow):
        async def run(self, row: dict[str, Any], params: dict[str, Any], cookies: dict[str, str]) -> Any:
            began.set()
            try:
                return await asyncio.Event().wait()
            finally:
                ended.set()

    part = make_part("slow", "responses_api_agents", "slow", {"run_heartbeat_seconds": 0.1})
    async with serving(Watched.app().build(part)) as url:
        asked = asyncio.create_task(posted(f"{url}/run", {}))
        await asyncio.wait_for(began.wait(), 20)
        await asyncio.sleep(0.3)  # a few beats
        asked.cancel()
        await asyncio.wait_for(ended.wait(), 20)
