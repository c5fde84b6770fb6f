"""Servers as processes with an upstream of the test's own: what is left of a rollout whose client gave up,
and how the log lines of a rollout are found."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fakes.openai_upstream import OpenAIUpstream, Reply
from fakes.program import processes_below, read_lines

from gymctl.servers.stack import idempotency

APP = """\
from pathlib import Path

from gymctl.servers import ResourcesConfig, ResourcesServer, SessionState, VerifyRequest


class Config(ResourcesConfig):
    notes: str


class Note(SessionState):
    path: Path | None = None

    async def close(self) -> None:
        if self.path is not None:
            self.path.unlink()


class Notes(ResourcesServer):
    config: Config

    async def seed(self, note: Note) -> None:
        note.path = Path(self.config.notes) / str(id(note))
        note.path.touch()

    async def verify(self, request: VerifyRequest, note: Note):
        return request.scored(reward=1.0)


app = Notes.app()
"""
ROLLOUTS = 4
SECONDS = 30
"""B65: until nothing works any more for a client that is gone. It asks for 5 s, `LINGER` among them;
what they wait for would take 90."""


@dataclass
class Project:
    folder: Path
    upstream: OpenAIUpstream
    head: str

    @property
    def open_sessions(self) -> int:
        return len(list((self.folder / "sessions").iterdir()))

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        command = [sys.executable, "-m", "gymctl", *arguments]
        return await asyncio.create_subprocess_exec(*command, cwd=self.folder, stdout=pipe, stderr=pipe)

    async def run(self, *arguments: str) -> tuple[int | None, str]:
        process = await self.start(*arguments)
        out, err = await asyncio.wait_for(process.communicate(), 90)
        return process.returncode, (out + err).decode()

    async def evaluate(self, *arguments: str) -> asyncio.subprocess.Process:
        asked = ("--no-serve", "-i", "rows.jsonl", "-o", "x.jsonl", self.head, "--concurrency", str(ROLLOUTS))
        return await self.start("eval", *asked, *arguments)


def config(folder: Path, url: str) -> dict[str, Any]:
    def ref(kind: str, name: str) -> dict[str, str]:
        return {"type": kind, "name": name}

    model = {"openai_base_url": url, "openai_api_key": "k", "openai_model": "m"}
    agent = {
        "resources_server": ref("resources_servers", "notes"),
        "model_server": ref("responses_api_models", "policy_model"),
    }
    notes = {"domain": "other", "notes": str(folder / "sessions")}
    blocks = {
        "notes": ("resources_servers", "notes", notes),
        "desk": ("responses_api_agents", "simple_agent", agent),
        "policy_model": ("responses_api_models", "openai_model", model),
    }
    return {
        name: {kind: {of: {"entrypoint": "app.py", **block}}} for name, (kind, of, block) in blocks.items()
    }


@pytest.fixture
async def project(tmp_path: Path) -> AsyncIterator[Project]:
    server = tmp_path / "resources_servers" / "notes"
    server.mkdir(parents=True)
    (tmp_path / "sessions").mkdir()
    (server / "app.py").write_text(APP)
    (server / "requirements.txt").write_text("")
    row = {"responses_create_params": {"input": "Hello?"}, "agent_ref": {"name": "desk"}}
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row | {"n": n}) + "\n" for n in range(ROLLOUTS)))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        head = f"++head_server.port={probe.getsockname()[1]}"
    async with OpenAIUpstream() as upstream:
        (tmp_path / "notes.yaml").write_text(json.dumps(config(tmp_path, upstream.url)))
        made = Project(tmp_path, upstream, head)
        try:
            code, said = await made.run("up", "notes.yaml", "-d", "--runtime", "process", head)
            assert code == 0, said
            yield made
        finally:
            await made.run("down")
    assert processes_below(tmp_path) == []


async def comes_true(condition: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        await asyncio.sleep(0.05)
    return condition()


async def test_b65_nothing_works_on_for_a_client_that_gave_up(project: Project) -> None:
    upstream = project.upstream
    upstream.always = Reply(delay=90)

    killed = await project.evaluate()
    assert await comes_true(lambda: upstream.in_flight == ROLLOUTS, 60)
    assert idempotency.LINGER <= 3
    assert project.open_sessions == ROLLOUTS
    killed.send_signal(signal.SIGKILL)
    await killed.communicate()
    assert await comes_true(lambda: upstream.in_flight == 0 and project.open_sessions == 0, SECONDS)

    asked = upstream.posts()
    limited = await project.evaluate("--task-timeout", "12")
    await asyncio.wait_for(limited.communicate(), 90)
    assert await comes_true(lambda: upstream.in_flight == 0 and project.open_sessions == 0, SECONDS)
    assert upstream.posts() == asked + ROLLOUTS, "and nobody asks again"
    failures = read_lines(project.folder / "x_failures.jsonl")
    assert [record["_ng_failure_type"] for record in failures] == ["TimeoutError"] * ROLLOUTS


async def test_b66_a_rollout_is_found_in_the_log_of_every_server_that_it_touched(project: Project) -> None:
    project.upstream.plan(Reply(400), Reply(400))
    process = await project.evaluate()
    await asyncio.wait_for(process.communicate(), 60)
    scored, failed = (read_lines(project.folder / name) for name in ("x.jsonl", "x_failures.jsonl"))
    assert (len(scored), len(failed)) == (2, 2)
    assert {record["_ng_environment_server"] for record in scored + failed} == {"desk_environment_server"}

    code, log = await project.run("logs")
    assert code == 0, log
    for record in scored:
        assert servers_that_tell_of(record, log) >= {"notes"}
    for record in failed:
        all_servers = {"notes", "desk", "policy_model", "desk_environment_server"}
        assert servers_that_tell_of(record, log) == all_servers
    sessions = re.findall(r"^notes +INFO rollout (\d-0): session ([0-9a-f-]{36}) begins$", log, re.MULTILINE)
    assert {rollout for rollout, _ in sessions} == {record["gymctl_rollout_id"] for record in scored + failed}
    assert len({session for _, session in sessions}) == ROLLOUTS


def servers_that_tell_of(record: dict[str, Any], log: str) -> set[str]:
    mark = f" rollout {record['gymctl_rollout_id']}: "
    return {line.split()[0] for line in log.splitlines() if mark in line}
