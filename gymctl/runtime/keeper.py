"""Which local processes belong to a project, and how they are ended. Also a program of its own: the keeper.

Every process of a project carries `GYMCTL_PART=<project folder>/parts/…` in its environment, and what it
starts inherits that. So a process is recognised by what it is, never by a number that may have been given to
another.

The keeper waits at the other end of a pipe. When gymctl goes away without a word (`kill -9`), the pipe closes
and the keeper ends what that gymctl started, by the `GYMCTL_START` that it gave its servers: the next command
may be starting the same project by then. One byte beforehand (`--detach`) sends it home. It imports nothing
but the standard library: it is started with `python -I -S`, by path, before anything else.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

VARIABLE = "GYMCTL_PART"
"""contract.part.PART_VARIABLE; written out because this file imports nothing of ours."""
START_VARIABLE = "GYMCTL_START"
"""Random, the same for everything that one command started."""
GRACE_SECONDS = 2.0
KILL_SECONDS = 2.0
PAUSE = 0.02
PROC = Path("/proc")


class Found(NamedTuple):
    pid: int
    group: int
    service: str


def find(parts: Path, start: str | None = None) -> list[Found]:
    """The live processes of the project whose part files lie in `parts` (an absolute path); of one start."""
    marks = [f"{VARIABLE}={parts}/", *([] if start is None else [f"{START_VARIABLE}={start}"])]
    return [row for folder, row in _look(*marks) if folder == parts]


def find_all() -> list[tuple[Path, Found]]:
    """The live processes of all projects, each with the folder of its part files."""
    return list(_look(f"{VARIABLE}="))


def _look(marker: str, *others: str) -> Iterable[tuple[Path, Found]]:
    look = _from_proc if PROC.joinpath("self", "environ").exists() else _from_ps
    rows = look(marker, others)
    for pid, group, variable in rows:
        part = Path(variable.removeprefix(f"{VARIABLE}="))
        yield part.parent, Found(pid, group, part.stem)


def stop(
    parts: Path,
    *,
    start: str | None = None,
    reap: Callable[[], None] = lambda: None,
    grace: float = GRACE_SECONDS,
) -> list[str]:
    """SIGTERM to every group of the project, SIGKILL to what is left after `grace` seconds.

    start: only what that start has brought up. reap: called between looks, so that a parent can collect its
    children. Returns the services that had to be killed. Blocking, bounded by about 4 s.
    """

    def look() -> list[Found]:
        return find(parts, start)

    found = look()
    groups = {row.group for row in found}
    _signal(groups, signal.SIGTERM)
    remaining = _wait(look, reap, grace)
    if remaining:
        groups |= {row.group for row in remaining}
    _signal(groups, signal.SIGKILL)  # also those in a group that threw the variable away
    left = _wait(look, reap, KILL_SECONDS if remaining else 0.0)
    _signal({row.group for row in left}, signal.SIGKILL)
    return sorted({row.service for row in remaining})


def _wait(look: Callable[[], list[Found]], reap: Callable[[], None], seconds: float) -> list[Found]:
    end = time.monotonic() + seconds
    while True:
        reap()
        found = look()
        if not found or time.monotonic() >= end:
            return found
        time.sleep(PAUSE)


def _signal(groups: Iterable[int], number: int) -> None:
    own = os.getpgid(0)
    for group in groups:
        if group in (0, 1, own):
            continue
        try:
            os.killpg(group, number)
        except (ProcessLookupError, PermissionError):
            continue


def _from_proc(marker: str, others: Sequence[str]) -> Iterable[tuple[int, int, str]]:
    wanted, also = os.fsencode(marker), {os.fsencode(other) for other in others}
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # A zombie's environment is empty: what is dead is not found.
            content = (entry / "environ").read_bytes()
            if wanted not in content:
                continue
            items = content.split(b"\0")
            paths = [item for item in items if item.startswith(wanted)]
            if paths and also.issubset(items):
                pid = int(entry.name)
                yield pid, os.getpgid(pid), os.fsdecode(paths[0])
        except OSError:
            continue


def _from_ps(marker: str, others: Sequence[str]) -> Iterable[tuple[int, int, str]]:
    """Without /proc (macOS): `ps` prints the environment of the user's own processes behind the command."""
    command = ["ps", "axeww", "-o", "pid=,pgid=,command="]
    listed = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    for line in listed.stdout.splitlines():
        if marker in line and all(other in line for other in others):
            pid, group, rest = line.split(None, 2)
            yield int(pid), int(group), marker + rest.split(marker, 1)[1].split(" ", 1)[0]


def main(parts: Path, start: str) -> int:
    """Wait for the end of stdin; end what was started with `start` unless a byte came first."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if os.read(0, 1):
        return 0
    stop(parts, start=start)
    # Once more: a server may have been on its way when its starter was killed.
    time.sleep(0.2)
    stop(parts, start=start, grace=0.0)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
