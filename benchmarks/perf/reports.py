"""What `images.py` measured: costs and sizes, and how they are told."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

MIB = 2**20
PATIENCE = 1800.0


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one thing that was done."""

    what: str
    wall: float
    """Seconds."""
    cpu: float
    """Seconds."""


@dataclass(frozen=True, slots=True)
class Size:
    what: str
    own: int
    """Bytes that nothing else of the ten has."""
    shared: int


@dataclass(frozen=True, slots=True)
class Report:
    way: str
    costs: tuple[Cost, ...]
    sizes: tuple[Size, ...]
    total: int
    """Bytes on the disk for all ten, without the package cache."""
    cache: int
    """Bytes of the package cache that are in no server's files."""


def output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    if done.returncode:
        sys.exit(
            f"`{' '.join(command)}` ended with {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}"
        )
    return done.stdout


def spent(what: str, wall: float, cpu: float) -> Cost:
    """Told at once: the rest takes its time."""
    print(f"{what}: {wall:.1f} s, {cpu:.1f} CPU s", file=sys.stderr)
    return Cost(what, wall, cpu)


def text(report: Report) -> str:
    lines = [report.way, ""]
    lines += [f"  {one.what:26} {one.wall:8.1f} s {one.cpu:8.1f} CPU s" for one in report.costs]
    lines += ["", f"  {'MiB':26} {'its own':>10} {'shared':>10}"]
    lines += [f"  {one.what:26} {one.own / MIB:10.1f} {one.shared / MIB:10.1f}" for one in report.sizes]
    lines += [
        f"  {'all':26} {report.total / MIB:10.1f}",
        f"  {'package cache beside':26} {report.cache / MIB:10.1f}",
    ]
    return "\n".join(lines)
