"""A resources server of the test's own, evaluated by real processes: it dies at the worst moment, and its
rows are as large as rows get."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from fakes.contract import free_port
from fakes.program import gymctl, processes_below, read_lines

APP = """\
import asyncio
import os
from pathlib import Path

from gymctl.servers import ResourcesConfig, ResourcesServer, SessionState, VerifyRequest, VerifyResponse, tool


class Config(ResourcesConfig):
    folder: str


class Ledger(SessionState):
    entries: int = 0


class Check(VerifyRequest):
    entries: int
    pad: list[str] = []


class Checked(VerifyResponse):
    seen: int
    pad: list[str]


class Ledgers(ResourcesServer):
    config: Config

    @tool
    async def enter(self, ledger: Ledger) -> int:
        '''Make an entry.'''
        ledger.entries += 1
        fatal = Path(self.config.folder) / "fatal"
        if ledger.entries == 2 and fatal.exists():
            fatal.unlink()
            asyncio.get_running_loop().call_later(0.1, os._exit, 1)
        return ledger.entries

    async def verify(self, request: Check, ledger: Ledger) -> Checked:
        reward = float(ledger.entries == request.entries)
        return Checked.of(request, reward=reward, seen=ledger.entries, pad=request.pad)


app = Ledgers.app()
"""
TOOL = {
    "type": "function",
    "name": "enter",
    "description": "Make an entry.",
    "parameters": {"type": "object", "properties": {}},
    "strict": False,
}
SCRIPT = [{"calls": [{"name": "enter"}]}, {"calls": [{"name": "enter"}]}, "done"]


def row(number: int, **more: Any) -> dict[str, Any]:
    params = {
        "input": [{"role": "user", "content": f"Make two entries, {number}."}],
        "tools": [TOOL],
        "metadata": {"script": json.dumps(SCRIPT)},
    }
    return {"responses_create_params": params, "agent_ref": {"name": "desk"}, "entries": 2, **more}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    server = tmp_path / "resources_servers" / "ledgers"
    server.mkdir(parents=True)
    (server / "app.py").write_text(APP)
    (server / "requirements.txt").write_text("")
    agent = {
        "resources_server": {"type": "resources_servers", "name": "ledgers"},
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
    }
    blocks = {
        "ledgers": ("resources_servers", "ledgers", {"domain": "other", "folder": str(tmp_path)}),
        "desk": ("responses_api_agents", "simple_agent", agent),
        "policy_model": ("responses_api_models", "scripted_model", {"faults": {"latency_ms": 400}}),
    }
    document = {
        name: {kind: {of: {"entrypoint": "app.py", **block}}} for name, (kind, of, block) in blocks.items()
    }
    (tmp_path / "ledgers.yaml").write_text(json.dumps(document))
    return tmp_path


def evaluate(folder: Path, rows: list[dict[str, Any]], *more: str) -> subprocess.CompletedProcess[str]:
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    head = f"++head_server.port={free_port()}"
    flags = ("--runtime", "process", "-i", "rows.jsonl", "-o", "x.jsonl", "--json", head)
    return gymctl("eval", "ledgers.yaml", *flags, *more, cwd=folder)


def test_b108_a_rollout_whose_verifier_died_is_made_again_from_its_start(folder: Path) -> None:
    """BUG_CASES B108: it dies between the last tool call and `/verify`; no 0 is stored, nothing is verified
    against another world."""
    (folder / "fatal").touch()
    rows = [row(number) for number in range(4)]
    died = evaluate(folder, rows, "--concurrency", "2")
    assert died.returncode == 5, died.stderr
    assert "`ledgers` stopped (exit 1)" in died.stderr
    failures = read_lines(folder / "x_failures.jsonl")
    assert 1 <= len(failures) <= 2
    for failure in failures:
        assert failure["gymctl_outcome"]["failure"] == "infrastructure"
        assert failure["_ng_failure_server"] == "ledgers"
        assert "reward" not in failure
    assert [record["reward"] for record in read_lines(folder / "x.jsonl")] in ([], [1.0])

    whole = evaluate(folder, rows, "--concurrency", "2")
    assert whole.returncode == 0, whole.stderr
    result = json.loads(whole.stdout)
    assert (result["reward"], result["coverage"]) == (1.0, 1.0)
    records = {record["_ng_task_index"]: record for record in read_lines(folder / "x.jsonl")}
    assert {task: record["seen"] for task, record in records.items()} == dict.fromkeys(range(4), 2)
    for failure in failures:
        assert records[failure["_ng_task_index"]]["_ng_attempt_index"] == 1
    assert processes_below(folder) == []


def test_rows_of_64_mib_go_both_ways(folder: Path) -> None:
    """A row of 64 MiB to the environment, and a record of that size back."""
    pad = ["p" * 65_536] * 1024
    done = evaluate(folder, [row(0, pad=pad), row(1)])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["reward"] == 1.0
    try:
        large = next(row for row in read_lines(folder / "x.jsonl") if row["_ng_task_index"] == 0)
        assert large["pad"] == pad
    finally:
        for name in ("rows.jsonl", "x.jsonl", "x_materialized_inputs.jsonl"):
            (folder / name).unlink()
