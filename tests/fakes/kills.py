"""An evaluation that is struck down again and again, at points drawn from a seed, and gone on with.

    ordeal = Ordeal(folder, ["eval", …, "-o", "x.jsonl"], seed=1)
    ordeal.strike([kill_client] * 5)     # each one in a session of its own
    result = ordeal.finish()             # the last session, left alone
    whole(ordeal.output)                 # what must hold whatever was struck

A blow is a function that gets the running client and the folder; it may kill a container or restart the
engine. `strike` waits until the session has made some rollouts (or, now and then, for a moment of its
start), delivers the blow, and waits for the client to end.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fakes.program import read_lines

from gymctl.paths import RunPaths

Blow = Callable[["subprocess.Popen[str]", Path], None]
SESSION_SECONDS = 120.0
EARLY = 0.15
"""Share of blows that fall while the servers start."""


def kill_client(client: subprocess.Popen[str], folder: Path) -> None:
    """`kill -9` of the program that the user started."""
    client.kill()


@dataclass
class Ordeal:
    """One run, whatever happens to it."""

    folder: Path
    arguments: Sequence[str]
    rollouts: int
    seed: int = 0
    talks: list[str] = field(default_factory=list)
    """What each session said on stderr."""

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        named = self.arguments[list(self.arguments).index("-o") + 1]
        self.output = self.folder / named

    def strike(self, blows: Sequence[Blow]) -> None:
        """One session for each blow. AssertionError when a session ends by itself before its blow."""
        share = max(1, self.rollouts // (len(blows) + 1))
        for number, blow in enumerate(blows):
            client = self._start()
            if self._random.random() < EARLY:
                time.sleep(self._random.uniform(0, 2.0))
            else:
                self._wait_for(self._ended() + self._random.randint(1, share), client, number)
                time.sleep(self._random.uniform(0, 0.05))
            assert client.poll() is None, (
                f"seed {self.seed}: ended before blow {number}: {self._talk(client)}"
            )
            blow(client, self.folder)
            self._talk(client)

    def finish(self) -> dict[str, Any]:
        """The last session: the result that it prints."""
        client = self._start()
        out, talk = client.communicate(timeout=SESSION_SECONDS)
        self.talks.append(talk)
        assert client.returncode == 0, f"seed {self.seed}: {talk}"
        return json.loads(out)

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "gymctl", *self.arguments],
            cwd=self.folder,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _ended(self) -> int:
        journal = RunPaths(self.output).journal
        return journal.read_bytes().count(b'"event":"ended"') if journal.exists() else 0

    def _wait_for(self, ended: int, client: subprocess.Popen[str], number: int) -> None:
        end = time.monotonic() + SESSION_SECONDS
        while self._ended() < ended and client.poll() is None:
            assert time.monotonic() < end, f"seed {self.seed}: nothing goes on before blow {number}"
            time.sleep(0.02)

    def _talk(self, client: subprocess.Popen[str]) -> str:
        _, talk = client.communicate(timeout=SESSION_SECONDS)
        self.talks.append(talk)
        return talk


def whole(output: Path) -> list[dict[str, Any]]:
    """Every planned rollout has exactly one line in the rollouts file, which was answered; returns them."""
    paths = RunPaths(output)
    planned = [_key(row) for row in read_lines(paths.inputs)]
    lines = paths.rollouts.read_bytes().split(b"\n")
    assert lines.pop() == b""
    records = [json.loads(line) for line in lines]
    assert Counter(map(_key, records)) == Counter(planned)
    _journal_agrees(paths, dict(zip(map(_key, records), lines, strict=True)))
    return records


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
