"""A scripted environment server over real HTTP, and a run against it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gymctl.contract.servers import Address, ServerEntry, ServerKind, ServerTable
from gymctl.metrics.aggregate import aggregate
from gymctl.rollouts.collect import CollectOptions
from gymctl.rollouts.dataset import Source
from gymctl.rollouts.resume import ResumeOptions
from gymctl.rollouts.run import Run, RunRequest
from gymctl.transport import Transport

Script = Callable[[dict[str, Any], web.Request], Awaitable[web.StreamResponse]]
Later = Callable[[float], None]


def scored(reward: float, **more: Any) -> web.Response:
    usage = {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12}
    return web.json_response({"reward": reward, "response": {"output": [], "usage": usage}, **more})


async def until(condition: Callable[[], bool]) -> None:
    """Wait, but not for ever, for something that another task does."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - what is waited for is spread over server and collector
            await asyncio.sleep(0.01)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Later:
    """Makes it later, by seconds, for all that waits in the event loop: a limit strikes then."""

    def by(seconds: float) -> None:
        loop = asyncio.get_running_loop()
        time = loop.time
        monkeypatch.setattr(loop, "time", lambda: time() + seconds)

    return by


@dataclass
class FakeEnvironment:
    """Answers `/run` by a script that sees the row; counts what is open and remembers idempotency keys."""

    script: Script
    url: str = ""
    open_calls: int = 0
    most_open: int = 0
    bodies: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    aggregated: list[dict[str, Any]] = field(default_factory=list)
    runner: web.AppRunner | None = None

    async def start(self, host: str = "127.0.0.1") -> None:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_get("/readyz", self._ready)
        app.router.add_post("/run", self._run)
        app.router.add_post("/aggregate_metrics", self._aggregate)
        self.runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self.runner.setup()
        site = web.TCPSite(self.runner, host, 0)
        await site.start()
        host, port = self.runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"

    async def stop(self) -> None:
        if self.runner is not None:
            await self.runner.cleanup()
            self.runner = None

    async def _ready(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"}, headers={"x-gymctl-server": "env"})

    async def _run(self, request: web.Request) -> web.StreamResponse:
        self.open_calls += 1
        self.most_open = max(self.most_open, self.open_calls)
        try:
            row = json.loads(await request.read())
            self.bodies.append(row)
            self.keys.append(request.headers.get("Idempotency-Key"))
            return await self.script(row, request)
        finally:
            self.open_calls -= 1

    async def _aggregate(self, request: web.Request) -> web.Response:
        rows = (await request.json())["verify_responses"]
        self.aggregated = rows
        return web.json_response(aggregate(rows).model_dump())


@pytest.fixture
async def environment() -> AsyncIterator[Callable[[Script], Awaitable[FakeEnvironment]]]:
    started: list[FakeEnvironment] = []

    async def start(script: Script) -> FakeEnvironment:
        fake = FakeEnvironment(script)
        await fake.start()
        started.append(fake)
        return fake

    yield start
    for fake in started:
        await fake.stop()


def table_of(url: str) -> ServerTable:
    """An environment server at `url`, and the servers behind it that only have names."""
    host, _, port = url.removeprefix("http://").partition(":")
    nowhere = ("127.0.0.1", 1)

    def entry(name: str, kind: ServerKind, at: tuple[str, int] = nowhere, **references: str) -> ServerEntry:
        address = Address(kind=kind, implementation="legacy_agent", host=at[0], port=at[1])
        return ServerEntry(name=name, address=address, references=references)

    entries = (
        entry("policy_model", "responses_api_models"),
        entry("tools", "resources_servers"),
        entry("desk", "responses_api_agents", resources_server="tools", model_server="policy_model"),
        entry("env", "environment_servers", (host, int(port)), agent_server="desk"),
    )
    return ServerTable(servers={server.name: server for server in entries})


def write_rows(path: Path, count: int, **more: Any) -> Path:
    rows = (
        {"responses_create_params": {"input": "x"}, "agent_ref": {"name": "desk"}, "n": n, **more}
        for n in range(count)
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@dataclass
class Bench:
    """A prepared run and everything that its collection needs."""

    run: Run
    table: ServerTable
    options: CollectOptions
    drain: asyncio.Event = field(default_factory=asyncio.Event)

    async def collect(self, deaths: AsyncIterator[Any] | None = None, *, and_aggregate: bool = True) -> None:
        async with Transport() as transport:
            try:
                await self.run.collect(transport, self.table, self.options, self.drain, deaths)
                if and_aggregate and not self.run.lost:
                    await self.run.aggregate(transport, self.table)
            finally:
                self.run.close()

    def records(self, which: str) -> list[dict[str, Any]]:
        path: Path = getattr(self.run.paths, which)
        return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


@pytest.fixture
def bench(tmp_path: Path) -> Callable[..., Bench]:
    def make(
        fake_url: str,
        count: int,
        *,
        repeats: int = 1,
        concurrency: int = 8,
        resume: ResumeOptions | None = None,
        **options: Any,
    ) -> Bench:
        rows = write_rows(tmp_path / "rows.jsonl", count)
        table = table_of(fake_url)
        output = tmp_path / "out" / "x.jsonl"
        request = RunRequest([Source(rows)], output, repeats=repeats, resume=resume or ResumeOptions())
        return Bench(Run.prepare(request, table), table, CollectOptions(concurrency, **options))

    return make
