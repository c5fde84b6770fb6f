"""How long is a warm `gymctl up`, and where does the time go?

    python benchmarks/perf/startup.py                     both runtimes (containers where an engine answers)
    python benchmarks/perf/startup.py --runtime process --runs 5

Brings the weather stack (four servers and the head) up and down, once unmeasured so that images and
environments exist, then `--runs` times, and prints per phase the median and the range in milliseconds:

    plan    configuration, image look-ups, ports, compose file and part files
    engine  until the last container (or process) has been started
    import  from there until the last server answers: the interpreter and our imports
    ready   from there until gymctl says so: the head's own check

and the CPU seconds that the servers and gymctl itself spent until then. Wall times depend on what else the
machine does: compare figures of one run only.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from gymctl import engine
from gymctl.config.load import load
from gymctl.config.model import Config
from gymctl.config.ports import with_free_head_port
from gymctl.config.sources import Selection
from gymctl.runtime.running import RunningProject
from gymctl.runtime.stack import RuntimeChoice
from gymctl.runtime.up import bring_up

TICKS = os.sysconf("SC_CLK_TCK")
PHASES = ("plan", "engine", "import", "ready", "all")


@dataclass
class Timeline:
    """A Reporter that keeps the moment of each event (seconds of the epoch)."""

    began: float = field(default_factory=time.time)
    launched: float = 0.0
    answered: list[float] = field(default_factory=list)

    def step(self, name: str, text: str) -> None:
        if text.startswith("ready"):
            self.answered.append(time.time())

    def note(self, text: str) -> None: ...

    def progress(self, text: str) -> None:
        if text.startswith("starting ") and not self.launched:
            self.launched = time.time()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runtime", choices=("compose", "process"), action="append")
    parser.add_argument("--runs", type=int, default=5)
    asked = parser.parse_args()
    chosen: list[RuntimeChoice] = asked.runtime or ["process", *(["compose"] if engine.answers() else [])]
    with tempfile.TemporaryDirectory(prefix="gymctl-perf-") as folder:
        os.chdir(folder)
        for runtime in chosen:
            rows = uvloop.run(measure(runtime, asked.runs))
            print(table(runtime, rows), flush=True)


async def measure(runtime: RuntimeChoice, runs: int) -> list[Mapping[str, float]]:
    """One row per run: milliseconds by phase, CPU seconds of servers and client."""
    rows: list[Mapping[str, float]] = []
    for number in range(runs + 1):
        own = os.times()
        timeline = Timeline()
        config = with_free_head_port(load(Selection(benchmark=("weather",))))
        stack = await bring_up(config, choice=runtime, reporter=timeline)
        ready = time.time()
        try:
            spent = os.times()
            client = spent.user + spent.system - own.user - own.system
            if number:
                rows.append(row(timeline, ready, stack, config, client))
        finally:
            await stack.down()
    return rows


def row(
    timeline: Timeline, ready: float, stack: RunningProject, config: Config, client: float
) -> Mapping[str, float]:
    processes = containers(config.project) if stack.runtime == "compose" else dict(stack.state.pids)
    started = max(map(started_at, processes.values()))
    answered = max(timeline.answered)
    marks = (timeline.began, timeline.launched, started, answered, ready)
    spans = [(after - before) * 1000 for before, after in itertools.pairwise(marks)]
    phases = dict(zip(PHASES, [*spans, (ready - timeline.began) * 1000], strict=True))
    return {**phases, "cpu servers": sum(map(cpu_seconds, groups(processes.values()))), "cpu gymctl": client}


def containers(project: str) -> dict[str, int]:
    """Container name -> pid of its first process, as this machine numbers it."""
    label = f"label=dev.gymctl.project={project}"
    listed = subprocess.run(
        ["docker", "ps", "-q", "--filter", label], capture_output=True, text=True, check=True
    )
    form = "{{.Name}} {{.State.Pid}}"
    found = subprocess.run(
        ["docker", "inspect", "-f", form, *listed.stdout.split()], capture_output=True, text=True, check=True
    )
    return {name: int(pid) for name, pid in (line.split() for line in found.stdout.splitlines())}


def started_at(pid: int) -> float:
    """When a process began, in seconds of the epoch."""
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    return time.time() - uptime + int(stat(pid)[19]) / TICKS


def groups(pids: Iterable[int]) -> list[int]:
    """The processes and all their descendants."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat(int(path.parent.name))[1])
        except OSError:
            continue  # ended meanwhile
        children.setdefault(parent, []).append(int(path.parent.name))
    found: list[int] = []
    queue = list(pids)
    while queue:
        pid = queue.pop()
        found.append(pid)
        queue += children.get(pid, [])
    return found


def cpu_seconds(pid: int) -> float:
    return sum(int(ticks) for ticks in stat(pid)[11:13]) / TICKS


def stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def table(runtime: str, rows: Sequence[Mapping[str, float]]) -> str:
    lines = [f"{runtime}: {len(rows)} warm starts, head and 4 servers, load {os.getloadavg()[0]:.1f}"]
    for name in rows[0]:
        values = [row[name] for row in rows]
        unit, digits = ("s", 2) if name.startswith("cpu") else ("ms", 0)
        shown = (statistics.median(values), min(values), max(values))
        median, low, high = (f"{value:,.{digits}f}" for value in shown)
        lines.append(f"  {name:<12} {median:>8} {unit:<2}   {low} – {high}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
