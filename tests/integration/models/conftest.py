"""Model servers asked over HTTP: in this process where many are needed, else as processes of their own."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import aiohttp
import pytest
from fakes.ports import held_port

from gymctl.contract.part import ServerPart
from gymctl.servers.inprocess import serving
from gymctl.servers.load import load
from gymctl.servers.models import upstream as upstreams

REPO = Path(__file__).resolve().parents[3]
IMAGES = REPO / "server_images/responses_api_models"


def _module(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


fake = _module(REPO / "tests/fakes/openai_upstream.py", "openai_upstream")


class Running:
    """A server that listens."""

    def __init__(
        self,
        url: str,
        stop: Callable[[], Awaitable[Any]],
        ended: Callable[[], Awaitable[int]] | None = None,
        pid: int = 0,
    ) -> None:
        self.url = url
        self.stop = stop
        self.ended = ended
        self.pid = pid

    async def post(self, path: str, body: Any, **options: Any) -> tuple[int, Any]:
        async with (
            aiohttp.ClientSession() as session,
            session.post(self.url + path, json=body, **options) as answer,
        ):
            return answer.status, await answer.json(content_type=None)

    async def get(self, path: str) -> tuple[int, Any]:
        async with aiohttp.ClientSession() as session, session.get(self.url + path) as answer:
            return answer.status, await answer.json(content_type=None)


Start = Callable[..., Awaitable[Running]]


def part(implementation: str, port: int, block: dict[str, Any]) -> ServerPart:
    return ServerPart(
        project="test",
        name="policy_model",
        kind="responses_api_models",
        implementation=implementation,
        bind_host="127.0.0.1",
        bind_port=port,
        settings={"entrypoint": "app.py", **block},
        session_secret="secret",
    )


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """`await start("openai_model", openai_base_url=...)`: served from this process, stopped afterwards."""
    started: list[Running] = []

    async def begin(implementation: str, **block: Any) -> Running:
        server = AsyncExitStack()
        app = load(part(implementation, 0, block), IMAGES / implementation)
        running = Running(await server.enter_async_context(serving(app)), server.aclose)
        started.append(running)
        return running

    try:
        yield begin
    finally:
        for running in started:
            await running.stop()


@pytest.fixture
async def spawn(tmp_path: Path) -> AsyncIterator[Start]:
    """`await spawn(python, "llama_cpp_model", ...)`: like `start`, as `python -m gymctl.servers`."""
    processes: list[asyncio.subprocess.Process] = []
    ports = ExitStack()

    async def begin(python: str, implementation: str, **block: Any) -> Running:
        port = ports.enter_context(held_port())
        part_file = tmp_path / "part.json"
        part_file.write_text(part(implementation, port, block).model_dump_json())
        process = await asyncio.create_subprocess_exec(
            python,
            "-m",
            "gymctl.servers",
            cwd=IMAGES / implementation,
            env={**os.environ, "GYMCTL_PART": str(part_file), "PYTHONPATH": str(REPO)},
        )
        processes.append(process)

        async def stop() -> int:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
            return await process.wait()

        running = Running(f"http://127.0.0.1:{port}", stop, process.wait, process.pid)
        await _ready(running, process)
        return running

    try:
        yield begin
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
                await process.wait()
        ports.close()


async def _ready(running: Running, process: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(120):
        while True:
            assert process.returncode is None, "the server ended at its start"
            try:
                if (await running.get("/readyz"))[0] == 200:
                    return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.05)


@pytest.fixture
async def upstream() -> AsyncIterator[Any]:
    async with fake.OpenAIUpstream() as running:
        yield running


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between tries, in seconds, as they are chosen."""
    chosen: list[float] = []
    choose = upstreams.pause

    def noted(*given: Any) -> float:
        chosen.append(choose(*given))
        return chosen[-1]

    monkeypatch.setattr(upstreams, "pause", noted)
    return chosen


@pytest.fixture
def reply() -> Any:
    """How the fake upstream is told what to answer: `reply(503, delay=0.1)`."""
    return fake.Reply
