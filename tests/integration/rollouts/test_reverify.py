"""Saved rollouts scored again by a verifier over real HTTP: what is sent, what is refused, what changed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gymctl.contract.servers import Address, ServerEntry, ServerTable
from gymctl.errors import ConfigError, RunError
from gymctl.paths import RunPaths
from gymctl.rollouts.reverify import Reverification
from gymctl.rollouts.saved import SavedRun
from gymctl.transport import Transport

ANSWER = {"output": [{"type": "message", "content": [{"type": "output_text", "text": "4"}]}]}


class Verifier:
    """Full reward for an even `n`; `n` of 3 breaks it, `n` of 5 meets a dead judge."""

    def __init__(self) -> None:
        self.mode: str | None = "stateless"
        self.bodies: list[dict[str, Any]] = []

    async def verify(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.bodies.append(body)
        if body["n"] == 3:
            return web.json_response("KeyError('n')", status=500)
        failed = {"mask_sample": True, "failure_kind": "judge_failed", "_ng_failure_class": "judge_failed"}
        more = failed if body["n"] == 5 else {}
        return web.json_response({**body, "reward": 1.0 - body["n"] % 2, **more})

    async def reverify_mode(self, request: web.Request) -> web.Response:
        return web.json_response(self.mode) if self.mode else web.json_response("no route", status=404)


@pytest.fixture
async def verifier() -> AsyncIterator[tuple[Verifier, ServerTable]]:
    fake = Verifier()
    app = web.Application(client_max_size=1 << 30)
    app.router.add_post("/verify", fake.verify)
    app.router.add_get("/reverify_mode", fake.reverify_mode)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield fake, table(runner.addresses[0][1])
    await runner.cleanup()


def table(port: int) -> ServerTable:
    def entry(name: str, kind: Any, at: int = 1, **references: str) -> ServerEntry:
        address = Address(kind=kind, implementation=name, host="127.0.0.1", port=at)
        return ServerEntry(name=name, address=address, references=references)

    entries = (
        entry("sums", "resources_servers", port),
        entry("desk", "responses_api_agents", resources_server="sums"),
        entry("env", "environment_servers", agent_server="desk"),
    )
    return ServerTable(servers={one.name: one for one in entries})


def saved(folder: Path, rewards: dict[int, float | None]) -> SavedRun:
    """A run of one rollout per task; None is one that a judge spoiled."""
    paths = RunPaths(folder / "x.jsonl")
    key = [{"_ng_task_index": n, "_ng_rollout_index": 0} for n in rewards]
    rows = [{**one, "n": one["_ng_task_index"], "responses_create_params": {"input": "?"}} for one in key]
    paths.inputs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    stamps = {"_ng_environment_server": "env", "agent_ref": {"name": "desk"}, "response": ANSWER}
    good = [
        {**one, **stamps, "reward": r} for one, r in zip(key, rewards.values(), strict=True) if r is not None
    ]
    bad = [
        {**one, **stamps, "_ng_failure_class": "judge_failed"}
        for one, r in zip(key, rewards.values(), strict=True)
        if r is None
    ]
    paths.rollouts.write_text("".join(json.dumps(row) + "\n" for row in good))
    paths.failures.write_text("".join(json.dumps(row) + "\n" for row in bad))
    return SavedRun.open(paths.rollouts)


class Kept(list[dict[str, Any]]):
    def write(self, record: dict[str, Any]) -> None:
        self.append(record)


async def verified(again: Reverification, **more: Any) -> Kept:
    kept = Kept()
    async with Transport() as transport:
        await again.run(transport, kept, concurrency=4, done=more.get("done", frozenset()))
    return kept


async def test_the_old_answer_is_scored_and_the_difference_told(tmp_path: Path, verifier: Any) -> None:
    fake, servers = verifier
    run = saved(tmp_path, {0: 1.0, 1: 1.0, 2: 0.0, 3: 1.0, 4: None, 5: 1.0})
    again = Reverification(run, servers)
    kept = await verified(again)
    assert {body["n"] for body in fake.bodies} == {0, 1, 2, 3, 4, 5}
    first = next(body for body in fake.bodies if body["n"] == 0)
    assert first == {"n": 0, "responses_create_params": {"input": "?"}, "response": ANSWER}
    by_task = {record["_ng_task_index"]: record for record in kept}
    assert [by_task[n].get("reward") for n in (0, 1, 2, 4)] == [1.0, 0.0, 1.0, 1.0]
    assert by_task[0]["_ng_environment_server"] == "env"
    assert by_task[0]["response"] == ANSWER
    assert by_task[3]["_ng_failure_class"] == "agent_run_error"
    assert by_task[3]["_ng_failure_stage"] == "verification"
    assert by_task[5]["_ng_failure_class"] == "judge_failed"
    changes = again.changes
    assert (changes.same, changes.rescued) == (1, 1)
    assert [(one.name, one.before, one.after) for one in changes.gained] == [("2-0", 0.0, 1.0)]
    assert [(one.name, one.before, one.after) for one in changes.lost] == [("1-0", 1.0, 0.0)]
    assert {reason.split(":")[0] for reason in changes.failed} == {"verifier"}
    assert changes.failed.total() == 2


async def test_only_what_a_judge_spoiled(tmp_path: Path, verifier: Any) -> None:
    fake, servers = verifier
    kept = await verified(Reverification(saved(tmp_path, {0: 1.0, 2: None}), servers, only_judge_failed=True))
    assert [body["n"] for body in fake.bodies] == [2]
    assert kept[0]["reward"] == 1.0


async def test_what_is_done_is_not_sent_again(tmp_path: Path, verifier: Any) -> None:
    fake, servers = verifier
    await verified(Reverification(saved(tmp_path, {0: 1.0, 2: 0.0}), servers), done=frozenset({(0, 0)}))
    assert [body["n"] for body in fake.bodies] == [2]


@pytest.mark.parametrize("mode", ["unknown", "unsupported", None])
async def test_a_verifier_that_may_need_a_session_is_refused(
    tmp_path: Path, verifier: Any, mode: str | None
) -> None:
    fake, servers = verifier
    fake.mode = mode
    again = Reverification(saved(tmp_path, {0: 1.0}), servers)
    async with Transport() as transport:
        with pytest.raises(RunError, match=r"session .*`sums` \(un"):
            await again.check_modes(transport, is_forced=False)
        assert await again.check_modes(transport, is_forced=True) is False
        fake.mode = "stateless"
        assert await again.check_modes(transport, is_forced=False) is True


async def test_a_dead_verifier_is_infrastructure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gymctl.rollouts.reverify._REFUSED_SECONDS", 0.1)
    again = Reverification(saved(tmp_path, {0: 1.0}), table(1))
    [record] = await verified(again)
    assert record["failure_kind"] == "transport_unreachable"
    assert [reason.split(":")[0] for reason in again.changes.failed] == ["infrastructure"]


async def test_rollouts_that_cannot_be_verified_are_named(tmp_path: Path, verifier: Any) -> None:
    _, servers = verifier
    run = saved(tmp_path, {0: 1.0, 1: 1.0})
    alone = ServerTable(servers={"sums": servers["sums"]})
    with pytest.raises(ConfigError, match="no resources server here verifies rollout"):
        Reverification(run, alone).verifiers()
    run.paths.inputs.write_text("")
    with pytest.raises(ConfigError, match="rollout 0-0 has no row"):
        Reverification(run, servers).verifiers()
    run.paths.inputs.unlink()
    with pytest.raises(ConfigError, match="the inputs of this run are gone"):
        Reverification(run, servers).verifiers()


async def test_the_task_source_says_who_verifies(tmp_path: Path, verifier: Any) -> None:
    _, servers = verifier
    run = saved(tmp_path, {2: 0.0})
    row = json.loads(run.paths.inputs.read_text())
    run.paths.inputs.write_text(json.dumps({**row, "task_source": "sums"}))
    alone = ServerTable(servers={"sums": servers["sums"]})
    [record] = await verified(Reverification(run, alone))
    assert record["reward"] == 1.0


async def test_a_row_of_a_taskset_is_sent_flat(tmp_path: Path, verifier: Any) -> None:
    fake, servers = verifier
    run = saved(tmp_path, {2: 0.0})
    task = {"task_id": {"taskset": "t", "task_id": "7"}, "task_input": {"n": 2, "answer": 4}}
    run.paths.inputs.write_text(json.dumps({**task, "_ng_task_index": 2, "_ng_rollout_index": 0}))
    await verified(Reverification(run, servers))
    assert fake.bodies == [{"n": 2, "answer": 4, "response": ANSWER}]


async def test_an_answer_that_is_missing_is_counted(tmp_path: Path, verifier: Any) -> None:
    _, servers = verifier
    run = saved(tmp_path, {0: 1.0})
    record = json.loads(run.paths.rollouts.read_text())
    del record["response"]
    run.paths.rollouts.write_text(json.dumps(record))
    again = Reverification(run, servers)
    assert await verified(again) == []
    assert again.without_response == 1
