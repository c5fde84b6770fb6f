"""A connection that breaks after the request was delivered never runs a side effect twice (DESIGN D6).

Every call of the chain is broken in turn, by a real proxy between two real servers: while the server works,
before its answer, and in the middle of it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from fakes.breaking import Moment, Proxy, breaking
from fakes.contract import until
from fakes.limits import Limits
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from gymctl import transport as module
from gymctl.contract.part import ServerPart
from gymctl.servers import ResourcesServer, SessionState, VerifyRequest, VerifyResponse, tool
from gymctl.servers.inprocess import make_part, serving, serving_folder
from gymctl.servers.stack import idempotency
from gymctl.transport import Transport, TransportError

IMAGES = Path(__file__).resolve().parents[3] / "server_images"
WORK_SECONDS = 0.15
"""Longer than it takes a server to notice that its caller has left."""
MOMENTS: tuple[Moment, ...] = ("working", "before", "middle")


@pytest.fixture(autouse=True)
def short_pause(monkeypatch):
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.02)
    monkeypatch.setattr(module, "ASKING_SECONDS", 60.0)  # whoever is there will say so


@pytest.fixture(autouse=True)
def old_servers(monkeypatch):
    """They have been up for an hour: whether one that has just begun was there in time, its answer must be
    quick enough to show."""
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() - 3600)
    monkeypatch.setattr(idempotency, "time", clock)


class Tally(SessionState):
    """What happened in one session."""

    def __init__(self) -> None:
        self.bookings = 0


class Desk(ResourcesServer):
    """Books what it is told to, slowly enough for a connection to break meanwhile."""

    def __init__(self, part: ServerPart) -> None:
        super().__init__(part)
        self.seeds = self.bookings = self.verdicts = 0

    async def seed(self, tally: Tally) -> None:
        self.seeds += 1
        await asyncio.sleep(WORK_SECONDS)

    @tool
    async def book(self, tally: Tally) -> str:
        self.bookings += 1
        tally.bookings += 1
        await asyncio.sleep(WORK_SECONDS)
        return f"booked {tally.bookings}"

    async def verify(self, request: VerifyRequest, tally: Tally) -> VerifyResponse:
        self.verdicts += 1
        await asyncio.sleep(WORK_SECONDS)
        return request.scored(reward=float(tally.bookings))


class Chain:
    """Client, environment server, agent, model, resources server; one connection of it goes over a proxy."""

    def __init__(self, desk: Desk, proxies: list[Proxy]) -> None:
        self.desk = desk
        self.proxies = proxies
        self.model_calls = 0
        self.url = ""

    async def model(self, request: Request) -> JSONResponse:
        self.model_calls += 1
        given = (await request.json())["input"]
        if any(item.get("type") == "function_call_output" for item in given):
            content = [{"type": "output_text", "text": "done", "annotations": []}]
            output: dict[str, Any] = {"type": "message", "id": "m", "role": "assistant", "content": content}
        else:
            output = {
                "type": "function_call",
                "id": "f",
                "call_id": "c",
                "name": "book",
                "arguments": "{}",
            }
        return JSONResponse({"id": "r", "object": "response", "output": [output]})

    @property
    def counts(self) -> dict[str, int]:
        desk = self.desk
        return {
            "model": self.model_calls,
            "seeds": desk.seeds,
            "bookings": desk.bookings,
            "verdicts": desk.verdicts,
        }


ONCE = {"model": 2, "seeds": 1, "bookings": 1, "verdicts": 1}
Begin = Callable[..., Awaitable[Chain]]


@pytest.fixture
async def chain() -> AsyncIterator[Begin]:
    async with AsyncExitStack() as stack:

        async def begin(environment: str, hop: str, path: str, moment: Moment) -> Chain:
            """hop: which server is dialled through the proxy."""

            async def reached(server: str, url: str) -> str:
                if server != hop:
                    return url
                proxy = await stack.enter_async_context(breaking(url, path, moment=moment))
                made.proxies.append(proxy)
                return proxy.url

            desk = Desk(make_part("desk", "resources_servers", "desk"))
            made = Chain(desk, [])
            model = await stack.enter_async_context(
                serving(Starlette(routes=[Route("/{path:path}", made.model, methods=["POST"])]))
            )
            tools = await reached("tools", await stack.enter_async_context(serving(_app(desk))))
            agent = await reached(
                "agent",
                await stack.enter_async_context(
                    serving_folder(
                        IMAGES / "responses_api_agents" / "simple_agent",
                        "agent",
                        {"model_server": _ref("model"), "resources_server": _ref("tools")},
                        {"model": model, "tools": tools},
                    )
                ),
            )
            block = {"agent_server": _ref("agent")}
            if environment != "legacy_agent":
                block |= {
                    "resources_server": _ref("tools"),
                    "resources_tool_transports": ["direct_http"],
                    "cleanup_timeout_seconds": 5,
                }
            made.url = await reached(
                "environment",
                await stack.enter_async_context(
                    serving_folder(
                        IMAGES / "environment_servers" / environment,
                        "environment",
                        block,
                        {"agent": agent, "tools": tools},
                    )
                ),
            )
            return made

        yield begin


def _app(desk: Desk) -> Starlette:
    from gymctl.servers.stack.app import assemble

    return assemble(desk)


def _ref(name: str) -> dict[str, str]:
    kind = "responses_api_models" if name == "model" else "resources_servers"
    return {"type": kind, "name": name}


FLAT = {"responses_create_params": {"input": "book"}, "_ng_task_index": 0, "_ng_rollout_index": 0}
NATIVE = {
    "episode_id": {"rollout_id": "0-0"},
    "task": {
        "task_id": {"taskset": "w", "task_id": "1"},
        "task_input": {"responses_create_params": {"input": "book"}},
    },
}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize(
    ("hop", "path"),
    [
        ("environment", "/run"),
        ("agent", "/run"),
        ("tools", "/seed_session"),
        ("tools", "/book"),
        ("tools", "/verify"),
    ],
)
async def test_a_rollout_through_the_relay_is_played_once(chain, transport, hop, path, moment):
    made = await chain("legacy_agent", hop, path, moment)
    answer = await transport.call("POST", f"{made.url}/run", orjson.dumps(FLAT), key="run-1", timeout=60)
    assert (answer.status, answer.json()["reward"]) == (200, 1.0)
    assert made.counts == ONCE
    assert made.proxies[0].broken == 1


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize(
    ("hop", "path"),
    [
        ("environment", "/run"),
        ("agent", "/v1/agent_sessions"),
        ("agent", "/v1/responses"),
        ("agent", "/v1/agent_sessions/close"),
        ("tools", "/seed_session"),
        ("tools", "/book"),
        ("tools", "/verify"),
        ("tools", "/close_session"),
    ],
)
async def test_an_episode_is_played_once(chain, transport, hop, path, moment):
    made = await chain("single_agent_turn", hop, path, moment)
    answer = await transport.call("POST", f"{made.url}/run", orjson.dumps(NATIVE), key="run-1", timeout=60)
    body = answer.json()
    assert body["failure"] is None
    assert body["result"]["reward"] == 1.0
    assert made.counts == ONCE
    assert made.proxies[0].broken == 1
    assert len(made.desk.sessions) == 0, "closed, also when the first answer to the close was lost"


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_receiver_that_remembers_no_keys_is_not_asked_twice(transport, moment):
    """A foreign server, or one of several workers: the call fails, and nothing runs twice."""
    calls: list[bytes] = []

    async def count(request: Request) -> JSONResponse:
        calls.append(await request.body())
        await asyncio.sleep(WORK_SECONDS)
        return JSONResponse({})

    app = Starlette(routes=[Route("/book", count, methods=["POST"])])
    async with serving(app) as url, breaking(url, "/book", moment=moment) as proxy:
        with pytest.raises(TransportError) as caught:
            await transport.call("POST", f"{proxy.url}/book", b"{}", key="k", timeout=60)
    assert caught.value.kind == "transport_peer_drop"
    assert len(calls) == 1


async def test_one_of_several_workers_does_not_promise_to_remember(transport):
    for workers, promises in ((1, True), (2, False)):
        part = make_part("weather", "resources_servers", "weather").model_copy(update={"workers": workers})
        desk = ResourcesServer(part)
        async with serving(_app(desk)) as url:  # type: ignore[arg-type]
            answer = await transport.call("GET", f"{url}/livez")
        assert (answer.header(module.MEMORY_HEADER) is not None) == promises


async def test_a_receiver_that_was_started_again_is_not_asked_twice(transport):
    """Its memory is gone, and with it the knowledge of whether the first request was acted on."""
    calls: list[bytes] = []

    async def count(request: Request) -> JSONResponse:
        calls.append(await request.body())
        return JSONResponse({})

    async def fresh(request: Request) -> JSONResponse:
        return JSONResponse({}, headers={module.MEMORY_HEADER: "0.000"})

    routes = [Route("/book", count, methods=["POST"]), Route("/livez", fresh)]
    async with serving(Starlette(routes=routes)) as url, breaking(url, "/book", moment="before") as proxy:
        with pytest.raises(TransportError):
            await transport.call("POST", f"{proxy.url}/book", b"{}", key="k", timeout=60)
    assert len(calls) == 1


def never_booked() -> tuple[Desk, asyncio.Event]:
    """A desk whose bookings do not end by themselves, and whether one was ended."""
    desk = Desk(make_part("desk", "resources_servers", "desk"))
    ended = asyncio.Event()

    async def never(tally: Tally) -> str:
        desk.bookings += 1
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return ""

    desk.book = never  # type: ignore[method-assign]
    return desk, ended


async def test_a_caller_that_gives_up_takes_its_request_back(transport):
    desk, ended = never_booked()
    async with serving(_app(desk)) as url:
        call = asyncio.create_task(transport.call("POST", f"{url}/book", b"{}", key="k"))
        while not desk.bookings:  # noqa: ASYNC110 - counted by the server
            await asyncio.sleep(0.01)
        call.cancel()
        async with asyncio.timeout(20):
            await ended.wait()
        late = await transport.call("POST", f"{url}/book", b"{}", key="k")
        assert (late.status, desk.bookings) == (500, 1)
        assert "did not ask again" in json.loads(late.body)


async def test_a_timeout_takes_the_request_back_before_the_transport_closes(monkeypatch):
    limits = Limits(monkeypatch, 99)
    desk, _ = never_booked()
    async with serving(_app(desk)) as url:
        async with Transport() as own:
            call = asyncio.create_task(own.call("POST", f"{url}/book", b"{}", key="k", timeout=99))
            await until(lambda: desk.bookings)
            limits.strike()
            with pytest.raises(TransportError) as caught:
                await call
            assert caught.value.kind == "transport_timeout"
        async with Transport() as other:
            late = await other.call("POST", f"{url}/book", b"{}", key="k")
    assert (late.status, desk.bookings) == (500, 1)
