"""Little room and large rows: a disk that is full in the middle, lines of 50 MB, and what they cost."""

from __future__ import annotations

import asyncio
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from .conftest import FakeEnvironment, scored, write_rows
from .test_numbers import head_of

Start = Callable[..., Awaitable[FakeEnvironment]]

MEASURE = """\
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)
sys.exit(code)
"""
"""Runs a command; the last line on stdout is the MiB that it took at most."""
SMALL, LARGE = 2000, 8
LARGE_BYTES = 50_000_000


def may_mount() -> bool:
    shell = ["unshare", "-Urm", "mount", "-t", "tmpfs", "-o", "size=1m", "none", "/mnt"]
    return subprocess.run(shell, capture_output=True, check=False).returncode == 0


async def output_of(*command: str, cwd: Path) -> tuple[int | None, str, str]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, cwd=cwd, stdout=pipe, stderr=pipe)
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def test_b105_a_full_disk_keeps_what_is_finished_and_the_rest_is_made_when_there_is_room(
    environment: Start, tmp_path: Path
) -> None:
    """BUG_CASES B105: an output on a file system of 2 MB."""
    if not await asyncio.to_thread(may_mount):
        pytest.skip("this system lets nobody mount a tmpfs in a name space of his own")

    async def wordy(row: dict[str, Any], request: web.Request) -> web.Response:
        return scored(1.0, text="x" * 100_000)

    fake = await environment(wordy)
    write_rows(tmp_path / "rows.jsonl", 40)
    (tmp_path / "out").mkdir()
    async with head_of(fake.url) as port:
        flags = ("--no-serve", "-i", "rows.jsonl", "-o", "out/x.jsonl", f"++head_server.port={port}")
        evaluate = shlex.join([sys.executable, "-m", "gymctl", "eval", *flags, "--json"])
        script = f"""
            mount -t tmpfs -o size=2m none out
            {evaluate} >full.json 2>full.txt; echo $? >full.code
            cp out/x.jsonl kept.jsonl
            mount -o remount,size=9m out
            {evaluate} >whole.json 2>whole.txt; echo $? >whole.code
            cp out/x.jsonl whole.jsonl; cp out/x_aggregate_metrics.json out/x/journal.jsonl .; ls -A out >left
        """
        code, _, err = await output_of("unshare", "-Urm", "sh", "-ec", _lenient(script), cwd=tmp_path)
    assert code == 0, err
    told = (tmp_path / "full.txt").read_text()
    assert (tmp_path / "full.code").read_text() == "6\n", told
    assert "the run cannot be written any further: No space left on device" in told
    assert "out/x" in told
    assert "MB are free in out" in told
    assert "Traceback" not in told
    kept = (tmp_path / "kept.jsonl").read_bytes()
    assert kept.endswith(b"\n")
    assert 10 <= len([json.loads(line) for line in kept.splitlines()]) <= 20
    assert (tmp_path / "whole.code").read_text() == "0\n", (tmp_path / "whole.txt").read_text()
    whole = (tmp_path / "whole.jsonl").read_bytes()
    assert whole.startswith(kept)
    tasks = [json.loads(line)["_ng_task_index"] for line in whole.splitlines()]
    assert sorted(tasks) == list(range(40))
    (entry,) = json.loads((tmp_path / "x_aggregate_metrics.json").read_bytes())
    assert entry["agent_metrics"]["mean/reward"] == 1.0
    left = (tmp_path / "left").read_text().split()
    checks = {"quality_summary.json", "rollout_verdicts.jsonl"}
    assert {*left} - checks == {"x", "x.jsonl", "x_aggregate_metrics.json", "x_materialized_inputs.jsonl"}


def _lenient(script: str) -> str:
    """The exit codes of gymctl are looked at later."""
    return "\n".join(line.strip() for line in script.splitlines()).replace("; echo", " && true; echo")


async def test_b106_large_rows_hold_nobody_up_and_going_on_needs_little_memory(
    environment: Start, tmp_path: Path
) -> None:
    """BUG_CASES B106: rows of 50 MB among 2,000 small ones, then the run of 400 MB is gone on with."""
    page = json.dumps("p" * 10_000)
    pages = ",".join([page] * (LARGE_BYTES // len(page)))
    large = f'{{"reward":1.0,"response":{{"output":[]}},"pages":[{pages}]}}'.encode()
    arrived: list[float] = []
    failing = {SMALL}

    async def script(row: dict[str, Any], request: web.Request) -> web.Response:
        if row["n"] in failing:
            return web.json_response("ValueError('no')", status=500)
        if row["n"] % (SMALL // LARGE) == SMALL // LARGE // 2:
            return web.Response(body=large, content_type="application/json")
        arrived.append(time.monotonic())
        return scored(1.0)

    fake = await environment(script)
    write_rows(tmp_path / "rows.jsonl", SMALL + 1)
    output = tmp_path / "out" / "x.jsonl"
    try:
        async with head_of(fake.url) as port:
            flags = ("--no-serve", "-i", "rows.jsonl", "-o", "out/x.jsonl", f"++head_server.port={port}")
            measured = (sys.executable, "-c", MEASURE, sys.executable, "-m", "gymctl")
            command = (*measured, "eval", *flags, "-q", "++disable_aggregation=true")
            code, _, err = await output_of(*command, cwd=tmp_path)
            assert code == 0, err
            assert output.stat().st_size > LARGE * LARGE_BYTES
            gaps = sorted(after - before for before, after in pairwise(arrived))
            assert len(gaps) > 0.99 * SMALL
            assert gaps[int(0.99 * len(gaps))] < 1.0
            failing.clear()
            arrived.clear()
            code, out, err = await output_of(*command, cwd=tmp_path)
        assert code == 0, err
        assert len(arrived) == 1
        assert int(out.splitlines()[-1]) < 400, "the log asks for 500; 250 were seen"
    finally:
        output.unlink(missing_ok=True)
