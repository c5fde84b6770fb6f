"""An evaluation that is struck down again and again, at points drawn from a seed, and gone on with.

    ordeal = Ordeal(folder, ["eval", …, "-o", "x.jsonl"], rollouts=500, seed=1)
    ordeal.strike([kill_client, kill_server(random), …])   # each one in a session of its own
    result = ordeal.finish()                               # the last session, left alone
    whole(ordeal.output)                                   # what must hold whatever was struck

A blow is a function that gets the running client and the folder, and after which the client ends, by the blow
or by itself. `strike` waits until the session has made some rollouts (or, now and then, for a moment of its
start), delivers the blow, and waits for that end.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fakes.counting import expected
from fakes.own_engine import OwnEngine
from fakes.program import read_lines

from gymctl.paths import RunPaths
from gymctl.runtime import keeper

Blow = Callable[["subprocess.Popen[str]", Path], None]
SESSION_SECONDS = 180.0
EARLY = 0.15
"""Share of blows that fall while the servers start."""
MISSED = 8
"""More rollouts than were in flight have ended after a blow: it struck nothing that matters."""
HEAD = "head"
BEGUN, ENDED = b'"event":"begin"', b'"event":"ended"'
ATTEMPTS = {"NEMO_GYM_MAX_ROLLOUT_ATTEMPTS": "1000"}
"""Each server that dies costs the rollouts in flight an attempt; none may run out of them here."""


def kill_client(client: subprocess.Popen[str], folder: Path) -> None:
    """`kill -9` of the program that the user started."""
    client.kill()


def kill_server(draw: random.Random) -> Blow:
    """`kill -9` of one server's process."""

    def blow(client: subprocess.Popen[str], folder: Path) -> None:
        found = [row for parts in folder.glob(".gymctl/*/parts") for row in keeper.find(parts.resolve())]
        if not found:
            client.kill()  # it has not come so far
            return
        row = draw.choice(sorted(found, key=lambda row: (row.service, row.pid)))
        with suppress(ProcessLookupError):
            os.kill(row.pid, signal.SIGKILL)
        _also_the_client(client, row.service)

    return blow


def kill_container(draw: random.Random, *, with_client: bool = False) -> Blow:
    """`docker kill` of one container of the folder's project; `with_client`: of both in the same moment."""

    def blow(client: subprocess.Popen[str], folder: Path) -> None:
        found = sorted(name for name in things(folder, "ps", "{{.Names}}"))
        if with_client or not found:
            client.kill()
        if found:
            name = draw.choice(found)
            subprocess.run(["docker", "kill", name], capture_output=True, check=False)
            _also_the_client(client, name.rsplit("-", 2)[-2])

    return blow


def restart_engine(engine: OwnEngine, is_killed: bool) -> Blow:
    """The engine ends, by SIGTERM or SIGKILL, and comes back. Containers outlive one that is killed until it
    is there again, and the rollouts go on: the client is killed, too, before all of them are made."""

    def blow(client: subprocess.Popen[str], folder: Path) -> None:
        if not is_killed:
            engine.restart()
            return
        engine.stop(signal.SIGKILL)
        time.sleep(0.5)
        client.kill()
        engine.start()

    return blow


def _also_the_client(client: subprocess.Popen[str], service: str) -> None:
    """Rollouts do not need the head: without it they go on, and its death alone ends no session."""
    if service == HEAD:
        time.sleep(0.1)
        client.kill()


def things(folder: Path, *command: str) -> list[str]:
    """What the engine lists for the projects of a folder: `things(folder, "ps", "{{.Names}}")`."""
    *listing, shape = command
    found: list[str] = []
    for path in folder.glob(".gymctl/*/"):
        label = f"label=dev.gymctl.project={path.name}"
        words = ["docker", *listing, "--filter", label, "--format", shape]
        found += subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    return found


def left_over(folder: Path) -> list[str]:
    """Containers, networks and volumes of a folder's projects."""
    return [
        *things(folder, "ps", "-a", "{{.Names}}"),
        *things(folder, "network", "ls", "{{.Name}}"),
        *things(folder, "volume", "ls", "{{.Name}}"),
    ]


@dataclass
class Ordeal:
    """One run, whatever happens to it."""

    folder: Path
    arguments: Sequence[str]
    rollouts: int
    seed: int = 0
    prefix: Sequence[str] = ()
    """Before the command, for a client that runs in a network of its own."""
    talks: list[str] = field(default_factory=list)
    """What each session said on stderr."""

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        named = self.arguments[list(self.arguments).index("-o") + 1]
        self.output = self.folder / named

    def strike(self, blows: Sequence[Blow]) -> None:
        """One session for each blow. AssertionError when a session ends by itself before its blow, or an
        unexpected way after it."""
        for number, blow in enumerate(blows):
            begun, ended = self._count(BEGUN), self._count(ENDED)
            owed = self.rollouts - self._made()
            assert owed, f"{self._where(number)}: nothing is left to be made"
            client = self._start()
            if self._random.random() < EARLY:
                time.sleep(self._random.uniform(0, 2.0))
            else:
                share = owed // (len(blows) - number + 1)
                self._wait_for(BEGUN, begun + 1, client, number)
                self._wait_for(ENDED, ended + self._random.randint(0, share), client, number)
                time.sleep(self._random.uniform(0, 0.05))
            assert client.poll() is None, f"{self._where(number)}: ended before it: {self._talk(client)}"
            blow(client, self.folder)
            self._see_it_end(client, blow)
            talk = self._talk(client)
            # At the beginning of a line it is the client's own; servers are quoted.
            assert "\nTraceback" not in f"\n{talk}", f"{self._where(number)}: {talk}"

    def finish(self) -> dict[str, Any]:
        """The last session: the result that it prints."""
        client = self._start()
        out, talk = client.communicate(timeout=SESSION_SECONDS)
        self.talks.append(talk)
        assert client.returncode == 0, f"{self._where(None)}: {talk}"
        return json.loads(out)

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self.prefix, sys.executable, "-m", "gymctl", *self.arguments],
            cwd=self.folder,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **ATTEMPTS},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _where(self, number: int | None) -> str:
        return f"seed {self.seed}, {'the last session' if number is None else f'blow {number}'}"

    def _made(self) -> int:
        return self.output.read_bytes().count(b"\n") if self.output.exists() else 0

    def _count(self, event: bytes) -> int:
        journal = RunPaths(self.output).journal
        return journal.read_bytes().count(event) if journal.exists() else 0

    def _wait_for(self, event: bytes, count: int, client: subprocess.Popen[str], number: int) -> None:
        end = time.monotonic() + SESSION_SECONDS
        while self._count(event) < count and client.poll() is None:
            assert time.monotonic() < end, f"{self._where(number)}: nothing goes on"
            time.sleep(0.02)

    def _see_it_end(self, client: subprocess.Popen[str], blow: Blow) -> None:
        """A blow at a start may have hit what the session before it left behind: then it falls again."""
        ended, end = self._count(ENDED), time.monotonic() + SESSION_SECONDS
        while client.poll() is None and time.monotonic() < end:
            if self._count(ENDED) > ended + MISSED:
                blow(client, self.folder)
                ended = self._count(ENDED)
            with suppress(subprocess.TimeoutExpired):
                client.wait(0.05)

    def _talk(self, client: subprocess.Popen[str]) -> str:
        _, talk = client.communicate(timeout=SESSION_SECONDS)
        self.talks.append(talk)
        return talk


def whole(output: Path) -> list[dict[str, Any]]:
    """Every planned rollout has exactly one line in the rollouts file, which was answered; what failed on the
    way there failed for want of a server. Returns the rollouts."""
    paths = RunPaths(output)
    planned = [_key(row) for row in read_lines(paths.inputs)]
    lines = paths.rollouts.read_bytes().split(b"\n")
    assert lines.pop() == b""
    records = [json.loads(line) for line in lines]
    assert Counter(map(_key, records)) == Counter(planned)
    for failure in read_lines(paths.failures) if paths.failures.exists() else ():
        assert failure["gymctl_outcome"]["failure"] == "infrastructure", failure
        assert "reward" not in failure
    _journal_agrees(paths, dict(zip(map(_key, records), lines, strict=True)))
    return records


def counted(record: dict[str, Any]) -> None:
    """The counter has told this rollout the number that only it comes to."""
    told = [json.loads(item["output"]) for item in record["response"]["output"] if "output" in item]
    counts = [answer["count"] for answer in told if "count" in answer]
    assert counts[-1] == expected(record["_ng_task_index"])


def _journal_agrees(paths: RunPaths, lines: dict[tuple[int, int], bytes]) -> None:
    """One run id; nothing was sent again unless it was in flight or had failed; every line was sent."""
    events = read_lines(paths.journal)
    assert len({event["run"] for event in events if event["event"] == "begin"}) == 1
    open_ids: set[str] = set()
    ended: dict[str, dict[str, Any]] = {}
    sent: dict[tuple[int, int], list[str]] = {}
    for event in events:
        if event["event"] == "sent":
            assert event["rollout"] not in ended, f"{event['rollout']} was sent again after its end"
            open_ids.add(event["rollout"])
            sent.setdefault((event["task"], event["index"]), []).append(event["rollout"])
        elif event["event"] == "ended":
            assert event["rollout"] in open_ids
            if event["file"] is not None:  # else its server had given it up with the client that was killed
                ended[event["rollout"]] = event
    for key, line in lines.items():
        assert key in sent, f"{key} has a score and was never sent"
        told = [ended[rollout] for rollout in dict.fromkeys(sent[key]) if rollout in ended]
        success = [event for event in told if event["file"] == "rollouts"]
        # A kill may come between the line and the journal's word for it.
        assert len(success) <= 1
        assert all(event["crc32"] == zlib.crc32(line) for event in success)


def _key(row: dict[str, Any]) -> tuple[int, int]:
    return row["_ng_task_index"], row["_ng_rollout_index"]
