"""Rollouts for a trainer: records in memory, one by one, or in files alone; against a head over real HTTP."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gymctl.errors import BudgetError, ConfigError, PrerequisiteError, RunError, ServerError
from gymctl.rollouts import collect_rollouts, iter_rollouts, library, run_from_config
from gymctl.rollouts.collect import CollectOptions

from .conftest import FakeEnvironment, Later, scored, table_of, until, write_rows
from .test_numbers import gymctl, head_of

Start = Callable[..., Awaitable[FakeEnvironment]]
PAGE = (Path(__file__).resolve().parents[3] / "docs" / "trainers.md").read_text(encoding="utf-8")
ROWS = [{"responses_create_params": {"input": "x"}, "n": n} for n in range(6)]
BULKY = 200_000


async def by_number(row: dict[str, Any], request: web.Request) -> web.Response:
    if row["n"] == 3:
        return web.json_response({"detail": "no"}, status=500)
    return scored(row["n"] / 10)


@pytest.fixture
async def head(environment: Start) -> AsyncIterator[str]:
    fake = await environment(by_number)
    async with head_of(fake.url) as port:
        yield f"http://127.0.0.1:{port}"


async def test_one_record_for_each_rollout_in_order_failures_among_them(head: str) -> None:
    records = await collect_rollouts(iter(ROWS), servers=head, num_repeats=2)
    assert [(record["_ng_task_index"], record["_ng_rollout_index"]) for record in records] == [
        (task, rollout) for task in range(6) for rollout in range(2)
    ]
    assert [record.get("reward") for record in records[::2]] == [0.0, 0.1, 0.2, None, 0.4, 0.5]
    assert records[6]["_ng_failure_class"] == "agent_run_error"
    assert {record["agent_ref"]["name"] for record in records} == {"desk"}


async def test_a_config_is_run_into_files_and_gone_on_with(
    head: str, environment: Start, tmp_path: Path
) -> None:
    write_rows(tmp_path / "rows.jsonl", 6)
    config = {
        "input_jsonl_fpath": str(tmp_path / "rows.jsonl"),
        "output_jsonl_fpath": str(tmp_path / "out.jsonl"),
        "head_server": {"port": int(head.rpartition(":")[2])},
        "limit": 3,
    }
    records = await run_from_config(config)
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_bytes().splitlines()]
    assert sorted(lines, key=lambda row: row["_ng_task_index"]) == records
    [entry] = json.loads((tmp_path / "out_aggregate_metrics.json").read_bytes())
    assert entry["agent_metrics"]["mean/reward"] == pytest.approx(0.1)
    assert await run_from_config(config) == records  # everything is done: read back
    assert len((tmp_path / "out.jsonl").read_bytes().splitlines()) == 3
    with pytest.raises(RunError, match="made with something else"):
        await run_from_config({**config, "limit": 4})


async def test_records_come_one_by_one_and_a_slow_caller_slows_the_run(environment: Start) -> None:
    """What waits to be taken is bounded."""
    fake = await environment(lambda row, request: by_number({"n": 1}, request))
    rows = [{**ROWS[0], "n": n} for n in range(80)]
    seen = 0
    async with aclosing(
        iter_rollouts(rows, servers=table_of(fake.url), num_samples_in_parallel=4)
    ) as arriving:
        async for record in arriving:
            assert record["reward"] == 0.1
            seen += 1
            await asyncio.sleep(0.01)
            assert len(fake.bodies) <= seen + 12
    assert (seen, len(fake.bodies)) == (80, 80)


async def test_an_iterator_that_is_closed_ends_what_is_running(environment: Start, tmp_path: Path) -> None:
    async def script(row: dict[str, Any], request: web.Request) -> web.Response:
        if row["n"]:
            await asyncio.Event().wait()
        return scored(1.0)

    fake = await environment(script)
    output = tmp_path / "out.jsonl"
    async with aclosing(
        iter_rollouts(ROWS, servers=table_of(fake.url), output_jsonl_fpath=str(output))
    ) as arriving:
        assert (await anext(arriving))["reward"] == 1.0
    await until(lambda: fake.open_calls == 0)

    async def quick(row: dict[str, Any], request: web.Request) -> web.Response:
        return scored(0.5)

    fake.script = quick
    again = iter_rollouts(ROWS, servers=table_of(fake.url), output_jsonl_fpath=str(output))
    assert [record["reward"] async for record in again] == [1.0, *[0.5] * 5]


async def peak_of(rows: list[dict[str, Any]], table: Any, output: Path, **settings: Any) -> tuple[int, int]:
    """The most memory that making the rollouts took, and how many records came back."""
    tracemalloc.start()
    try:
        given = {"output_jsonl_fpath": str(output), "disable_aggregation": True, **settings}
        records = await collect_rollouts(rows, servers=table, num_samples_in_parallel=2, **given)
        return tracemalloc.get_traced_memory()[1], len(records)
    finally:
        tracemalloc.stop()


async def test_without_results_in_memory_nothing_is_kept(environment: Start, tmp_path: Path) -> None:
    """CONTRACT 9.2: 20 MB of records, of which no more than what is in flight is held at once."""

    async def bulky(row: dict[str, Any], request: web.Request) -> web.Response:
        return scored(1.0, text="x" * BULKY)

    fake = await environment(bulky)
    rows = [{**ROWS[0], "n": n} for n in range(100)]
    table = table_of(fake.url)
    lean, none = await peak_of(rows, table, tmp_path / "a.jsonl", retain_results_in_memory=False)
    full, all_ = await peak_of(rows, table, tmp_path / "b.jsonl")
    assert (none, all_) == (0, 100)
    assert full > 100 * BULKY
    assert lean < 25 * BULKY
    assert len((tmp_path / "a.jsonl").read_bytes().splitlines()) == 100


async def test_settings_that_cannot_be_are_refused_by_name(head: str, tmp_path: Path) -> None:
    for settings, what in (
        ({"num_repeat": 2}, "`num_repeat` is no setting"),
        ({"split": "train"}, "`split` is about starting servers"),
        ({"num_repeats": 0}, "`num_repeats._default`: Input should be greater than or equal to 1"),
        ({"agent_name": "nobody"}, "there is no agent `nobody`"),
    ):
        with pytest.raises(ConfigError) as caught:
            await collect_rollouts(ROWS, servers=head, **settings)
        assert what in caught.value.what
    with pytest.raises(ConfigError, match="input_jsonl_fpath, output_jsonl_fpath"):
        await run_from_config({})
    with pytest.raises(PrerequisiteError, match="no running project answers"):
        await collect_rollouts(ROWS, servers="http://127.0.0.1:1")


async def test_rollouts_that_were_not_made_are_an_error(environment: Start, later: Later) -> None:
    async def third_is_late(row: dict[str, Any], request: web.Request) -> web.Response:
        if row["n"] == 2:
            later(50)
        return scored(1.0)

    fake = await environment(third_is_late)
    table = table_of(fake.url)
    budget = {"dispatch_budget_s": 50.0, "num_samples_in_parallel": 1, "drain_margin_s": 0.0}
    got: list[float] = []
    with pytest.raises(BudgetError) as caught:
        async for record in iter_rollouts(ROWS, servers=table, **budget):
            got.append(record["reward"])
    assert got == [1.0] * 3
    assert ": 3 rollouts are still to be made" in caught.value.what


async def test_a_server_that_goes_away_is_an_error_after_what_was_made(
    environment: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def last(row: dict[str, Any], request: web.Request) -> web.Response:
        if row["n"] == 1:
            leaving.append(asyncio.create_task(fake.stop()))
            raise ConnectionResetError
        return scored(1.0)

    leaving: list[asyncio.Task[None]] = []
    fake = await environment(last)
    quick = partial(CollectOptions, unreachable_seconds=2.0, death_notice_seconds=0.1)
    monkeypatch.setattr(library, "CollectOptions", quick)
    got: list[float | None] = []
    with pytest.raises(ServerError, match="the run ended early"):
        async for record in iter_rollouts(ROWS, servers=table_of(fake.url), num_samples_in_parallel=1):
            got.append(record.get("reward"))
    assert got[0] == 1.0
    await leaving[0]


async def test_the_page_is_run_as_it_is_written(head: str, environment: Start, tmp_path: Path) -> None:
    fake = await environment(lambda row, request: by_number({"n": 5}, request))
    [script] = re.findall(r"^```python\n(.*?)^```$", PAGE, re.S | re.M)
    assert "http://127.0.0.1:11000" in script
    async with head_of(fake.url) as port:
        (tmp_path / "trainer.py").write_text(script.replace("127.0.0.1:11000", f"127.0.0.1:{port}"))
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "trainer.py",
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
    assert (process.returncode, err) == (0, b"")
    expected = [f"{task} {rollout} 0.5" for task in range(3) for rollout in range(2)]
    assert out.decode().splitlines() == [*expected, "first: 0.5"]


async def test_a_remote_heads_loopback_is_its_own_machine(tmp_path: Path) -> None:
    """A head elsewhere says 127.0.0.1 of servers beside it: they are dialled where the head is."""
    fake = FakeEnvironment(by_number)
    await fake.start("127.0.0.2")
    try:
        port = fake.url.rpartition(":")[2]
        async with head_of(f"http://127.0.0.1:{port}", "127.0.0.2") as head_port:
            records = await collect_rollouts(ROWS[:2], servers=f"http://127.0.0.2:{head_port}")
            assert [record["reward"] for record in records] == [0.0, 0.1]
            write_rows(tmp_path / "rows.jsonl", 2)
            place = ("++head_server.host=127.0.0.2", f"++head_server.port={head_port}")
            code, _, err = await gymctl(
                tmp_path, "eval", "--no-serve", "-i", "rows.jsonl", "-o", "x.jsonl", *place
            )
        assert code == 0, err
        assert len(fake.aggregated) == 2
        assert len((tmp_path / "x.jsonl").read_bytes().splitlines()) == 2
    finally:
        await fake.stop()


OPEN_FILES = """\
import asyncio, json, logging, resource, sys

soft, hard = map(int, sys.argv[2:4])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
logging.basicConfig()
from gymctl.rollouts import collect_rollouts

rows = [{"responses_create_params": {"input": "x"}, "n": n} for n in range(150)]
made = asyncio.run(collect_rollouts(rows, servers=sys.argv[1], num_samples_in_parallel=150))
print(sum(row.get("reward", 0) for row in made), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.parametrize(
    ("limits", "raised", "most"),
    [(("128", "4096"), 556, 150), (("96", "128"), 128, 48)],
    ids=["is raised", "bounds the rollouts"],
)
async def test_the_limit_of_open_files(
    environment: Start, limits: tuple[str, str], raised: int, most: int
) -> None:
    async def held(row: dict[str, Any], request: web.Request) -> web.Response:
        if fake.open_calls >= most:
            full.set()
        async with asyncio.timeout(60):
            await full.wait()
        return scored(1.0)

    full = asyncio.Event()
    fake = await environment(held)
    async with head_of(fake.url) as port:
        pipe = asyncio.subprocess.PIPE
        command = (sys.executable, "-c", OPEN_FILES, f"http://127.0.0.1:{port}", *limits)
        process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
        out, err = await process.communicate()
    assert out.split() == [b"150.0", str(raised).encode()], err.decode()
    assert fake.most_open == most
    assert (b"rollouts at once, not 150" in err) is (most < 150)
