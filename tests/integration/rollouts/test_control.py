"""What bounds a run, over real HTTP: retries, caps, the first failure, a provider with a hidden limit."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gymctl.cli.why_text import reasons_lines
from gymctl.contract.captures import CaptureFiles
from gymctl.errors import RunError
from gymctl.metrics.tally import Tally
from gymctl.metrics.usage import Usage
from gymctl.rollouts import governor, retries
from gymctl.rollouts.captures import Captures
from gymctl.rollouts.journal import End
from gymctl.rollouts.limits import Caps, Clock
from gymctl.rollouts.retries import DEFAULT, Retries
from gymctl.rollouts.saved import SavedRun
from gymctl.rollouts.why import reasons

from .conftest import Bench, FakeEnvironment, Later, scored, until

Start = Callable[..., Awaitable[FakeEnvironment]]
Make = Callable[..., Bench]


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "FIRST_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(governor, "FIRST_PAUSE_SECONDS", 0.02)


def busy(seconds: float | None = None) -> web.Response:
    """As our servers hand a provider's 429 on."""
    headers = {"x-gymctl-failed-call": "policy_model/api.example.com/v1/responses 429"}
    if seconds is not None:
        headers["retry-after"] = str(seconds)
    return web.json_response("too many", status=500, headers=headers)


async def test_a_rollout_that_failed_is_tried_again_under_its_next_id(
    environment: Start, bench: Make
) -> None:
    async def second_time(row: dict[str, Any], request: web.Request) -> web.Response:
        return busy() if row["n"] == 1 and "_ng_attempt_index" not in row else scored(1.0)

    fake = await environment(second_time)
    made = bench(fake.url, 3, retries=Retries(DEFAULT))
    await made.collect()
    tally = made.run.tally
    assert (tally.scored, tally.failed.total(), tally.retried, tally.not_run) == (3, 0, 1, 0)
    (failure,) = made.records("failures")
    assert (failure["_ng_task_index"], failure["gymctl_rollout_id"]) == (1, "1-0")
    again = next(record for record in made.records("rollouts") if record["_ng_task_index"] == 1)
    assert (again["_ng_attempt_index"], again["gymctl_rollout_id"]) == (1, "1-0-a1")
    assert len(set(fake.keys)) == 4


async def test_b73_attempts_have_an_end_and_each_is_a_line(environment: Start, bench: Make) -> None:
    """BUG_CASES B73: a provider that stays busy is asked as often as configured, one that refuses once."""
    calls: Counter[int] = Counter()

    async def never(row: dict[str, Any], request: web.Request) -> web.Response:
        calls[row["n"]] += 1
        if row["n"] == 0:
            headers = {"x-gymctl-failed-call": "policy_model/api.example.com/v1/responses 400"}
            return web.json_response("no", status=500, headers=headers)
        return busy()

    made = bench((await environment(never)).url, 4, retries=Retries({"model": 99}))
    await made.collect(and_aggregate=False)
    assert calls == {0: 1, 1: 3, 2: 3, 3: 3}
    assert dict(made.run.tally.failed) == {"model": 4}
    assert len(made.records("failures")) == 10


async def test_a_pause_holds_no_place(
    environment: Start, bench: Make, monkeypatch: Any, later: Later
) -> None:
    monkeypatch.setattr(retries, "FIRST_PAUSE_SECONDS", 40.0)
    order: list[tuple[int, int]] = []

    async def first_fails(row: dict[str, Any], request: web.Request) -> web.Response:
        order.append((row["n"], row.get("_ng_attempt_index", 0)))
        if row["n"] == 0 and "_ng_attempt_index" not in row:
            return web.Response(status=502)
        return scored(1.0)

    made = bench((await environment(first_fails)).url, 6, concurrency=1, retries=Retries(DEFAULT))
    collecting = asyncio.create_task(made.collect())
    await until(lambda: made.run.tally.finished == 5)
    later(60)
    await collecting
    assert order == [(0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (5, 0), (0, 1)]
    assert made.run.tally.scored == 6


async def test_a_drain_leaves_the_failure_of_a_rollout_that_pauses(
    environment: Start, bench: Make, monkeypatch: Any
) -> None:
    monkeypatch.setattr(retries, "FIRST_PAUSE_SECONDS", 60.0)

    async def fails(row: dict[str, Any], request: web.Request) -> web.Response:
        return web.Response(status=502)

    made = bench((await environment(fails)).url, 3, retries=Retries(DEFAULT))
    collecting = asyncio.create_task(made.collect(and_aggregate=False))
    await until(lambda: made.run.tally.retried == 3)
    made.drain.set()
    async with asyncio.timeout(30):
        await collecting
    assert (made.run.tally.retried, dict(made.run.tally.failed)) == (0, {"infrastructure": 3})
    assert len(made.records("failures")) == 3


async def test_nothing_is_sent_before_retry_after_is_over(environment: Start, bench: Make) -> None:
    """BUG_CASES B73: over all rollouts, not only the one that was refused."""
    times: list[float] = []

    async def refuses_once(row: dict[str, Any], request: web.Request) -> web.Response:
        times.append(time.monotonic())
        number = len(times)
        await asyncio.sleep(0.05)
        return busy(1) if number == 1 else scored(1.0)

    made = bench((await environment(refuses_once)).url, 20, concurrency=2, retries=Retries(DEFAULT))
    await made.collect()
    assert made.run.tally.scored == 20
    gaps = [after - before for before, after in pairwise(times)]
    assert max(gaps) >= 0.9
    assert made.records("failures")[0]["gymctl_retry_after"] == 1.0


async def test_a_hidden_limit_of_a_provider_is_found(environment: Start, bench: Make) -> None:
    """PRODUCT 3.14, with a real clock and sockets."""
    limit, most, refused, at_once = 6, 0, 0, list[int]()

    async def limited(row: dict[str, Any], request: web.Request) -> web.Response:
        nonlocal most, refused
        if fake.open_calls > limit:
            refused += 1
            return busy()
        most = max(most, fake.open_calls)
        at_once.append(fake.open_calls)
        await asyncio.sleep(0.05)
        return scored(1.0)

    fake = await environment(limited)
    made = bench(fake.url, 400, concurrency=24, retries=Retries({"model": 9}))
    await made.collect()
    assert (made.run.tally.scored, made.run.tally.not_run) == (400, 0)
    assert most == limit
    assert refused < 60
    late = at_once[100:]
    assert sum(late) / len(late) > limit * 0.3  # a busy machine has fewer; one by one is 1


@pytest.mark.parametrize(
    ("caps", "cap"), [(Caps(tokens=60), "--max-tokens"), (Caps(cost=60.0), "--max-cost")]
)
async def test_a_cap_is_passed_by_no_more_than_what_was_running(
    environment: Start, bench: Make, caps: Caps, cap: str
) -> None:
    async def twelve_tokens(row: dict[str, Any], request: web.Request) -> web.Response:
        await asyncio.sleep(0.01)
        return scored(1.0)

    made = bench((await environment(twelve_tokens)).url, 50, concurrency=4, caps=caps)
    made.run.tally.price = lambda record, used: float(used.total)
    await made.collect(and_aggregate=False)
    assert made.run.cap == cap
    assert 5 <= made.run.tally.scored <= 5 + 3
    missing = made.run.tally.not_run
    assert missing == 50 - made.run.tally.scored
    assert len(made.records("rollouts")) == made.run.tally.scored
    told = reasons(SavedRun.open(made.run.paths.rollouts))
    assert told.end == End("cap", cap, 60)
    limit = {"--max-tokens": "the token cap of 60", "--max-cost": "the cost cap of $60.00"}[cap]
    lines = reasons_lines(SavedRun.open(made.run.paths.rollouts), told, [], shown=None)
    assert (
        f"   not run: {missing}, {limit} was reached; the same eval with a higher {cap} makes them" in lines
    )


async def test_time_ends_a_run_even_when_nothing_ends(
    environment: Start, bench: Make, monkeypatch: pytest.MonkeyPatch, later: Later
) -> None:
    release = asyncio.Event()

    async def hang(row: dict[str, Any], request: web.Request) -> web.Response:
        await release.wait()
        return scored(1.0)

    fake = await environment(hang)
    made = bench(fake.url, 50, concurrency=4, caps=Caps(seconds=50))
    reached: list[str] = []
    real = Clock.reached

    def watched(clock: Clock, now: float, tally: Tally) -> str | None:
        cap = real(clock, now, tally)
        reached.extend([cap] if cap is not None else [])
        return cap

    monkeypatch.setattr(Clock, "reached", watched)
    collecting = asyncio.create_task(made.collect(and_aggregate=False))
    await until(lambda: fake.open_calls == 4)
    assert reached == []
    later(50)
    await until(lambda: reached == ["--max-time"])
    release.set()
    await collecting
    assert (made.run.cap, made.run.tally.scored, made.run.tally.not_run) == ("--max-time", 4, 46)


async def test_a_cap_that_the_last_rollout_reaches_changes_nothing(environment: Start, bench: Make) -> None:
    async def trivial(row: dict[str, Any], request: web.Request) -> web.Response:
        return scored(1.0)

    made = bench((await environment(trivial)).url, 5, concurrency=1, caps=Caps(tokens=60))
    await made.collect()
    assert (made.run.cap, made.run.tally.scored) == (None, 5)


async def test_the_dispatch_budget_writes_nothing_for_rows_it_drops(
    environment: Start, bench: Make, later: Later
) -> None:
    """CONTRACT 9.7: the margin has begun, and the budget is not over, when the sixth has arrived."""

    async def sixth_is_late(row: dict[str, Any], request: web.Request) -> web.Response:
        if len(fake.bodies) == 6:
            later(50)
        return scored(1.0)

    caps = Caps(dispatch_seconds=100.0, drain_margin=50.0)
    fake = await environment(sixth_is_late)
    made = bench(fake.url, 50, concurrency=2, caps=caps)
    await made.collect(and_aggregate=False)
    assert made.run.cap == "dispatch_budget_s"
    assert 6 <= made.run.tally.scored <= 7, "and the one that ran beside it"
    assert made.records("failures") == []


async def test_rollouts_over_a_cap_of_theirs_keep_their_score_and_are_marked(
    environment: Start, bench: Make
) -> None:
    async def some(row: dict[str, Any], request: web.Request) -> web.Response:
        usage = {"input_tokens": 10 * row["n"], "output_tokens": 0}
        return web.json_response({"reward": 1.0, "response": {"output": [], "usage": usage}})

    made = bench((await environment(some)).url, 5, caps=Caps(rollout_tokens=25))
    await made.collect()
    assert (made.run.tally.scored, made.run.tally.passed) == (5, 2)
    marked = [record for record in made.records("rollouts") if record["gymctl_outcome"].get("passed")]
    assert sorted(Usage.of(record).input for record in marked) == [30, 40]  # type: ignore[union-attr]
    assert all(record["gymctl_outcome"]["passed"] == ["tokens"] for record in marked)


async def test_b99_a_failing_row_does_not_end_the_others(
    environment: Start, bench: Make, later: Later
) -> None:
    """BUG_CASES B99."""

    async def mixed(row: dict[str, Any], request: web.Request) -> web.Response:
        match row["n"]:
            case 37:
                return web.json_response("ValueError('no')", status=500)
            case 61:
                return web.Response(text="<html>it works</html>", content_type="text/html")
            case 80:
                await asyncio.Event().wait()
        return scored(1.0)

    made = bench((await environment(mixed)).url, 100, task_timeout=50, retries=Retries(DEFAULT))
    collecting = asyncio.create_task(made.collect())
    await until(lambda: made.run.tally.finished == 99)
    later(50)
    await collecting
    assert made.run.tally.scored == 97
    failures = {record["_ng_task_index"]: record for record in made.records("failures")}
    assert failures.keys() == {37, 61, 80}
    assert (failures[37]["_ng_failure_class"], failures[37]["_ng_failure_http_status"]) == (
        "agent_run_error",
        500,
    )
    assert "<html>" in failures[61]["_ng_failure_response_body"]
    assert failures[80]["failure_kind"] == "transport_timeout"


async def test_b112_the_first_failure_of_a_strict_run_stops_everything(
    environment: Start, bench: Make
) -> None:
    """BUG_CASES B112: no request after the run has ended, and no task is left."""

    async def first_fails(row: dict[str, Any], request: web.Request) -> web.Response:
        if row["n"] == 0:
            await until(lambda: fake.open_calls == 20)
            return web.json_response("ValueError('no')", status=500)
        await asyncio.sleep(60)
        return scored(1.0)

    fake = await environment(first_fails)
    made = bench(fake.url, 51, concurrency=20, is_strict=True)
    async with asyncio.timeout(30):
        with pytest.raises(RunError, match="rollout 0-0 failed, and the run stops"):
            await made.collect()
    await until(lambda: not fake.open_calls)
    seen = len(fake.bodies)
    await asyncio.sleep(0.3)
    assert len(fake.bodies) == seen == 20
    assert [record["_ng_task_index"] for record in made.records("failures")] == [0]
    others = [task for task in asyncio.all_tasks() if "Collector" in repr(task.get_coro())]
    assert others == []


async def test_b109_a_rollout_cut_by_its_time_limit_keeps_the_calls_on_record(
    environment: Start, bench: Make, tmp_path: Path, later: Later
) -> None:
    """BUG_CASES B109: three good turns, then a tool hangs."""
    files, hangs = CaptureFiles(tmp_path, "0-0"), asyncio.Event()

    async def three_turns(row: dict[str, Any], request: web.Request) -> web.Response:
        usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
        response = {"output": [], "usage": usage}
        call = {"status_code": 200, "latency_ms": 1.0, "request": {}, "response": response}
        lines = [json.dumps({"model_call_id": f"c{n}", **call}) for n in range(3)]
        files.calls.write_text("".join(f"{line}\n" for line in lines))
        hangs.set()
        await asyncio.Event().wait()
        return scored(1.0)

    captures = Captures(tmp_path)
    made = bench((await environment(three_turns)).url, 1, task_timeout=50, captures=captures)
    collecting = asyncio.create_task(made.collect(and_aggregate=False))
    await until(hangs.is_set)
    later(50)
    await collecting
    (record,) = made.records("failures")
    assert record["failure_kind"] == "transport_timeout"
    assert "reward" not in record
    assert record["ng_model_call_capture"]["metrics"]["num_calls"] == 3
    assert record["ng_model_call_capture"]["metrics"]["tokens_total"] == 45
    assert len(record["ng_trajectory"]["model_calls"]) == 3
    tally = made.run.tally
    assert (tally.scored, dict(tally.failed)) == (0, {"infrastructure": 1})
    assert (tally.input_tokens, tally.output_tokens) == (30, 15), "spent, and counted against caps"
