"""What was sent and what became of it, in `runs/x/journal.jsonl`: written before the request, and after.

    {"event": "begin", "run": "6f…", "at": …, "pid": …, "owed": 40}
    {"event": "sent", "rollout": "3-0", "task": 3, "index": 0, "attempt": 0, "server": "env", "at": …}
    {"event": "ended", "rollout": "3-0", "file": "rollouts", "crc32": 1234, "at": …}
    {"event": "end", "reason": "cap", "what": "--max-time", "limit": 840.0, "at": …}

`at` counts seconds since 1970. `file` is null when a record asked to be written nowhere; `crc32` is that of
the line without its newline. A `sent` without an `ended` was in flight when the run was stopped: it is sent
again under the same idempotency key, so that a server that still runs answers with its first result.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, get_args

from gymctl.contract.rollout import ATTEMPT_INDEX, Row, rollout_key
from gymctl.rollouts.encoding import dumps, loads
from gymctl.rollouts.lines import LineFile, mend

File = Literal["rollouts", "failures"]
Reason = Literal["done", "cap", "lost", "interrupted", "error"]


@dataclass(frozen=True, slots=True)
class End:
    """Why a session sent nothing more. Without one it was killed, or still runs."""

    reason: Reason
    what: str | None = None
    """The cap as it is spelled, or the lost server."""
    limit: float | None = None
    """Of the cap."""


@dataclass(frozen=True, slots=True)
class Past:
    """What a journal says about the sessions before this one."""

    in_flight: Mapping[str, float] = field(default_factory=dict)
    """Rollout ids that were sent and have no end, and when they were sent, in seconds since 1970."""
    unwritten: Counter[str] = field(default_factory=Counter)
    """Rollout id -> how often it ended without a line: sending it again must not find that end."""


class Journal:
    """Appends to the journal of one run."""

    def __init__(self, path: Path, run: str, past: Past) -> None:
        self.path = path
        self._run = run
        self._unwritten = past.unwritten
        self._in_flight = past.in_flight
        path.parent.mkdir(parents=True, exist_ok=True)
        mend(path)
        self._file = LineFile(path)

    def begin(self, owed: int) -> None:
        self._write({"event": "begin", "run": self._run, "at": _now(), "pid": os.getpid(), "owed": owed})

    def key(self, rollout: str) -> str:
        """The idempotency key of an attempt: the same one whenever the same attempt is sent again."""
        ended = self._unwritten.get(rollout, 0)
        return f"{self._run}:{rollout}" + (f":{ended}" if ended else "")

    def sent(self, row: Row, rollout: str, server: str) -> None:
        """An attempt is about to be sent."""
        task, index = rollout_key(row)
        self._write(
            {
                "event": "sent",
                "rollout": rollout,
                "task": task,
                "index": index,
                "attempt": row.get(ATTEMPT_INDEX) or 0,
                "server": server,
                "at": _now(),
            }
        )

    def ended(self, rollout: str, file: File | None, crc32: int | None) -> None:
        """Its record is where it belongs."""
        if file is None:
            self._unwritten[rollout] += 1
        self._write({"event": "ended", "rollout": rollout, "file": file, "crc32": crc32, "at": _now()})

    def end(self, end: End) -> None:
        """The session sends nothing more."""
        self._write({"event": "end", **asdict(end), "at": _now()})

    @property
    def has_in_flight(self) -> bool:
        """Earlier sessions left attempts that were sent and have no end."""
        return bool(self._in_flight)

    def give_up(self, since: float) -> None:
        """Attempts in flight that were sent before `since` are made anew, under keys of their own."""
        for rollout, at in self._in_flight.items():
            if at <= since:
                self.ended(rollout, None, None)

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self._file.close()

    def _write(self, event: Row) -> None:
        self._file.write(dumps(event))


def read(path: Path) -> Past:
    """What an earlier session left. A line that cannot be read says nothing; a missing file neither."""
    in_flight: dict[str, float] = {}
    unwritten: Counter[str] = Counter()
    for event in events(path):
        rollout = str(event.get("rollout"))
        if event.get("event") == "sent":
            at = event.get("at")
            in_flight[rollout] = float(at) if isinstance(at, (int, float)) else 0.0
        elif event.get("event") == "ended":
            in_flight.pop(rollout, None)
            if event.get("file") is None:
                unwritten[rollout] += 1
    return Past(in_flight, unwritten)


def last_end(path: Path) -> End | Literal["none"] | None:
    """Why the last session ended; `none`: it did not tell, since it was killed or still runs. None: there is
    no journal to ask, or not one of a version that tells."""
    found: End | Literal["none"] | None = None
    for event in events(path, of_sessions=True):
        if event.get("event") == "begin":
            found = "none"
        elif event.get("event") == "end" and event.get("reason") in get_args(Reason):
            what, limit = event.get("what"), event.get("limit")
            found = End(
                event["reason"],
                what if isinstance(what, str) and what.isprintable() else None,
                float(limit) if isinstance(limit, (int, float)) else None,
            )
    return found


def events(path: Path, *, of_sessions: bool = False) -> Iterator[Row]:
    """Every line that can be read; none when there is no file. `of_sessions`: without those of rollouts,
    which are not even parsed."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for line in file:
            if of_sessions and b'"rollout"' in line:
                continue
            try:
                event = loads(line)
            except ValueError:
                continue
            if isinstance(event, dict):
                yield event


def _now() -> float:
    return round(time.time(), 3)
