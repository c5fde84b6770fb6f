"""Handlers that block, and libraries that belong to one thread (B67)."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass

from fakes.contract import until
from fakes.resources import ROW, SAID, post, served

from gymctl.contract.part import ServerPart
from gymctl.servers import (
    ResourcesServer,
    SessionState,
    VerifyRequest,
    VerifyResponse,
    tool,
)


@dataclass
class Bound(SessionState):
    """Like sqlite3: usable in the thread that made it only."""

    threads: set[int] | None = None


def _thread() -> int:
    return threading.get_ident()


class Blocking(ResourcesServer):
    def __init__(self, part: ServerPart) -> None:
        super().__init__(part)
        self.held: set[int] = set()
        self.release = threading.Event()

    def seed(self, bound: Bound) -> None:
        bound.threads = {_thread()}

    @tool
    def hold(self, bound: Bound) -> int:
        self.held.add(_thread())
        self.release.wait(30)
        return len(self.held)

    @tool
    def sleep(self, seconds: float, bound: Bound) -> int:
        time.sleep(seconds)
        bound.threads = (bound.threads or set()) | {_thread()}
        return len(bound.threads)

    @tool
    async def quick(self) -> str:
        return "now"

    def verify(self, request: VerifyRequest, bound: Bound) -> VerifyResponse:
        time.sleep(0.2)
        return request.scored(float(_thread() in (bound.threads or ())))


class OneThread(Blocking):
    handler_threads = 1


async def test_b67_blocking_handlers_leave_liveness_and_other_sessions_alone(http):
    async with served(Blocking) as (url, server):
        jars = [(await post(http, f"{url}/seed_session", ROW))[2] for _ in range(16)]
        blocked = [asyncio.create_task(post(http, f"{url}/hold", {}, jar)) for jar in jars]
        await until(lambda: len(server.held) == 16)  # side by side
        blocked.append(asyncio.create_task(post(http, f"{url}/verify", {**ROW, "response": SAID}, jars[0])))
        async with http.get(f"{url}/readyz") as answer:
            assert answer.status == 200
        async with http.post(f"{url}/quick", json={}) as answer:
            assert await answer.text() == "now"
        assert not any(task.done() for task in blocked)
        server.release.set()
        assert all(status == 200 for status, _, _ in await asyncio.gather(*blocked))


async def test_b67_a_thread_bound_server_stays_in_its_thread(http):
    async with served(OneThread) as (url, _):
        jars = [(await post(http, f"{url}/seed_session", ROW))[2] for _ in range(8)]
        calls = [post(http, f"{url}/sleep", {"seconds": 0.02}, jar) for jar in jars for _ in range(2)]
        assert [value for _, value, _ in await asyncio.gather(*calls)] == [1] * 16
        _, verdict, _ = await post(http, f"{url}/verify", {**ROW, "response": SAID}, jars[0])
        assert verdict["reward"] == 1.0
