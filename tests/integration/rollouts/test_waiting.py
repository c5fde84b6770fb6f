"""The slowest rollouts are shown with the server that they really wait for, found from server to server."""

from __future__ import annotations

import asyncio
import io
import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from aiohttp import web
from fakes.evaluations import REPO

from gymctl import deferred
from gymctl.cli import progress
from gymctl.cli.output import Console
from gymctl.contract.servers import ServerTable
from gymctl.contract.waiting import WAITING_PATH
from gymctl.metrics.tally import Tally
from gymctl.rollouts import waiting
from gymctl.rollouts.waiting import Waiting
from gymctl.servers.inprocess import serving_folder
from gymctl.transport import ROLLOUT, Transport

IMAGES = REPO / "server_images"
ROW = {"responses_create_params": {"input": "Weather in Oslo?"}, "agent_ref": {"name": "desk"}}
KINDS = {
    "env": "environment_servers",
    "desk": "responses_api_agents",
    "tools": "resources_servers",
    "policy_model": "responses_api_models",
}


class Foreign:
    """A server that is none of ours and never answers a POST."""

    def __init__(self) -> None:
        self.paths: Counter[str] = Counter()
        self.held = asyncio.Event()

    async def answer(self, request: web.Request) -> web.Response:
        self.paths[request.path] += 1
        if request.method == "POST":
            self.held.set()
            await asyncio.sleep(60)
        return web.json_response({"detail": "Not Found"}, status=404)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.answer)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()


@asynccontextmanager
async def stack(tools: str | None, model: str, env: Mapping[str, Any]) -> AsyncIterator[ServerTable]:
    """`tools` and `model` are URLs; without the first one the weather server has the tools."""
    settings = {
        "resources_server": {"type": KINDS["tools"], "name": "tools"},
        "model_server": {"type": KINDS["policy_model"], "name": "policy_model"},
    }
    async with (
        serving_folder(IMAGES / "resources_servers/weather", "tools") as weather,
        serving_folder(
            IMAGES / "responses_api_agents/simple_agent",
            "desk",
            settings,
            {"tools": tools or weather, "policy_model": model},
        ) as desk,
        serving_folder(
            IMAGES / "environment_servers/legacy_agent",
            "env",
            {"agent_server": {"type": KINDS["desk"], "name": "desk"}},
            {"desk": desk},
            told=env,
        ) as front,
    ):
        urls = {"env": front, "desk": desk, "tools": tools or weather, "policy_model": model}
        yield ServerTable.from_document(
            {
                name: {KINDS[name]: {"any": {"host": "127.0.0.1", "port": port(url)}}}
                for name, url in urls.items()
            }
        )


def port(url: str) -> int:
    return int(url.rpartition(":")[2])


@asynccontextmanager
async def waiting_rollout(transport: Transport, table: ServerTable) -> AsyncIterator[Tally]:
    """A rollout `7-0` that is at work, and has been for a while."""

    async def run() -> None:
        ROLLOUT.set("7-0")
        await transport.call("POST", f"{table['env'].url}/run", orjson.dumps(ROW), key="7-0")

    task = asyncio.create_task(run())
    tally = Tally()
    tally.running["7-0"], tally.asked["7-0"] = asyncio.get_running_loop().time() - 60, "env"
    try:
        yield tally
    finally:
        task.cancel()
        await asyncio.wait([task])


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is busy is given more time to answer."""
    monkeypatch.setattr(waiting, "PATIENCE", 30.0)
    monkeypatch.setattr(deferred, "COMING_BACK_SECONDS", 30.0)


@pytest.fixture
async def transport() -> AsyncIterator[Transport]:
    async with Transport() as made:
        yield made


async def test_the_model_behind_two_servers_is_named_and_foreign_servers_are_asked_who_they_are_once(
    transport: Transport,
) -> None:
    model = Foreign()
    async with model.serving() as url, stack(None, url, {}) as table:
        async with waiting_rollout(transport, table) as tally:
            await asyncio.wait_for(model.held.wait(), 20)
            asking = Waiting(transport, table)
            for _ in range(3):
                assert await asking.look(tally) == {"7-0": "policy_model"}
            assert WAITING_PATH not in model.paths
            # Our agent asks it once, too, before it calls it.
            assert model.paths["/livez"] <= 2
            tally.running["8-0"] = tally.running["7-0"]  # not sent yet
            tally.running["9-0"], tally.asked["9-0"] = asyncio.get_running_loop().time(), "env"
            assert list(await asking.look(tally)) == ["7-0"]
        async with asyncio.timeout(20):
            while (await asking.look(tally))["7-0"] != "env":  # noqa: ASYNC110 - its end is seen there only
                await asyncio.sleep(0.05)


async def test_the_resources_server_is_named_while_it_is_waited_for(transport: Transport) -> None:
    tools, model = Foreign(), Foreign()
    async with (
        tools.serving() as held,
        model.serving() as url,
        stack(held, url, {}) as table,
        waiting_rollout(transport, table) as tally,
    ):
        await asyncio.wait_for(tools.held.wait(), 20)
        assert await Waiting(transport, table).look(tally) == {"7-0": "tools"}


async def test_it_is_seen_while_the_run_goes_on(
    transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(progress, "OBJECT_SECONDS", 0.02)
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.02)
    model, err = Foreign(), io.StringIO()
    async with (
        model.serving() as url,
        stack(None, url, {}) as table,
        waiting_rollout(transport, table) as tally,
        progress.following(tally, Console(err=err), "json", waiting=Waiting(transport, table)),
        asyncio.timeout(20),
    ):
        while '"waits_for": "policy_model"' not in err.getvalue():  # noqa: ASYNC110 - what a reader sees
            await asyncio.sleep(0.01)
    [slowest] = json.loads(err.getvalue().splitlines()[-1])["slowest"]
    assert (slowest["rollout"], slowest["server"]) == ("7-0", "env")


async def test_a_group_of_workers_cannot_tell_and_is_named_itself(transport: Transport) -> None:
    model = Foreign()
    async with (
        model.serving() as url,
        stack(None, url, {"workers": 2}) as table,
        waiting_rollout(transport, table) as tally,
    ):
        await asyncio.wait_for(model.held.wait(), 20)
        assert await Waiting(transport, table).look(tally) == {"7-0": "env"}


async def test_a_server_that_has_gone_is_the_last_one_that_is_named(transport: Transport) -> None:
    table = ServerTable.from_document(
        {"env": {KINDS["env"]: {"any": {"host": "127.0.0.1", "port": 1}}}},
    )
    tally = Tally()
    tally.running["7-0"], tally.asked["7-0"] = 0.0, "env"
    assert await Waiting(transport, table).look(tally) == {"7-0": "env"}
