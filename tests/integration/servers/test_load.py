"""2,000 sessions at once on one server: nobody meets another's state, and nothing is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from gymctl.contract.part import Pool
from gymctl.servers import ResourcesServer
from gymctl.servers.inprocess import make_part, serving
from gymctl.servers.load import load
from gymctl.transport import Transport

COUNTER = Path(__file__).parents[3] / "server_images" / "resources_servers" / "counter"
SESSIONS = 2000
CONNECTIONS = 256
EPISODE = {"rollout_id": "0-0"}
IDLE_SECONDS = 2.0

pytestmark = pytest.mark.load


@pytest.fixture
async def calls() -> AsyncIterator[Transport]:
    async with Transport(Pool(limit=CONNECTIONS, limit_per_host=CONNECTIONS)) as transport:
        yield transport


async def test_2000_sessions_at_once_keep_apart_and_leave_nothing(calls: Transport) -> None:
    settings = {"session_idle_seconds": IDLE_SECONDS}
    app = load(make_part("counter", "resources_servers", "counter", settings), COUNTER)
    server: ResourcesServer = app.state.server
    all_seeded = asyncio.Barrier(SESSIONS)

    async with serving(app) as url:

        async def post(path: str, body: Any, jar: dict[str, str] | None = None) -> Any:
            answer = await calls.call("POST", url + path, orjson.dumps(body), cookies=jar)
            assert answer.status == 200, answer.body
            return answer

        async def rollout(number: int) -> None:
            identity = {"resources_session_id": f"s-{number}", "episode_id": EPISODE}
            task = {"task_id": {"taskset": "c", "task_id": "1"}, "task_data": {"initial_count": number}}
            jar = (await post("/seed_session", {**identity, **task})).cookies
            await all_seeded.wait()  # all sessions are open at once
            for amount in (number, 1, 1):
                await post("/increment_counter", {"amount": amount}, jar)
            value = await post("/get_counter_value", {}, jar)
            assert value.json() == {"count": 2 * number + 2}
            if number % 2:  # the others are abandoned
                await post("/close_session", identity)

        server.sessions._idle_seconds = 3600.0  # nobody is idle before all have played
        async with asyncio.TaskGroup() as group:
            for number in range(SESSIONS):
                group.create_task(rollout(number))
        assert len(server.sessions) == SESSIONS // 2
        server.sessions._idle_seconds = IDLE_SECONDS
        async with asyncio.timeout(4 * IDLE_SECONDS + 10):
            while len(server.sessions):  # noqa: ASYNC110 - the server's own sweep is what we wait for
                await asyncio.sleep(0.05)
