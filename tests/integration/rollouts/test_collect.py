"""Collection over real HTTP: every way in which a rollout can end, and every way in which a run can."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import pytest
from aiohttp import web

from gymctl.errors import RunError, ServerError
from gymctl.rollouts.resume import ResumeOptions
from gymctl.rollouts.store import LineFile
from gymctl.runtime.stack import ServerDeath

from .conftest import Bench, FakeEnvironment, Later, scored, until

Start = Callable[..., Awaitable[FakeEnvironment]]
Make = Callable[..., Bench]

FAILED_AT = {
    "seed": {"_ng_failure_stage": "seed"},
    "verification": {"_ng_failure_stage": "verification"},
    "admission": {"_ng_failure_stage": "admission"},
}
MODEL_DOWN = (
    '"Hit an exception in SimpleAgent___desk calling an inner server: '
    'b\'\\"Hit an exception in OpenAIModel___policy_model calling an inner server: no\\"\'"'
)


async def hundred_outcomes(row: dict[str, Any], request: web.Request) -> web.StreamResponse:
    """Task n of 100: 60 right, 20 wrong, 4 half right, and 16 of every other kind."""
    n = row["n"]
    if n < 60:
        return scored(1.0)
    if n < 80:
        return scored(0.0, _extra={"n": n})
    if n < 84:
        return scored(0.5)
    match n:
        case 84 | 85 | 86:  # model
            return web.Response(status=500, text=MODEL_DOWN)
        case 87:  # model: rate limit
            return web.Response(status=429, text="slow down")
        case 88 | 89:  # environment: a server's own exception
            return web.json_response("ValueError('no such city')", status=500)
        case 90:  # environment: the seed was refused
            return failure(FAILED_AT["seed"])
        case 91 | 92:  # verifier
            return failure(FAILED_AT["verification"])
        case 93:  # verifier: scored without a reward
            return web.json_response({"response": {}})
        case 94:  # verifier: the judge could not be asked
            return scored(
                0.0, mask_sample=True, failure_kind="judge_failed", _ng_failure_class="judge_failed"
            )
        case 95:  # infrastructure: no room
            return failure(FAILED_AT["admission"])
        case 96:  # infrastructure: the clock
            await asyncio.Event().wait()
        case 97:  # bug: a message that breaks the contract
            return web.json_response({"detail": [{"type": "missing"}]}, status=422)
        case 98:  # environment: not JSON
            return web.Response(text="<html>it works</html>")
        case 99:  # infrastructure: the connection breaks, each time
            assert request.transport is not None
            request.transport.close()
    return web.Response()


async def limit_struck(work: Coroutine[Any, Any, None], made: Bench, later: Later) -> None:
    """The hundred outcomes, each with a limit of 50 s, which strikes when only that of the clock is left."""
    running = asyncio.create_task(work)
    await until(lambda: running.done() or made.run.tally.finished == 99)
    later(50)
    await running


def failure(fields: dict[str, Any]) -> web.Response:
    record = {"_ng_failure_class": "environment_server_failed", "_ng_failure_terminal": False, **fields}
    return web.json_response(record)


async def test_a_hundred_outcomes_give_the_numbers_computed_by_hand(
    environment: Start, bench: Make, later: Later
) -> None:
    fake = await environment(hundred_outcomes)
    made = bench(fake.url, 100, task_timeout=50)
    await limit_struck(made.collect(), made, later)
    tally = made.run.tally
    head = tally.headline()

    assert (tally.planned, tally.scored, tally.failed.total(), tally.not_run) == (100, 84, 16, 0)
    assert dict(tally.failed) == {
        "model": 4,
        "environment": 4,
        "verifier": 4,
        "infrastructure": 3,
        "bug": 1,
    }
    assert head.mean == pytest.approx(62 / 84)
    assert head.coverage == 0.84
    assert head.bounds == (pytest.approx(0.62), pytest.approx(0.78))
    assert (tally.input_tokens, tally.output_tokens) == (85 * 10, 85 * 2)

    records, failures = made.records("rollouts"), made.records("failures")
    # The record without a reward is a success on the wire and stays in the main file, unscored.
    assert (len(records), len(failures)) == (85, 15)
    keys = sorted(record["_ng_task_index"] for record in records + failures)
    assert keys == list(range(100))
    assert all(record["_ng_environment_server"] == "env" for record in records + failures)
    assert all("reward" not in record for record in failures if record["_ng_task_index"] != 94)
    assert fake.aggregated == sorted(fake.aggregated, key=lambda row: row["_ng_task_index"])

    (entry,) = json.loads(made.run.paths.aggregate.read_bytes())
    assert entry["agent_ref"] == {"name": "desk"}
    assert entry["agent_metrics"]["mean/reward"] == pytest.approx(62 / 84)


async def test_every_request_is_known_by_a_key_of_its_own(environment: Start, bench: Make) -> None:
    fake = await environment(hundred_outcomes)
    await bench(fake.url, 5).collect()
    await bench(fake.url, 5, resume=ResumeOptions(is_fresh=True)).collect()
    assert len(set(fake.keys)) == 10
    assert all(
        key and key.rpartition(":")[2] == f"{row['n']}-0"
        for key, row in zip(fake.keys, fake.bodies, strict=True)
    )


async def test_rows_are_sent_as_they_stand_in_the_inputs_file(environment: Start, bench: Make) -> None:
    fake = await environment(hundred_outcomes)
    made = bench(fake.url, 3, repeats=2, concurrency=1)
    await made.collect()
    assert fake.bodies == made.records("inputs")
    assert [(row["_ng_task_index"], row["_ng_rollout_index"]) for row in fake.bodies] == [
        (0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)
    ]  # fmt: skip


async def test_two_thousand_rows_never_make_more_tasks_than_may_run(environment: Start, bench: Make) -> None:
    most = 0

    async def trivial(row: dict[str, Any], request: web.Request) -> web.Response:
        nonlocal most
        most = max(most, sum("Collector._one " in repr(task.get_coro()) for task in asyncio.all_tasks()))
        return scored(1.0)

    fake = await environment(trivial)
    made = bench(fake.url, 2000, concurrency=16)
    await made.collect()
    assert (made.run.tally.scored, made.run.tally.running) == (2000, {})
    assert 0 < most <= 16
    assert fake.most_open <= 16
    assert len({record["_ng_task_index"] for record in made.records("rollouts")}) == 2000


async def test_what_is_written_is_not_kept_in_memory(environment: Start, bench: Make) -> None:
    """BUG_CASES B74: memory may grow with what one rollout tells, not with what all of them have told."""
    size, rows = 40_000, 200

    async def talkative(row: dict[str, Any], request: web.Request) -> web.Response:
        return scored(1.0, text="x" * size)

    made = bench((await environment(talkative)).url, rows, concurrency=4)
    tracemalloc.start()
    try:
        await made.collect(and_aggregate=False)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert made.run.tally.scored == rows
    assert most < size * rows / 2


async def test_a_drain_waits_for_the_running_rollouts_and_starts_no_more(
    environment: Start, bench: Make
) -> None:
    release = asyncio.Event()

    async def wait(row: dict[str, Any], request: web.Request) -> web.Response:
        await release.wait()
        return scored(1.0)

    fake = await environment(wait)
    made = bench(fake.url, 50, concurrency=4)
    collecting = asyncio.create_task(made.collect())
    await until(lambda: fake.open_calls == 4)
    made.drain.set()
    release.set()
    await collecting
    assert (made.run.tally.scored, made.run.tally.not_run) == (4, 46)
    assert len(made.records("rollouts")) == 4


async def test_a_cancelled_run_stops_now_and_leaves_whole_files(environment: Start, bench: Make) -> None:
    async def first_ten(row: dict[str, Any], request: web.Request) -> web.Response:
        if row["n"] >= 10:
            await asyncio.sleep(60)
        return scored(1.0)

    fake = await environment(first_ten)
    made = bench(fake.url, 50, concurrency=4)
    collecting = asyncio.create_task(made.collect())
    await until(lambda: fake.open_calls == 4 and made.run.tally.finished == 10)
    collecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await collecting
    assert sorted(
        record["n"] if "n" in record else record["_ng_task_index"] for record in made.records("rollouts")
    ) == list(range(10))
    assert (made.run.tally.scored, made.run.tally.not_run) == (10, 40)
    await until(lambda: not fake.open_calls)


async def _die(event: asyncio.Event, death: ServerDeath) -> AsyncIterator[ServerDeath]:
    await event.wait()
    yield death
    await asyncio.sleep(60)


@pytest.mark.parametrize(
    ("server", "needed_by"),
    [("env", ()), ("desk", ()), ("tools", ()), ("policy_model", ()), ("ray-head", ("tools",))],
)
async def test_a_dead_server_fails_its_rollouts_with_its_name_and_ends_the_run(
    environment: Start, bench: Make, server: str, needed_by: tuple[str, ...]
) -> None:
    async def hang(row: dict[str, Any], request: web.Request) -> web.Response:
        if row["n"] < 3:
            return scored(1.0)
        await asyncio.sleep(60)
        return scored(0.0)

    fake = await environment(hang)
    made = bench(fake.url, 50, concurrency=4)
    dead = asyncio.Event()
    death = ServerDeath(
        server=server, exit_code=137, was_out_of_memory=True, last_lines=("the end",), needed_by=needed_by
    )
    collecting = asyncio.create_task(made.collect(_die(dead, death)))
    await until(lambda: fake.open_calls == 4 and made.run.tally.finished == 3)
    dead.set()
    async with asyncio.timeout(30):
        await collecting

    assert [(lost.server, lost.exit_code, lost.last_lines) for lost in made.run.lost] == [
        (server, 137, ("the end",))
    ]
    assert dict(made.run.tally.failed) == {"infrastructure": 4}
    assert (made.run.tally.scored, made.run.tally.not_run) == (3, 43)
    for record in made.records("failures"):
        assert record["_ng_failure_server"] == server
        assert record["_ng_failure_exit_code"] == 137
        assert record["_ng_failure_out_of_memory"] is True
        assert f"`{server}` stopped (exit 137, out of memory)" in record["_ng_failure_message"]
        assert "reward" not in record


async def test_a_death_that_no_rollout_needs_changes_nothing(environment: Start, bench: Make) -> None:
    fake = await environment(hundred_outcomes)
    made = bench(fake.url, 20)
    dead = asyncio.Event()
    dead.set()
    await made.collect(_die(dead, ServerDeath("bystander", 1, False, ())))
    assert (made.run.lost, made.run.tally.scored) == ([], 20)


async def test_a_connection_broken_before_the_news_of_the_death_is_blamed_on_it(
    environment: Start, bench: Make
) -> None:
    dead = asyncio.Event()

    async def drop(row: dict[str, Any], request: web.Request) -> web.Response:
        asyncio.get_running_loop().call_later(0.3, dead.set)
        return web.json_response("ClientConnectorError('Cannot connect to host tools:8000')", status=500)

    fake = await environment(drop)
    made = bench(fake.url, 5, concurrency=1, death_notice_seconds=20.0)
    await made.collect(_die(dead, ServerDeath("tools", 1, False, ())))
    (record,) = made.records("failures")
    assert record["_ng_failure_server"] == "tools"
    assert made.run.tally.not_run == 4


async def test_a_server_that_refuses_connections_ends_the_run(environment: Start, bench: Make) -> None:
    calls = 0

    async def then_gone(row: dict[str, Any], request: web.Request) -> web.Response:
        nonlocal calls
        calls += 1
        if calls == 2:
            asyncio.get_running_loop().call_soon(lambda: asyncio.ensure_future(fake.stop()))
            await asyncio.sleep(0.5)
        return scored(1.0)

    fake = await environment(then_gone)
    made = bench(fake.url, 100, concurrency=1, unreachable_seconds=2.0)
    async with asyncio.timeout(60):
        await made.collect()
    assert made.run.tally.finished < 10
    assert "refuses connections" in made.run.lost[0].reason


async def test_a_server_that_does_not_answer_at_all_is_an_error_before_the_first_rollout(bench: Make) -> None:
    made = bench("http://127.0.0.1:9", 3, unreachable_seconds=0.1)
    made.run.paths.rollouts.write_text("yesterday\n")
    with pytest.raises(ServerError, match="does not answer"):
        await made.collect()
    assert made.run.paths.rollouts.read_text() == "yesterday\n"


async def test_a_full_disk_ends_the_run_and_keeps_what_is_finished(
    environment: Start, bench: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = await environment(hundred_outcomes)
    made = bench(fake.url, 50, concurrency=4)
    real = LineFile.write

    def until_ten(self: LineFile, line: bytes) -> None:
        if self.path.name == "x.jsonl" and self.path.read_bytes().count(b"\n") >= 10:
            raise OSError(28, "No space left on device")
        real(self, line)

    monkeypatch.setattr(LineFile, "write", until_ten)
    with pytest.raises(RunError, match="No space left on device"):
        await made.collect()
    assert len(made.records("rollouts")) == 10


async def test_a_bug_in_the_collector_is_one_failed_rollout(
    environment: Start, bench: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gymctl.rollouts import collect

    real = collect.record_of

    def buggy(answer: Any, row: dict[str, Any]) -> Any:
        if row["n"] == 2:
            raise KeyError("a bug")
        return real(answer, row)

    monkeypatch.setattr(collect, "record_of", buggy)
    fake = await environment(hundred_outcomes)
    made = bench(fake.url, 5)
    await made.collect()
    assert (made.run.tally.scored, dict(made.run.tally.failed)) == (4, {"bug": 1})


async def test_aggregation_that_fails_says_so_and_keeps_the_rollouts(environment: Start, bench: Make) -> None:
    fake = await environment(hundred_outcomes)

    async def broken(request: web.Request) -> web.Response:
        return web.json_response("RuntimeError('no')", status=500)

    fake._aggregate = broken  # type: ignore[method-assign]
    await fake.stop()
    await fake.start()
    made = bench(fake.url, 3)
    with pytest.raises(ServerError, match="aggregate metrics"):
        await made.collect()
    assert len(made.records("rollouts")) == 3
    assert not made.run.paths.aggregate.exists()
