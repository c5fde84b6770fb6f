"""Waiting holds no connection (DESIGN D15): real servers, a real client, and more calls than connections."""

from __future__ import annotations

import asyncio
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import orjson
import pytest
from fakes.cutting import Cutting, cutting
from fakes.limits import Limits
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gymctl import deferred
from gymctl import transport as module
from gymctl.contract.deferred import RESULTS_HEADER, RESULTS_PATH
from gymctl.contract.part import Pool
from gymctl.servers import EnvironmentConfig, EnvironmentServer, Json, json_object
from gymctl.servers.inprocess import make_part, serving
from gymctl.transport import Transport, TransportError

CALLS = 40
FEW = Pool(limit=0, limit_per_host=8)
"""Four calls wait on connections of their own; the others cannot."""
STREAM = b"GET " + RESULTS_PATH.encode()
PERF = Path(__file__).resolve().parents[3] / "benchmarks" / "perf"


class Config(EnvironmentConfig):
    cleanup_timeout_seconds: float = 1.0


class Slow(EnvironmentServer):
    """Answers with what it was sent, when it may."""

    config: Config

    def __init__(self, part: Any) -> None:
        super().__init__(part)
        self.go = asyncio.Event()
        self.runs = 0
        self.at_work = 0
        self.cancelled = 0
        self.wishes: list[str] = []

    async def run(self, request: Request) -> Response:
        body = await json_object(request)
        self.wishes += [name for name in request.headers if name == "prefer" or "stream" in name]
        self.runs += 1
        self.at_work += 1
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.at_work -= 1
        if body["n"] == 13:
            raise ValueError("thirteen")
        return Json({"n": body["n"], "padding": "é" * body.get("size", 0)}, headers={"x-own": "yes"})


@pytest.fixture
async def server() -> AsyncIterator[tuple[Slow, Cutting]]:
    """A server, and the proxy by which it is called."""
    made = Slow(make_part("env", "environment_servers", "slow"))
    made.answers.since -= 3600  # up for an hour: no answer must be quick to show that it was there in time
    linger(made, 60)
    app = Slow.app()
    app.server_class = lambda part: made  # type: ignore[assignment, misc]
    async with serving(app.build(made.part)) as url, cutting(url) as proxy:
        yield made, proxy


def linger(slow: Slow, seconds: float) -> None:
    """How long the server waits for a caller that went away."""
    slow.streams._linger = slow.answers._linger = seconds


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that gives up nobody who comes back."""
    monkeypatch.setattr(deferred, "COMING_BACK_SECONDS", 60.0)
    monkeypatch.setattr(module, "ASKING_SECONDS", 60.0)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - what is waited for happens at the server
            await asyncio.sleep(0.01)


def calls(transport: Transport, url: str, count: int = CALLS, **more: Any) -> list[asyncio.Task[Any]]:
    return [
        asyncio.create_task(
            transport.call("POST", f"{url}/run", orjson.dumps({"n": n, **more}), key=f"key-{n}")
        )
        for n in range(count)
    ]


def numbers(answers: list[Any]) -> list[int]:
    return [answer.json()["n"] for answer in answers if answer.status == 200]


async def test_more_calls_wait_than_there_are_connections(server):
    slow, proxy = server
    async with Transport(FEW) as transport:
        waiting = calls(transport, proxy.url, size=5000)
        await until(lambda: slow.at_work == CALLS)
        assert proxy.count() <= 8
        assert proxy.count(STREAM) == 1
        slow.go.set()
        answers = await asyncio.gather(*waiting)
    assert numbers(answers) == [n for n in range(CALLS) if n != 13]
    assert all(answer.header("x-own") == "yes" for answer in answers if answer.status == 200)
    assert {len(answer.json()["padding"]) for answer in answers if answer.status == 200} == {5000}
    failed = answers[13]
    assert (failed.status, failed.reason, failed.json()) == (
        500,
        "Internal Server Error",
        "ValueError('thirteen')",
    )
    assert slow.runs == CALLS
    assert slow.wishes == []


async def test_few_calls_wait_on_their_own_connections(server):
    slow, proxy = server
    async with Transport(FEW) as transport:
        waiting = calls(transport, proxy.url, 4)
        await until(lambda: slow.at_work == 4)
        assert (proxy.count(), proxy.count(STREAM)) == (4, 0)
        slow.go.set()
        assert numbers(await asyncio.gather(*waiting)) == [0, 1, 2, 3]
        assert await transport.answers_later(proxy.url)


async def test_a_lost_stream_loses_nothing(server, patient):
    slow, proxy = server
    async with Transport(FEW) as transport:
        waiting = calls(transport, proxy.url, size=200_000)
        await until(lambda: slow.at_work == CALLS)
        assert proxy.cut(STREAM) == 1
        slow.go.set()
        for _ in range(30):
            await asyncio.sleep(0.02)  # again and again, in the middle of what it sends
            proxy.cut(STREAM)
        answers = await asyncio.gather(*waiting)
    assert numbers(answers) == [n for n in range(CALLS) if n != 13]
    assert slow.runs == CALLS


async def test_a_repeated_request_finds_its_first_run(server):
    slow, proxy = server
    async with Transport(FEW) as transport:
        waiting = calls(transport, proxy.url)
        await until(lambda: slow.at_work == CALLS)
        again = calls(transport, proxy.url)
        await asyncio.sleep(0.2)
        slow.go.set()
        answers = await asyncio.gather(*waiting, *again)
        afterwards = await asyncio.gather(*calls(transport, proxy.url))
    assert numbers(answers) == 2 * numbers(afterwards)
    assert len(numbers(afterwards)) == CALLS - 1
    assert slow.runs == CALLS


async def test_an_answer_is_not_missed_when_the_202_is_lost(server, patient):
    slow, proxy = server
    async with Transport(FEW) as transport:
        slow.go.set()
        await asyncio.gather(*calls(transport, proxy.url, 20))
        slow.go.clear()
        waiting = calls(transport, proxy.url, 200)
        for _ in range(20):
            proxy.cut(b"POST")
            await asyncio.sleep(0.02)
        slow.go.set()
        answers = await asyncio.gather(*waiting)
    assert len(numbers(answers)) == 199
    assert slow.runs == 200


async def test_calls_that_are_given_up_end_at_the_server(server):
    slow, proxy = server
    async with Transport(FEW) as transport:
        waiting = calls(transport, proxy.url)
        await until(lambda: slow.at_work == CALLS)
        for call in waiting[:30]:
            call.cancel()
        async with asyncio.timeout(20):  # at once, not when the server has lost patience
            await until(lambda: slow.cancelled == 30)
        slow.go.set()
        assert len(numbers(await asyncio.gather(*waiting[30:]))) == CALLS - 30


@pytest.mark.parametrize("is_known", [True, False])
async def test_calls_without_a_key_wait_so_at_servers_of_the_project(server, is_known):
    """A model is called without one. Elsewhere nobody is asked whether he can answer later."""
    slow, proxy = server
    names = {proxy.url: "env"} if is_known else {}
    async with Transport(FEW, names=names) as transport, asyncio.TaskGroup() as group:
        waiting = [
            group.create_task(transport.call("POST", f"{proxy.url}/run", b'{"n": %d}' % n))
            for n in range(CALLS)
        ]
        await until(lambda: slow.at_work == (CALLS if is_known else 8))
        assert proxy.count(STREAM) == (1 if is_known else 0)
        for call in waiting[20:]:
            call.cancel()
        await until(lambda: slow.at_work == (20 if is_known else 8))
        slow.go.set()
    assert sum(call.cancelled() for call in waiting) == CALLS - 20
    assert {call.result().status for call in waiting[:20]} == {200, 500}


async def test_a_time_limit_is_kept_and_takes_the_call_back(server, monkeypatch):
    slow, proxy = server
    limits = Limits(monkeypatch, 99)
    async with Transport(FEW) as transport:
        waiting = calls(transport, proxy.url, 20)
        await until(lambda: slow.at_work == 20)
        late = asyncio.create_task(
            transport.call("POST", f"{proxy.url}/run", b'{"n": 0}', key="late", timeout=99)
        )
        await until(lambda: slow.at_work == 21)
        limits.strike()
        with pytest.raises(TransportError) as caught:
            await late
        assert caught.value.kind == "transport_timeout"
        await until(lambda: slow.cancelled == 1)
        slow.go.set()
        await asyncio.gather(*waiting)


async def test_a_client_that_leaves_ends_its_calls(server):
    slow, proxy = server
    async with Transport(FEW) as transport:
        waiting = calls(transport, proxy.url)
        await until(lambda: slow.at_work == CALLS)
        slow.answers._linger = 0.2
    await until(lambda: slow.at_work == 0)
    assert slow.cancelled == CALLS
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(error, Exception) for error in ended)


async def test_a_client_that_vanishes_ends_its_calls(server, monkeypatch):
    slow, proxy = server
    monkeypatch.setattr(deferred, "COMING_BACK_SECONDS", 0.5)
    monkeypatch.setattr(module, "ASKING_SECONDS", 0.5)
    async with Transport(FEW) as transport:
        waiting = calls(transport, proxy.url)
        await until(lambda: slow.at_work == CALLS)
        linger(slow, 0.2)
        proxy.is_open = False
        proxy.cut()
        await until(lambda: slow.cancelled == CALLS)
        assert not slow.streams._streams
        ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert {error.kind for error in ended if isinstance(error, TransportError)} == {"transport_peer_drop"}
    assert len(ended) == CALLS


async def test_results_are_forgotten_once_they_are_confirmed(server, monkeypatch):
    slow, proxy = server
    monkeypatch.setattr(deferred, "UNTOLD_BYTES", 100_000)
    slow.go.set()
    async with Transport(FEW) as transport:
        await asyncio.gather(*calls(transport, proxy.url, size=20_000))
        (stream,) = slow.streams._streams.values()
        await until(lambda: stream._bytes <= 100_000)
        await asyncio.gather(*calls(transport, proxy.url))  # each of them is answered with the first run's
        await until(lambda: stream._bytes <= 100_000)


async def test_an_idle_stream_is_closed_and_made_anew(server, monkeypatch):
    slow, proxy = server
    monkeypatch.setattr(deferred, "IDLE_SECONDS", 0.05)
    slow.go.set()
    async with Transport(FEW) as transport:
        await asyncio.gather(*calls(transport, proxy.url))
        await until(lambda: proxy.count(STREAM) == 0)
        assert len(numbers(await asyncio.gather(*calls(transport, proxy.url)))) == CALLS - 1


async def test_a_call_that_comes_while_an_idle_stream_closes_is_not_lost(server):
    slow, proxy = server
    slow.go.set()
    async with Transport(FEW) as transport:
        await asyncio.gather(*calls(transport, proxy.url))
        again = calls(transport, proxy.url)
        assert transport._streams is not None
        for opening in transport._streams._opening.values():
            opening.result().leave()
        assert len(numbers(await asyncio.gather(*again))) == CALLS - 1


async def test_a_server_that_stops_answers_what_it_can():
    made = Slow(make_part("env", "environment_servers", "slow"))
    app = Slow.app()
    app.server_class = lambda part: made  # type: ignore[assignment, misc]
    async with Transport(FEW) as transport, AsyncExitStack() as stack:
        url = await stack.enter_async_context(serving(app.build(made.part)))
        waiting = calls(transport, url)
        await until(lambda: made.at_work == CALLS)
        await stack.aclose()
        answers = await asyncio.gather(*waiting)
    assert {(answer.status, answer.json()) for answer in answers} == {(500, "Request was cancelled")}


async def test_a_dead_server_fails_all_calls_soon(free_port):
    """Killed, not stopped; and another process that takes its place knows nothing of them."""
    url = f"http://127.0.0.1:{free_port}"
    command = [
        str(PERF / "held_environment.py"),
        "--rows",
        "1000",
        "--hold",
        "1000",
        "--port",
        str(free_port),
    ]
    first = await asyncio.create_subprocess_exec(sys.executable, *command)
    processes = [first]
    try:
        async with Transport(FEW) as transport:
            await transport.call("GET", f"{url}/readyz", retry_seconds=60)
            waiting = calls(transport, url)
            async with asyncio.timeout(60):
                while (await transport.call("GET", f"{url}/held")).json()["arrived"] < CALLS:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            first.kill()
            await first.wait()
            processes.append(await asyncio.create_subprocess_exec(sys.executable, *command))
            async with asyncio.timeout(30):
                ended = await asyncio.gather(*waiting, return_exceptions=True)
        assert [getattr(error, "kind", error) for error in ended] == ["transport_peer_drop"] * CALLS
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def test_a_foreign_server_and_one_of_several_workers_are_asked_plainly():
    """Nothing of this reaches a server that did not offer it."""
    seen: list[tuple[str, list[str]]] = []

    async def foreign(request: Request) -> Response:
        seen.append((request.url.path, request.headers.keys()))
        return Response(b"{}")

    app = Starlette(routes=[Route("/{path:path}", foreign, methods=["GET", "POST"])])
    async with serving(app) as url, Transport(FEW) as transport:
        assert {answer.status for answer in await asyncio.gather(*calls(transport, url))} == {200}
    assert {path for path, _ in seen} == {"/run", "/livez"}
    assert not any(name in headers for _, headers in seen for name in ("prefer", "x-gymctl-stream"))

    part = make_part("env", "environment_servers", "slow").model_copy(update={"workers": 2})
    async with serving(Slow.app().build(part)) as url, Transport(FEW) as transport:
        answer = await transport.call("GET", f"{url}/livez")
        assert answer.header(RESULTS_HEADER) is None
        stream = await transport.call("GET", f"{url}{RESULTS_PATH}some?after=0")
        assert stream.status == 404


def test_2000_in_flight_with_50_descriptors(tmp_path):
    """Client and server may open 50 files each."""
    command = [sys.executable, str(PERF / "collect.py"), "--in-flight", "2000", "--rows", "2500"]
    command += ["--million", "0", "--output", "figures.json"]
    done = subprocess.run(
        ["/bin/sh", "-c", f"ulimit -n 50 && exec {shlex.join(command)}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (figures,) = orjson.loads((tmp_path / "figures.json").read_bytes())
    assert (figures["most"], figures["arrived"]) == (2000, 2500)
