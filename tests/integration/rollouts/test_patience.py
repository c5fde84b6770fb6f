"""Servers that are gone, frozen or slow while rollouts wait for them: told soon, bounded, never a score."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from fakes.contract import free_port

from gymctl.errors import ServerError
from gymctl.rollouts.destinations import UNREACHABLE_SECONDS

from .conftest import Bench, FakeEnvironment, Later, scored, until, write_rows
from .test_numbers import head_of

Start = Callable[..., Awaitable[FakeEnvironment]]
Make = Callable[..., Bench]


async def test_b69_rollouts_that_were_cut_neither_block_the_others_nor_stay(
    environment: Start, bench: Make, later: Later
) -> None:
    """BUG_CASES B69: three of ten never get an answer; the others do, and nothing is left open."""

    hanging = 0

    async def some_hang(row: dict[str, Any], request: web.Request) -> web.Response:
        nonlocal hanging
        if row["n"] % 10 < 3:
            hanging += 1
            await asyncio.Event().wait()
        return scored(1.0)

    fake = await environment(some_hang)
    made = bench(fake.url, 50, concurrency=10, task_timeout=50)
    collecting = asyncio.create_task(made.collect(and_aggregate=False))
    await until(lambda: hanging == 10)  # they hold every slot
    later(50)
    await until(lambda: hanging == 15 and made.run.tally.finished == 45)
    later(50)
    await collecting
    assert (made.run.tally.scored, dict(made.run.tally.failed)) == (35, {"infrastructure": 15})
    await until(lambda: not fake.open_calls)
    assert not [task for task in asyncio.all_tasks() if "Collector" in repr(task.get_coro())]


async def test_b71_a_rollout_is_not_cut_by_a_limit_that_nobody_asked_for(
    environment: Start, bench: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BUG_CASES B71: aiohttp's own 300 s, made short here."""

    async def slow(row: dict[str, Any], request: web.Request) -> web.Response:
        await asyncio.sleep(0.8)
        return scored(1.0)

    fake = await environment(slow)
    monkeypatch.setattr(aiohttp.client, "DEFAULT_TIMEOUT", aiohttp.ClientTimeout(total=0.2))
    made = bench(fake.url, 2)
    await made.collect()
    assert made.run.tally.scored == 2


async def test_b110_a_short_limit_stays_one_on_every_attempt(environment: Start, bench: Make) -> None:
    """BUG_CASES B110: 0.2 s, three sessions."""

    async def hang(row: dict[str, Any], request: web.Request) -> web.Response:
        await asyncio.sleep(60)
        return scored(1.0)

    fake = await environment(hang)
    failures: list[dict[str, Any]] = []
    for _ in range(3):
        made = bench(fake.url, 1, task_timeout=0.2)
        async with asyncio.timeout(20):
            await made.collect(and_aggregate=False)
        failures = made.records("failures")
    assert [record["failure_kind"] for record in failures] == ["transport_timeout"] * 3
    assert [record.get("_ng_attempt_index", 0) for record in failures] == [0, 1, 2]
    assert all(0.2 <= record["gymctl_outcome"]["seconds"] < 20 for record in failures)


async def test_b72_a_server_that_is_not_there_is_told_at_once(tmp_path: Path) -> None:
    """BUG_CASES B72: server, URL and reason with the first attempt; given up after 10 s."""
    url = f"http://127.0.0.1:{free_port()}"
    write_rows(tmp_path / "rows.jsonl", 1)
    async with head_of(url) as port:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gymctl", "eval", "--no-serve", "-i", "rows.jsonl", "-o", "out/x.jsonl"),
            f"++head_server.port={port}",
            cwd=tmp_path,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stderr is not None
        try:
            first = (await asyncio.wait_for(process.stderr.readline(), 30)).decode()
        finally:
            process.kill()
            await process.wait()
    assert f"env ({url}) cannot be reached, tried once: GET /readyz" in first
    assert "Cannot connect" in first
    assert UNREACHABLE_SECONDS == 10


async def test_b72_and_given_up_in_time_before_anything_is_written(bench: Make) -> None:
    """BUG_CASES B72: with the name of the server, as an error (exit code 5)."""
    made = bench(f"http://127.0.0.1:{free_port()}", 3, unreachable_seconds=1.0)
    async with asyncio.timeout(30):
        with pytest.raises(ServerError, match="the environment server `env` does not answer") as caught:
            await made.collect()
    assert caught.value.exit_code == 5
    assert not made.run.paths.rollouts.exists()
