"""One NeMo Gym server, as a user would run it: up in containers, recorded rollouts judged, rows run, down."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from peer import setup
from peer.deviations import RECORDED_WITH
from peer.recorded import Json, lines, rollouts, same_prompt, scripted, tasks, turns
from peer.replay import Judged, judge_all
from peer.setup import Impossible, Setup

ROWS = 5
UP_SECONDS = 1500
READY_SECONDS = 420
EVAL_SECONDS = 600
REPOSITORIES = ("gymctl/resources-", "gymctl/agent-")


@dataclass(slots=True)
class Rows:
    """What came of the example rows through one agent."""

    agent: str
    asked: int = 0
    scored: int = 0
    equal: int = 0
    """Rewards equal to the recorded one, of the rows whose script is a recorded rollout."""
    comparable: int = 0
    reason: str = ""


@dataclass(slots=True)
class Result:
    """One line of the table, and what stands behind it."""

    server: str
    needs: list[str] = field(default_factory=list)
    built: bool | None = None
    """None: not tried."""
    started: bool | None = None
    recorded: int = 0
    """Recorded rollouts that hold a reward and something to judge."""
    equal: int = 0
    different: list[Json] = field(default_factory=list)
    theirs: Rows | None = None
    ours: Rows | None = None
    config: str = ""
    note: str = ""
    seconds: float = 0.0


def try_server(root: Path, name: str, work: Path, needs: Sequence[str]) -> Result:
    """Whatever happens is in the result; nothing is left running, and the image of the server is removed."""
    began = time.monotonic()
    result = Result(name, list(needs))
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    roots = (str(setup.link_ours(work / "ours")), str(root))
    server = root / setup.KIND / name
    try:
        _tried(server, work, roots, result)
    except Impossible as error:
        result.note = str(error)
    except subprocess.TimeoutExpired as error:
        result.note = f"`gymctl {error.cmd[3]}` took longer than {error.timeout:.0f} s"
    result.seconds = round(time.monotonic() - began, 1)
    return result


def _tried(server: Path, work: Path, roots: tuple[str, ...], result: Result) -> None:
    try:
        chosen = setup.own(server, roots, work)
    except Impossible:
        chosen = setup.reduced(server, work)
    result.config = chosen.note
    project = Project(f"peer-{re.sub(r'[^a-z0-9]+', '-', server.name.lower())}"[:50], work, roots)
    try:
        project.up(chosen, result)
        if result.started:
            _measure(server, work, project, chosen, result)
    finally:
        project.down(server.name)


def _measure(server: Path, work: Path, project: Project, chosen: Setup, result: Result) -> None:
    known = rollouts(server / "data")
    url = project.urls()[chosen.server]
    judged = judge_all(url, known)
    result.recorded, result.equal = len(judged), sum(one.is_equal for one in judged)
    result.different = [_difference(one) for one in judged if not one.is_equal]
    rows = tasks(server / "data")[:ROWS]
    matches = [same_prompt(row, known) for row in rows]
    asked = [
        scripted(row, turns(found.output) if found else []) for row, found in zip(rows, matches, strict=True)
    ]
    rewards = [found.reward if found else None for found in matches]
    if chosen.theirs is not None:
        result.theirs = project.run(chosen.theirs, chosen.their_implementation, asked, rewards, work)
    result.ours = project.run(chosen.ours, f"our {chosen.their_implementation}", asked, rewards, work)


def _difference(one: Judged) -> Json:
    return {"row": one.recorded.row, "recorded": one.recorded.reward, "now": one.reward, "reason": one.reason}


class Project:
    """`gymctl` in a folder of its own."""

    def __init__(self, name: str, folder: Path, roots: Sequence[str]) -> None:
        self._name = name
        self._folder = folder
        self._roots = [part for root in roots for part in ("--search-dir", root)]
        self._head = setup.free_port()

    def up(self, chosen: Setup, result: Result) -> None:
        server = result.server
        words = ("--project", self._name, f"++head_server.port={self._head}", "--wait", str(READY_SECONDS))
        words += RECORDED_WITH.get(server, ())
        words += ("--allow-unsupported-pairing",)  # `gymctl_simple_agent` is on nobody's list
        done = self._gymctl("up", "--detach", *self._roots, *chosen.arguments, *words, seconds=UP_SECONDS)
        (self._folder / "up.log").write_text(done.stderr + done.stdout, "utf-8")
        result.built = result.started = done.returncode == 0
        if done.returncode != 0:
            result.built = "not build" not in done.stderr and done.returncode in (4, 5)
            result.note = _reason(done.stderr)

    def urls(self) -> dict[str, str]:
        return {one["server"]: one["url"] for one in self._servers()}

    def run(
        self,
        agent: str,
        implementation: str,
        rows: Sequence[Json],
        rewards: Sequence[float | None],
        work: Path,
    ) -> Rows:
        """The rows through one agent, as `gymctl eval` does it."""
        rows_file, out = work / "rows.jsonl", work / f"{agent}.jsonl"
        # Numbered here: gymctl takes equal rows for one task.
        numbered = [
            {**row, "_ng_task_index": index, "agent_ref": {"name": agent}} for index, row in enumerate(rows)
        ]
        rows_file.write_text("".join(json.dumps(row) + "\n" for row in numbered), "utf-8")
        words = ("--no-serve", f"++head_server.port={self._head}", "-i", rows_file, "-o", out, "-a", agent)
        words += ("--allow-unsupported-pairing", "--retry", "none", "--min-coverage", "0")
        done = self._gymctl("eval", *words, seconds=EVAL_SECONDS)
        (work / f"{agent}.log").write_text(done.stderr + done.stdout, "utf-8")
        found = {one.get("_ng_task_index"): one.get("reward") for one in lines(out)}
        told = [(found.get(index), reward) for index, reward in enumerate(rewards) if reward is not None]
        equal = sum(got is not None and abs(got - reward) <= 1e-9 for got, reward in told)
        counts = Rows(implementation, len(rows), len(found), equal, len(told))
        if counts.scored < counts.asked:
            counts.reason = _failure(out) or _reason(done.stderr)
        return counts

    def down(self, server: str) -> None:
        """Images of the server and of rare agents go; the family base and what all share stay."""
        images = {one["image"] for one in self._servers() if one["kind"] == setup.KIND}
        self._gymctl("down", self._name, seconds=300)
        for image in images - {None, ""}:
            subprocess.run(["docker", "image", "rm", image], capture_output=True, check=False)

    def _servers(self) -> list[Json]:
        done = self._gymctl("ps", self._name, "--json", seconds=120)
        try:
            found = json.loads(done.stdout)
        except ValueError:
            return []
        return found[0]["servers"] if isinstance(found, list) and found else []

    def _gymctl(self, *words: str | Path, seconds: float) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "gymctl", *map(str, words)]
        return subprocess.run(
            command, cwd=self._folder, capture_output=True, text=True, timeout=seconds, check=False
        )


def _reason(told: str) -> str:
    """The error and the last thing that a log or a build said, in one line without this machine's folders."""
    words = [
        re.sub(r"(?<![\w:/])/(?:[\w.@+-]+/)+", "", line.strip()) for line in told.splitlines() if line.strip()
    ]
    start = next((index for index, line in enumerate(words) if line.startswith("error:")), None)
    if start is None:
        return " ".join(words[-1:])[:300]
    details = [line for line in words[start + 1 :] if not line.startswith(("-->", "hint:"))]
    telling = [line for line in details if re.match(r"(\w+\.)*\w*(Error|Exception)\b", line)] or details
    return " · ".join([words[start].removeprefix("error: "), *telling[-1:]])[:300]


def _failure(out: Path) -> str:
    for one in lines(out.with_name(f"{out.stem}_failures.jsonl")):
        return str((one.get("gymctl_outcome") or {}).get("reason") or one.get("_ng_failure_message"))[:200]
    return ""
