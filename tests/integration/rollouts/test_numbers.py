"""Numbers over real HTTP: what a run prints, what its files say, and what must never look like a score."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from gymctl.metrics.declared import Declaration
from gymctl.rollouts.measured import Wanted, measure
from gymctl.rollouts.metric_input import Counting
from gymctl.rollouts.saved import SavedRun
from gymctl.transport import Transport

from .conftest import Bench, FakeEnvironment, Later, scored, table_of, write_rows
from .test_collect import hundred_outcomes, limit_struck

Start = Callable[..., Awaitable[FakeEnvironment]]
Make = Callable[..., Bench]


async def test_the_files_of_a_hundred_outcomes_give_the_numbers_of_the_run(
    environment: Start, bench: Make, later: Later
) -> None:
    """BUG_CASES B100: the same digits from the files, also when their lines are shuffled."""
    fake = await environment(hundred_outcomes)
    made = bench(fake.url, 100, task_timeout=50)
    await limit_struck(made.collect(), made, later)
    live, paths = made.run.tally, made.run.paths
    for path in (paths.rollouts, paths.failures):
        lines = path.read_bytes().splitlines(keepends=True)
        random.Random(1).shuffle(lines)
        path.write_bytes(b"".join(lines))
    again = measure([SavedRun(paths)], Wanted()).tally
    assert again.headline() == live.headline()
    assert (again.failed, again.zeros, again.limited) == (live.failed, live.zeros, live.limited)
    assert again.reasons == live.reasons
    assert (again.input_tokens, again.output_tokens) == (live.input_tokens, live.output_tokens)


async def test_declared_failures_count_as_zero_in_the_headline_and_in_the_metrics_file(
    environment: Start, bench: Make, later: Later
) -> None:
    """60 right and 4 half right of 84; 4 of the model and 1 of the judge count as wrong: 62 of 89."""
    declared = Declaration({"model": "zero"}, frozenset({"judge_failed"}))
    fake = await environment(hundred_outcomes)
    made = bench(fake.url, 100, declared=declared, task_timeout=50)
    async with Transport() as transport:
        collecting = made.run.collect(transport, made.table, made.options, made.drain)
        await limit_struck(collecting, made, later)
        await made.run.aggregate(transport, made.table, Counting(declared))
        made.run.close()
    tally = made.run.tally
    head = tally.headline()
    assert (tally.scored, dict(tally.zeros), tally.failed.total()) == (89, {"model": 4, "verifier": 1}, 11)
    assert head.mean == pytest.approx(62 / 89)
    assert head.coverage == 0.89
    assert head.bounds == (pytest.approx(0.62), pytest.approx(0.73))
    (entry,) = json.loads(made.run.paths.aggregate.read_bytes())
    assert entry["agent_metrics"]["mean/reward"] == pytest.approx(62 / 89)
    assert len(fake.aggregated) == 90  # the one without a reward is a row, too
    again = measure([SavedRun(made.run.paths)], Wanted()).tally
    assert (again.headline(), again.zeros) == (head, tally.zeros)


async def test_a_judge_that_is_down_is_counted_apart_from_the_score(environment: Start, bench: Make) -> None:
    """BUG_CASES B108: the judge fails for 3 of 10; none of them is a 0, in no number."""

    async def judged(row: dict[str, Any], request: web.Request) -> web.Response:
        if row["n"] < 3:
            return scored(
                0.0, mask_sample=True, failure_kind="judge_failed", _ng_failure_class="judge_failed"
            )
        return scored(1.0)

    made = bench((await environment(judged)).url, 10)
    await made.collect()
    assert (made.run.tally.headline().mean, dict(made.run.tally.failed)) == (1.0, {"verifier": 3})
    (entry,) = json.loads(made.run.paths.aggregate.read_bytes())
    assert entry["agent_metrics"]["mean/reward"] == entry["agent_metrics"]["min/reward"] == 1.0
    assert len(made.records("failures")) == 3


@asynccontextmanager
async def head_of(url: str, host: str = "127.0.0.1") -> AsyncIterator[int]:
    """The port of a head that tells of an environment server at `url` and its agent."""
    document: dict[str, Any] = {}
    for entry in table_of(url).servers.values():
        kinds = ("resources_servers", "responses_api_models", "responses_api_agents")
        references = {
            f"{key}": {
                "type": next(kind for kind in kinds if table_of(url)[name].address.kind == kind),
                "name": name,
            }
            for key, name in entry.references.items()
        }
        block = {"entrypoint": "app.py", "host": entry.address.host, "port": entry.address.port, **references}
        document[entry.name] = {entry.address.kind: {entry.address.implementation: block}}

    async def config(request: web.Request) -> web.Response:
        return web.json_response(yaml.safe_dump(document))

    app = web.Application()
    app.router.add_get("/global_config_dict_yaml", config)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, host, 0).start()
    yield runner.addresses[0][1]
    await runner.cleanup()


async def gymctl(folder: Path, *arguments: str) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "gymctl",
        *arguments,
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def evaluate(folder: Path, fake: FakeEnvironment, rows: int, *more: str) -> tuple[int | None, str, str]:
    write_rows(folder / "rows.jsonl", rows)
    async with head_of(fake.url) as port:
        flags = ("--no-serve", "-i", "rows.jsonl", "-o", "out/x.jsonl", f"++head_server.port={port}")
        return await gymctl(folder, "eval", *flags, *more)


async def test_shards_are_aggregated_by_the_running_servers(environment: Start, tmp_path: Path) -> None:
    """BUG_CASES B113: failures, inputs and the merged file are no shards, however often it is done."""

    async def script(row: dict[str, Any], request: web.Request) -> web.Response:
        return scored(1.0) if row["n"] != 2 else web.json_response("ValueError('no')", status=500)

    fake = await environment(script)
    for name, first in (("s0", 0), ("s1", 5)):
        write_rows(tmp_path / "rows.jsonl", 5, _ng_first=first)
        rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
        lines = (json.dumps({**row, "_ng_task_index": first + row["n"]}) for row in rows)
        (tmp_path / "rows.jsonl").write_text("\n".join(lines))
        async with head_of(fake.url) as port:
            flags = (
                "--no-serve",
                "-i",
                "rows.jsonl",
                "-o",
                f"out/{name}.jsonl",
                f"++head_server.port={port}",
            )
            code, _, err = await gymctl(tmp_path, "eval", *flags, "--min-coverage", "0.5")
            assert code == 0, err
    foreign = tmp_path / "out" / "s1.jsonl"  # as another program writes it
    foreign.write_text(foreign.read_text().replace('"_ng_environment_server":"env",', ""))
    assert "_ng_environment_server" not in foreign.read_text()
    for folder in ("new", "out", "out"):
        async with head_of(fake.url) as port:
            head = f"http://127.0.0.1:{port}"
            flags = ("--aggregate", f"{folder}/all.jsonl", "--head", head, "--zero", "agent_run_error")
            code, out, err = await gymctl(tmp_path, "metrics", "out/*.jsonl", *flags)
        assert code == 0, err
        assert json.loads(out) == [{"agent_ref": {"name": "desk"}, **_means(0.8)}]
        merged = [json.loads(line) for line in (tmp_path / folder / "all.jsonl").read_text().splitlines()]
        assert [row["_ng_task_index"] for row in merged] == [0, 1, 3, 4, 5, 6, 8, 9]
        assert len(fake.aggregated) == 10


def _means(reward: float) -> dict[str, float]:
    usage = {"input_tokens": 10.0, "output_tokens": 2.0, "total_tokens": 12.0}
    return {"mean/reward": reward, **{f"mean/{name}": value for name, value in usage.items()}}


async def half_fail(row: dict[str, Any], request: web.Request) -> web.Response:
    return scored(1.0) if row["n"] % 2 else web.json_response("ValueError('no')", status=500)


async def no_image(row: dict[str, Any], request: web.Request) -> web.Response:
    """The sandbox of all tasks but the first needs an image that nobody can pull."""
    return (
        scored(1.0) if row["n"] == 0 else web.json_response("pull access denied for task-image", status=500)
    )


@pytest.mark.parametrize("script", [half_fail, no_image])
async def test_what_misleads_elsewhere_exits_6_and_never_prints_a_perfect_score(
    environment: Start, tmp_path: Path, script: Any
) -> None:
    code, out, err = await evaluate(tmp_path, await environment(script), 10)
    assert code == 6, err
    reward = next(line for line in out.splitlines() if line.startswith(" reward"))
    assert reward.endswith("coverage is under 95%: no single number")
    assert reward.split()[1] != "1.000"
    assert "failed" in out
    code, out, err = await gymctl(tmp_path, "metrics", "out/x.jsonl", "--json")
    assert code == 6, err
    assert json.loads(out)["reward"] is None


async def test_metrics_prints_what_eval_printed(environment: Start, tmp_path: Path) -> None:
    """BUG_CASES B100, as two commands: only title, clock and health checks may differ."""

    async def uneven(row: dict[str, Any], request: web.Request) -> web.Response:
        n, rollout = row["n"], row["_ng_rollout_index"]
        if n == 3 and rollout == 1:
            return web.json_response("ValueError('no')", status=500)
        return scored((n * 7 + rollout * 3) % 11 / 10, parts={"format": 1, "answer": rollout})

    code, out, err = await evaluate(tmp_path, await environment(uneven), 12, "-k", "3", "--json")
    assert code == 0, err
    code, again, err = await gymctl(tmp_path, "metrics", "@last", "--json")
    assert code == 0, err
    first, second = json.loads(out), json.loads(again)
    differing = {key for key in first if key != "files" and first[key] != second[key]}
    assert differing <= {"title", "seconds", "health"}

    code, out, err = await gymctl(tmp_path, "metrics", "x", "--by", "task", "--columns")
    assert code == 0, err
    assert "TASK  SCORED" in out
    assert "parts/answer" in out
    row = next(line.split() for line in out.splitlines() if line.startswith("   3  2 of 3"))
    assert row == ["3", "2", "of", "3", "0.750", "0.354", "0.500", "1.000", "1", "0.5"]
    code, out, err = await gymctl(tmp_path, "metrics", "out/*.jsonl", "-k", "2", "--by", "n")
    assert code == 0, err
    assert "pass@2" in out
    assert "pass^2" in out
    assert " N  TASKS" in out
