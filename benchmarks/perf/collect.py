"""What does one rollout cost the client, and does that grow with what is in flight, or with the rows?

    python benchmarks/perf/collect.py
    python benchmarks/perf/collect.py --in-flight 64 --rows 2000 --million 0
    python benchmarks/perf/collect.py --in-flight 64 4096 --plain        as against a foreign server

The client is the one of `gymctl eval`: `Run.prepare`, `collect` and `aggregate`, in a process of its own. The
environment server is another process, which answers nothing before the wanted number is in flight
(held_environment.py). CPU is user and system time of the client alone. Memory is its peak RSS in each step;
by rollout in flight it is what the collection had at most above its start, by row what it has left behind.

Lines of the table differ in how many are in flight; the last one, in how many rollouts there are in all. "ms
by tenth" is the CPU of one rollout in the first and in the last tenth of them: equal when nothing grows.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import uvloop

from gymctl.contract.part import Pool
from gymctl.contract.servers import Address, ServerEntry, ServerKind, ServerTable
from gymctl.rollouts.collect import CollectOptions
from gymctl.rollouts.dataset import Source
from gymctl.rollouts.run import Run, RunRequest
from gymctl.transport import Transport

MILLION_IN_FLIGHT = 512
QUESTION = "What is the weather in Oslo today? " * 8


def main() -> None:
    asked = arguments()
    if asked.client is not None:
        print(json.dumps(uvloop.run(client(json.loads(asked.client)))))
        return
    cases = [(number, asked.rows or max(4096, 2 * number)) for number in asked.in_flight]
    if asked.million:
        cases.append((min(MILLION_IN_FLIGHT, asked.million), asked.million))
    results = []
    print(HEAD, flush=True)
    for in_flight, rows in cases:
        results.append(measured(in_flight, rows, asked))
        print(line(results[-1]), flush=True)
    if asked.output is not None:
        asked.output.write_text(json.dumps(results, indent=2) + "\n")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--in-flight", type=int, nargs="*", default=[64, 4096, 65536])
    parser.add_argument("--rows", type=int, help="rollouts of each case; default: twice what is in flight")
    parser.add_argument("--million", type=int, default=1_000_000, help="rollouts of the last case; 0: none")
    parser.add_argument("--repeats", type=int, default=1, help="rollouts of each task")
    parser.add_argument("--answer-bytes", type=int, default=2000)
    parser.add_argument("--plain", action="store_true", help="the server offers plain answers only")
    parser.add_argument("--output", type=Path, help="write the figures here as JSON, too")
    parser.add_argument("--client", help=argparse.SUPPRESS)
    return parser.parse_args()


def measured(in_flight: int, rows: int, asked: argparse.Namespace) -> dict[str, Any]:
    """One case: a server, a client, and what both say afterwards."""
    port = free_port()
    here = Path(__file__).resolve()
    command = [sys.executable, str(here.with_name("held_environment.py")), "--port", str(port)]
    command += ["--hold", str(in_flight), "--rows", str(rows), "--answer-bytes", str(asked.answer_bytes)]
    server = subprocess.Popen([*command, *(["--plain"] if asked.plain else [])])
    with tempfile.TemporaryDirectory(prefix="gymctl-perf-") as folder:
        try:
            wait_for(port, server)
            wanted = {"port": port, "in_flight": in_flight, "rows": rows, "folder": folder}
            wanted["repeats"] = asked.repeats
            done = subprocess.run(
                [sys.executable, str(here), "--client", json.dumps(wanted)],
                stdout=subprocess.PIPE,
                check=True,
            )
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/held") as answer:
                held = json.load(answer)
            found = {"server_cpu": cpu_of(server.pid), **held, **json.loads(done.stdout)}
        finally:
            server.terminate()
            server.wait(30)
    return {"in_flight": in_flight, "rows": rows, **found}


HEAD = (
    f"{'in flight':>9} {'reached':>8} {'rollouts':>9} | {'CPU ms per rollout':^35} | {'peak RSS MB':^25} "
    f"| {'per in':^8} {'per':^8} | {'rollouts':>8} | {'ms by tenth':^13}\n"
    f"{'':9} {'':8} {'':9} | {'prepare':>8} {'collect':>8} {'aggregate':>9} {'all':>7} "
    f"| {'start':>7} {'collect':>8} {'aggr.':>8} | {'flight kB':>8} {'row kB':>7} "
    f"| {'per s':>8} | {'first':>6} {'last':>6}"
)


def line(found: dict[str, Any]) -> str:
    """One row of the table."""
    rows, cpu, rss = found["rows"], found["cpu"], found["peak_mb"]
    ms = {step: seconds * 1000 / rows for step, seconds in cpu.items()}
    flight = (rss["collect"] - found["before_mb"]["collect"]) * 1000 / max(found["most"], 1)
    per_row = (found["before_mb"]["aggregate"] - found["before_mb"]["prepare"]) * 1000 / rows
    return (
        f"{found['in_flight']:>9} {found['most']:>8} {rows:>9} "
        f"| {ms['prepare']:>8.3f} {ms['collect']:>8.3f} {ms['aggregate']:>9.3f} {sum(ms.values()):>7.3f} "
        f"| {found['before_mb']['prepare']:>7.0f} {rss['collect']:>8.0f} {rss['aggregate']:>8.0f} "
        f"| {flight:>8.1f} {per_row:>8.2f} | {rows / found['seconds']['collect']:>8.0f} "
        f"| {found['tenths_ms'][0]:>6.3f} {found['tenths_ms'][-1]:>6.3f}"
    )


async def client(wanted: dict[str, Any]) -> dict[str, Any]:
    """The run, step by step; what each cost."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    folder, repeats = Path(wanted["folder"]), wanted["repeats"]
    source = folder / "rows.jsonl"
    with source.open("w") as file:
        for number in range(-(-wanted["rows"] // repeats)):
            params = {"input": f"{number}: {QUESTION}"}
            row = {"responses_create_params": params, "agent_ref": {"name": "desk"}, "answer": number}
            file.write(json.dumps(row) + "\n")
    table = table_of(wanted["port"])
    steps = Steps()
    with steps.step("prepare"):
        request = RunRequest([Source(source)], folder / "out" / "run.jsonl", repeats=repeats)
        run = Run.prepare(request, table)
    try:
        async with Transport(Pool(limit=0, limit_per_host=0)) as transport:
            with steps.step("collect"):
                tenths = asyncio.create_task(cpu_of_tenths(run))
                await run.collect(transport, table, CollectOptions(wanted["in_flight"]), asyncio.Event())
                marks = await asyncio.wait_for(tenths, 5)
            with steps.step("aggregate"):
                await run.aggregate(transport, table)
        score, scored = run.tally.headline(), run.tally.scored
    finally:
        run.close()
    assert scored == wanted["rows"], f"{scored} of {wanted['rows']} rollouts are scored: {run.tally.causes}"
    return {**steps.figures(), "mean": score.mean, "tenths_ms": between(marks)}


async def cpu_of_tenths(run: Run) -> list[tuple[int, float]]:
    """Rollouts and CPU seconds so far, about when each tenth of the rollouts has ended."""
    planned = run.tally.planned
    marks = [(0, own_cpu())]
    while run.tally.finished < planned:
        if run.tally.finished * 10 // planned > marks[-1][0] * 10 // planned:
            marks.append((run.tally.finished, own_cpu()))
        await asyncio.sleep(0.05)
    return [*marks, (planned, own_cpu())]


def between(marks: list[tuple[int, float]]) -> list[float]:
    """CPU milliseconds per rollout from each mark to the next."""
    steps = itertools.pairwise(marks)
    return [round((cpu - before) * 1000 / (count - start), 3) for (start, before), (count, cpu) in steps]


class Steps:
    """CPU, wall time and memory of each step of this process."""

    def __init__(self) -> None:
        self._cpu: dict[str, float] = {}
        self._seconds: dict[str, float] = {}
        self._peak: dict[str, float] = {}
        self._before: dict[str, float] = {}

    def step(self, name: str) -> Step:
        return Step(self, name)

    def begin(self, name: str) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
        self._before[name] = memory_mb("VmRSS")
        self._cpu[name], self._seconds[name] = -own_cpu(), -time.monotonic()

    def end(self, name: str) -> None:
        self._cpu[name] += own_cpu()
        self._seconds[name] += time.monotonic()
        self._peak[name] = memory_mb("VmHWM")

    def figures(self) -> dict[str, Any]:
        return {
            "cpu": self._cpu,
            "seconds": self._seconds,
            "peak_mb": self._peak,
            "before_mb": self._before,
        }


class Step:
    def __init__(self, steps: Steps, name: str) -> None:
        self._steps, self._name = steps, name

    def __enter__(self) -> None:
        self._steps.begin(self._name)

    def __exit__(self, *_: object) -> None:
        self._steps.end(self._name)


def table_of(port: int) -> ServerTable:
    def entry(name: str, kind: ServerKind, port: int = 1, **references: str) -> ServerEntry:
        address = Address(kind=kind, implementation="held", host="127.0.0.1", port=port)
        return ServerEntry(name=name, address=address, references=references)

    entries = (
        entry("model", "responses_api_models"),
        entry("tools", "resources_servers"),
        entry("desk", "responses_api_agents", resources_server="tools", model_server="model"),
        entry("env", "environment_servers", port, agent_server="desk"),
    )
    return ServerTable(servers={server.name: server for server in entries})


def own_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mb(name: str) -> float:
    for text in Path("/proc/self/status").read_text().splitlines():
        if text.startswith(f"{name}:"):
            return int(text.split()[1]) / 1000
    raise LookupError(name)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise SystemExit("the environment server did not start")


if __name__ == "__main__":
    main()
