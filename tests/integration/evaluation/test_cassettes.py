"""A run is recorded from an upstream that then goes away: what is played back is the same run."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from fakes.contract import until
from fakes.openai_upstream import OpenAIUpstream, Reply
from fakes.program import own_head, processes_below, read_lines

KEY = "sk-planted-in-the-upstream-4711"
WORKERS = "++policy_model.responses_api_models.openai_model.num_workers=2"


def holding_the_key(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]


async def gymctl(folder: Path, *arguments: str) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    fixed = ("eval", "arithmetic", "--runtime", "process", own_head())
    command = (sys.executable, "-m", "gymctl", *fixed, *arguments)
    return await asyncio.create_subprocess_exec(*command, cwd=folder, stdout=pipe, stderr=pipe)


async def ended(process: asyncio.subprocess.Process) -> tuple[int | None, str]:
    out, err = await asyncio.wait_for(process.communicate(), 120)
    return process.returncode, (out + err).decode()


def recording(upstream: OpenAIUpstream, *more: str) -> tuple[str, ...]:
    model = ("--model-type", "openai_model", "--model-url", upstream.url, "--model-api-key", KEY)
    return (*model, "--model", "record:run.cassette:luna", "--limit", "20", "-k", "2", *more)


def rollouts(path: Path) -> dict[tuple[int, int], dict[str, Any]]:
    """By key, without what a clock wrote."""
    found = {}
    for record in read_lines(path):
        record.pop("gymctl_outcome")
        found[record["_ng_task_index"], record["_ng_rollout_index"]] = record
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Any:
    yield tmp_path
    assert processes_below(tmp_path) == []


async def test_a_run_is_the_same_after_its_model_has_gone(folder: Path) -> None:
    async with OpenAIUpstream() as upstream:
        code, said = await ended(await gymctl(folder, *recording(upstream, WORKERS, "-o", "a.jsonl")))
        assert code == 0, said
        assert upstream.posts() == 40
        assert all(asked.json["model"] == "luna" for asked in upstream.asked if asked.method == "POST")
        cassette = (folder / "run.cassette").read_text("utf-8")
        assert "authorization" not in cassette.lower()
        assert holding_the_key(folder) == []

        replay = ("--model", "replay:run.cassette", "--limit", "20", "-k", "2", "-o", "b.jsonl")
        named = ("--model-type", "openai_model", "--model-url", upstream.url)  # which counts who is asked
        code, said = await ended(await gymctl(folder, *replay, *named))
        assert code == 0, said
        connections = len(upstream.asked)
    assert connections == len(upstream.asked) and upstream.posts() == 40
    assert rollouts(folder / "b.jsonl") == rollouts(folder / "a.jsonl")
    assert len(rollouts(folder / "a.jsonl")) == 40

    changed = (
        "--model",
        "replay:run.cassette",
        "--limit",
        "1",
        "-o",
        "c.jsonl",
        "++responses_create_params.top_p=0.5",
    )
    code, said = await ended(await gymctl(folder, *changed))
    assert code == 6
    assert "cassette miss: rollout 0-0" in said and "`top_p` differs" in said


async def test_a_recording_that_was_killed_goes_on(folder: Path) -> None:
    async with OpenAIUpstream() as upstream:
        upstream.plan(*[Reply()] * 4)
        upstream.always = Reply(delay=600)
        killed = await gymctl(folder, *recording(upstream, "-o", "a.jsonl", "--concurrency", "2"))
        await until(lambda: upstream.posts() == 6, 120)
        killed.send_signal(signal.SIGKILL)
        await killed.wait()
        upstream.always = None
        code, said = await ended(await gymctl(folder, *recording(upstream, "-o", "b.jsonl")))
        assert code == 0, said
        assert holding_the_key(folder) == []
        asked = upstream.posts()
    assert asked == 42, "what was answered is not asked again; the two in flight are"
    lines = [json.loads(line) for line in (folder / "run.cassette").read_bytes().splitlines()]
    assert len([line for line in lines if "answer" in line]) == 40
    replay = ("--model", "replay:run.cassette", "--limit", "20", "-k", "2", "-o", "c.jsonl")
    code, said = await ended(await gymctl(folder, *replay))
    assert code == 0, said
    assert rollouts(folder / "c.jsonl") == rollouts(folder / "b.jsonl")
