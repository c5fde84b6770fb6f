"""Values at the edges of JSON, and very large rows: from the input through `/run` to record and metrics."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gymctl.contract.servers import Address, ServerEntry, ServerKind, ServerTable
from gymctl.errors import ConfigError
from gymctl.rollouts import collect_rollouts
from gymctl.rollouts.encoding import loads
from gymctl.rollouts.measured import Wanted, measure
from gymctl.rollouts.saved import SavedRun
from gymctl.servers import ResourcesServer, Server, VerifyRequest, VerifyResponse
from gymctl.testing import ScriptedModel, serving

from .conftest import FakeEnvironment, scored, table_of

Start = Callable[..., Awaitable[FakeEnvironment]]
IMAGES = Path(__file__).resolve().parents[3] / "server_images"
ODD = {
    "nan": math.nan,
    "infinity": math.inf,
    "minus_infinity": -math.inf,
    "half_an_emoji": "a\ud83d",
    "large": 10**40,
    "small": -(2**70),
    "longest": 10**4299,
}
MEBIBYTE = 1 << 20
ANSWER = "In Oslo it is snow, -4 degrees."


def weather_row(**more: Any) -> dict[str, Any]:
    return {"responses_create_params": {"input": "Oslo?"}, "city": "Oslo", **more}


def plain(value: Any) -> str:
    """NaN is not equal to itself; its text is."""
    return repr(value)


class Task(VerifyRequest):
    odd: Any


class Verdict(VerifyResponse):
    odd: Any


class Echo(ResourcesServer):
    """Says what the row says."""

    async def verify(self, request: Task) -> Verdict:
        return Verdict.of(request, reward=1.0, odd=request.odd)


@asynccontextmanager
async def project(tools: type[Server] | Path) -> AsyncIterator[ServerTable]:
    """A resources server behind simple_agent and legacy_agent as they are in an image, and a model."""

    def ref(kind: str, name: str) -> dict[str, str]:
        return {"type": kind, "name": name}

    def entry(name: str, kind: ServerKind, url: str, **references: str) -> ServerEntry:
        host, _, port = url.removeprefix("http://").partition(":")
        address = Address(kind=kind, implementation=name, host=host, port=int(port))
        return ServerEntry(name=name, address=address, references=references)

    def folder(kind: ServerKind, name: str, block: dict[str, Any], **servers: Any) -> Any:
        return stack.enter_async_context(serving(IMAGES / kind / name, block, servers=servers))

    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(ScriptedModel(lambda request, number: ANSWER))
        verifier = await stack.enter_async_context(serving(tools))
        behind = {
            "model_server": ref("responses_api_models", "model"),
            "resources_server": ref("resources_servers", "verifier"),
        }
        agent = await folder("responses_api_agents", "simple_agent", behind, model=model, verifier=verifier)
        front = {"agent_server": ref("responses_api_agents", "agent")}
        relay = await folder("environment_servers", "legacy_agent", front, agent=agent)
        entries = (
            entry("model", "responses_api_models", model.url),
            entry("verifier", "resources_servers", verifier.url),
            entry(
                "agent", "responses_api_agents", agent.url, resources_server="verifier", model_server="model"
            ),
            entry("environment", "environment_servers", relay.url, agent_server="agent"),
        )
        yield ServerTable(servers={server.name: server for server in entries})


async def test_odd_values_in_a_row_disturb_none_of_our_servers(tmp_path: Path) -> None:
    rows = [weather_row(odd=ODD), weather_row(odd="\udc00", n=10**40, deep=[[[{"a": math.nan}]]])]
    async with project(IMAGES / "resources_servers" / "weather") as table:
        records = await collect_rollouts(rows, servers=table, output_jsonl_fpath=str(tmp_path / "out.jsonl"))
    assert [record["reward"] for record in records] == [1.0, 1.0]
    [entry] = json.loads((tmp_path / "out_aggregate_metrics.json").read_bytes())
    assert entry["agent_metrics"]["mean/reward"] == 1.0
    sent = [loads(line) for line in (tmp_path / "out_materialized_inputs.jsonl").read_bytes().splitlines()]
    assert [plain(row["odd"]) for row in sent] == [plain(ODD), plain("\udc00")]
    assert sent[1]["n"] == 10**40


async def test_odd_values_in_a_verdict_come_back(tmp_path: Path) -> None:
    async with project(Echo) as table:
        [record] = await collect_rollouts(
            [weather_row(odd=ODD)], servers=table, output_jsonl_fpath=str(tmp_path / "out.jsonl")
        )
    echoed = {**ODD, "half_an_emoji": "a\ufffd"}  # our servers write text that every reader takes
    assert plain(record["odd"]) == plain(echoed)
    assert plain(loads((tmp_path / "out.jsonl").read_bytes())["odd"]) == plain(echoed)


async def test_a_row_of_64_mebibytes_is_scored(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    row = weather_row(padding="x" * (64 * MEBIBYTE))
    async with project(IMAGES / "resources_servers" / "weather") as table:
        [record] = await collect_rollouts([row], servers=table, output_jsonl_fpath=str(output))
    assert record["reward"] == 1.0
    assert (tmp_path / "out_materialized_inputs.jsonl").stat().st_size > 64 * MEBIBYTE
    [entry] = json.loads((tmp_path / "out_aggregate_metrics.json").read_bytes())
    assert entry["agent_metrics"]["mean/reward"] == 1.0


async def test_rewards_that_are_no_numbers_are_failures_and_large_ones_are_counted(
    environment: Start, tmp_path: Path
) -> None:
    """Every field of the records is as the server wrote it; metrics leave out what is no finite number."""
    rewards = [math.nan, math.inf, -math.inf, "1", None, 10**4000, 10**40, -(2**70), 1e308, True, 0.5]

    async def script(row: dict[str, Any], request: web.Request) -> web.Response:
        return scored(rewards[row["n"]], **ODD)

    fake = await environment(script)
    rows = [weather_row(n=n) for n in range(len(rewards))]
    output = tmp_path / "out.jsonl"
    records = await collect_rollouts(rows, servers=table_of(fake.url), output_jsonl_fpath=str(output))
    assert [plain(record["reward"]) for record in records] == [plain(reward) for reward in rewards]
    assert all(plain({name: record[name] for name in ODD}) == plain(ODD) for record in records)
    failures = [record["gymctl_outcome"]["failure"] for record in records]
    assert failures == ["verifier"] * 6 + [None] * 5
    assert "reward is not a number" in records[0]["gymctl_outcome"]["reason"]
    [entry] = json.loads((tmp_path / "out_aggregate_metrics.json").read_bytes())
    metrics = entry["agent_metrics"]
    assert (metrics["max/reward"], metrics["min/reward"]) == (1e308, -(2.0**70))
    assert metrics["mean/reward"] == pytest.approx(2e307)
    assert metrics["std/reward"] == pytest.approx(statistics.stdev([1e308, 0, 0, 0, 0]))
    assert {name.partition("/")[2] for name in metrics} & set(ODD) == {"large", "small"}
    live = measure([SavedRun.open(output)], Wanted()).tally
    assert (live.scored, live.failed["verifier"]) == (5, 6)
    assert live.headline().mean == pytest.approx(2e307)


async def test_numbers_with_more_digits_than_python_reads_are_refused(
    environment: Start, tmp_path: Path
) -> None:
    digits = "1" * 4301
    (tmp_path / "rows.jsonl").write_text(
        json.dumps(weather_row(n=1)) + "\n" + json.dumps(weather_row(n=2)).replace("2}", f"{digits}}}") + "\n"
    )

    async def script(row: dict[str, Any], request: web.Request) -> web.Response:
        return web.Response(text=f'{{"reward": 1.0, "n": {digits}}}', content_type="application/json")

    fake = await environment(script)
    with pytest.raises(ConfigError, match="4300 digits") as caught:
        await collect_rollouts(tmp_path / "rows.jsonl", servers=table_of(fake.url))
    assert caught.value.where == f"{tmp_path / 'rows.jsonl'}:2"
    assert fake.bodies == []
    [record] = await collect_rollouts([weather_row()], servers=table_of(fake.url))
    assert record["gymctl_outcome"]["failure"] == "environment"
    assert record["_ng_failure_message"] == "the answer is not JSON: ValueError"
