"""An episode that fails is answered with 200: the class, the pause and the reason reach the collector all the
same. Real servers from the environment server to the model server, in front of a planned provider."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fakes.openai_upstream import OpenAIUpstream, Reply, block

from gymctl.contract.rollout import OUTCOME
from gymctl.contract.servers import Address, ServerEntry, ServerTable
from gymctl.rollouts import governor, retries
from gymctl.rollouts.collect import CollectOptions
from gymctl.rollouts.dataset import Source
from gymctl.rollouts.retries import DEFAULT, Retries
from gymctl.rollouts.route import Routing
from gymctl.rollouts.run import Run, RunRequest
from gymctl.servers import ResourcesServer, VerifyRequest, VerifyResponse
from gymctl.servers.stack import client
from gymctl.testing import serving

from .conftest import Bench

IMAGES = Path(__file__).parents[3] / "server_images"
KINDS = {
    "policy_model": "responses_api_models",
    "tools": "resources_servers",
    "desk": "responses_api_agents",
    "env": "environment_servers",
}
MODEL_SERVER = {"model_server": {"type": "responses_api_models", "name": "policy_model"}}
SETTINGS = {
    "agent_server": {"type": "responses_api_agents", "name": "desk"},
    "resources_server": {"type": "resources_servers", "name": "tools"},
    "cleanup_timeout_seconds": 5,
}
NOWHERE = "http://127.0.0.1:1"


class Desk(ResourcesServer):
    """Breaks where it is told to."""

    reverify_mode = "unsupported"
    breaks = ""

    async def seed(self) -> None:
        if self.breaks == "seed":
            raise RuntimeError("no room")

    async def verify(self, request: VerifyRequest) -> VerifyResponse:
        if self.breaks == "verify":
            raise KeyError("Zürich")
        return VerifyResponse.of(request, reward=1.0)


@dataclass
class Stack:
    bench: Bench
    upstream: OpenAIUpstream

    async def failures(self) -> list[dict[str, Any]]:
        await self.bench.collect(and_aggregate=False)
        return self.bench.records("failures")


Make = Callable[..., Awaitable[Stack]]


@pytest.fixture(params=["single_agent_turn", "single_agent_turn_legacy"])
async def stack(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Make]:
    monkeypatch.setattr(client, "UNREACHABLE_SECONDS", 0.1)
    monkeypatch.setattr(retries, "FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(governor, "FIRST_PAUSE_SECONDS", 0.01)
    async with AsyncExitStack() as open_servers:

        async def serve(name: str, what: Any, settings: Mapping[str, Any], **neighbours: str) -> str:
            made = serving(what, settings, name=name, servers=neighbours)
            return (await open_servers.enter_async_context(made)).url

        async def begin(breaks: str = "", is_model_dead: bool = False, **options: Any) -> Stack:
            monkeypatch.setattr(Desk, "breaks", breaks)
            upstream = await open_servers.enter_async_context(OpenAIUpstream())
            tools = await serve("tools", Desk, {})
            model = NOWHERE
            if not is_model_dead:
                path = IMAGES / "responses_api_models/openai_model"
                model = await serve("policy_model", path, block(upstream))
            agents = IMAGES / "responses_api_agents/simple_agent"
            desk = await serve("desk", agents, MODEL_SERVER, policy_model=model)
            path = IMAGES / "environment_servers" / request.param
            env = await serve("env", path, SETTINGS, desk=desk, tools=tools)
            table = _table(request.param, policy_model=model, tools=tools, desk=desk, env=env)
            rows = tmp_path / "rows.jsonl"
            rows.write_text(json.dumps(_row(request.param)) + "\n")
            routing = Routing(taskset_servers={"tools": "env"})
            asked = RunRequest([Source(rows)], tmp_path / "out" / "x.jsonl", routing=routing)
            run = Run.prepare(asked, table)
            return Stack(Bench(run, table, CollectOptions(4, **options)), upstream)

        yield begin


def _row(implementation: str) -> dict[str, Any]:
    params = {"responses_create_params": {"input": "x"}}
    if implementation == "single_agent_turn":
        return {"task_id": {"taskset": "tools", "task_id": "7"}, "task_input": params}
    return {**params, "agent_ref": {"name": "desk"}}


def _table(implementation: str, **urls: str) -> ServerTable:
    entries: dict[str, ServerEntry] = {}
    for name, url in urls.items():
        host, _, port = url.removeprefix("http://").partition(":")
        kind: Any = KINDS[name]
        address = Address(kind=kind, implementation=implementation, host=host, port=int(port))
        references = {"env": {"agent_server": "desk", "resources_server": "tools"}}.get(name, {})
        entries[name] = ServerEntry(name=name, address=address, references=references)
    return ServerTable(servers=entries)


async def test_a_providers_429_is_the_models_and_is_waited_for(stack: Make) -> None:
    made = await stack(retries=Retries(DEFAULT))
    made.upstream.plan(Reply(429, {"error": {"message": "slow down"}}, {"Retry-After": "1"}))
    start = time.monotonic()
    (failure,) = await made.failures()
    assert failure[OUTCOME]["failure"] == "model"
    assert failure["failure_kind"] == "provider_quota_exhausted"
    assert failure["_ng_failure_call"].startswith("policy_model/") and " 429" in failure["_ng_failure_call"]
    assert failure["gymctl_retry_after"] == 1.0
    assert time.monotonic() - start >= 1.0
    tally = made.bench.run.tally
    assert (tally.scored, tally.retried, tally.failed.total()) == (1, 1, 0)


async def test_a_provider_is_asked_again_when_it_is_down_and_not_when_it_refuses(stack: Make) -> None:
    made = await stack(retries=Retries(DEFAULT))
    made.upstream.plan(Reply(503))
    made.upstream.always = Reply(400, {"error": {"message": "no"}})
    down, refused = await made.failures()
    assert (down[OUTCOME]["failure"], down["failure_kind"]) == ("model", "provider_unavailable")
    assert refused[OUTCOME]["failure"] == "model"
    assert "failure_kind" not in refused, "the contract has no word for it"
    assert made.bench.run.tally.failed.total() == 1


@pytest.mark.parametrize(
    ("breaks", "expected", "kind"),
    [("seed", "environment", None), ("verify", "verifier", "verifier_error")],
)
async def test_what_the_resources_server_fails(stack: Make, breaks: str, expected: str, kind: Any) -> None:
    (failure,) = await (await stack(breaks)).failures()
    assert (failure[OUTCOME]["failure"], failure.get("failure_kind")) == (expected, kind)
    assert failure["_ng_failure_call"].endswith(" 500")


async def test_a_model_server_that_is_gone_says_nothing_about_the_model(stack: Make) -> None:
    (failure,) = await (await stack(is_model_dead=True)).failures()
    assert failure[OUTCOME]["failure"] == "infrastructure"
    assert failure["failure_kind"] == "transport_unreachable"
    assert failure["_ng_failure_call"].startswith("127.0.0.1:1/")
