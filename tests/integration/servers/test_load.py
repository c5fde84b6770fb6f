"""2,000 sessions at once on one server: nobody meets another's state, and nothing is left behind."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from fakes.own_process import own_process

from gymctl.contract.part import Pool
from gymctl.servers import ResourcesServer
from gymctl.servers.inprocess import make_part, serving
from gymctl.servers.load import load
from gymctl.transport import Transport

COUNTER = Path(__file__).parents[3] / "server_images" / "resources_servers" / "counter"
SESSIONS = 2000
CONNECTIONS = 256
EPISODE = {"rollout_id": "0-0"}
FEW = 100
IDLE_SECONDS = 2.0
TOLD = """

class Told(Counter):
    @tool
    async def idle_after(self, seconds: float) -> int:
        self.sessions._idle_seconds = seconds
        return len(self.sessions)

app = Told.app()
"""
"""A counter that a test tells when sessions are idle; it says how many there are."""

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
        async with asyncio.timeout(4 * IDLE_SECONDS + 60):
            while len(server.sessions):  # noqa: ASYNC110 - the server's own sweep is what we wait for
                await asyncio.sleep(0.05)


async def test_memory_does_not_keep_what_sessions_held(
    calls: Transport, tmp_path: Path, free_port: int
) -> None:
    """As resident memory of a process of its own. 4,000 open sessions hold 3.3 MB, 4,000 ended ones 1 MB:
    their ids, which answer a late call."""
    settings = {"session_idle_seconds": 0.2}  # it looks ten times a second
    part = make_part("counter", "resources_servers", "counter", settings)
    part = part.model_copy(update={"bind_port": free_port})
    file = tmp_path / "part.json"
    (tmp_path / "app.py").write_text((COUNTER / "app.py").read_text() + TOLD)
    async with own_process(part, tmp_path, Path(sys.executable), file, calls) as url:

        async def idle_after(seconds: float) -> int:
            body = orjson.dumps({"seconds": seconds})
            return (await calls.call("POST", f"{url}/idle_after", body)).json()

        async def rollout(number: int) -> None:
            identity = {"resources_session_id": f"s-{number}", "episode_id": EPISODE}
            task = {"task_id": {"taskset": "c", "task_id": "1"}, "task_data": {"initial_count": number}}
            body = orjson.dumps({**identity, **task})
            jar = (await calls.call("POST", f"{url}/seed_session", body)).cookies
            body = orjson.dumps({"amount": number + 2})
            await calls.call("POST", f"{url}/increment_counter", body, cookies=jar)
            value = await calls.call("POST", f"{url}/get_counter_value", b"{}", cookies=jar)
            assert value.json() == {"count": 2 * number + 2}
            if number % 2:  # the others are abandoned
                await calls.call("POST", f"{url}/close_session", orjson.dumps(identity))

        held: list[float] = []
        for first in range(0, 3 * SESSIONS, SESSIONS):
            await idle_after(3600)  # nobody is idle before all have played
            for some in range(first, first + SESSIONS, FEW):
                await asyncio.gather(*(rollout(number) for number in range(some, some + FEW)))
            async with asyncio.timeout(60):
                while await idle_after(0):  # noqa: ASYNC110 - the server's own sweep is what we wait for
                    await asyncio.sleep(0.05)
            held.append(resident(file))
        assert held[2] - held[0] < 2.2, held


def resident(part: Path) -> float:
    """Megabytes that the server with this part file has in memory."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(part).encode() in (process / "environ").read_bytes():
                status = (process / "status").read_text()
                return int(status.split("VmRSS:")[1].split()[0]) / 1024
        except OSError:
            continue  # it has just ended, or is not ours
    raise LookupError(part)
