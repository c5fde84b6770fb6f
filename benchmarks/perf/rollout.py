"""How much CPU does one rollout cost, and in which process? Client and every server, on one machine.

    python benchmarks/perf/rollout.py --rows 2000 --concurrency 64 --upstream-script path/to/fake_model.py
    python benchmarks/perf/rollout.py --upstream-url http://127.0.0.1:9000/v1

Starts the weather environment in the process runtime: the fake model behind `openai_model`, `simple_agent`,
the verifier, and the environment server that every rollout enters by. Then sends the rows through the
collector that `gymctl eval` uses, and prints what each process spent, from /proc/<pid>/stat (user and system
time, worker processes included). A single-turn rollout is seven HTTP exchanges.

The upstream is yours: a script that is run as `python SCRIPT --port N [--upstream-args …]` and answers
`POST /v1/responses`, or a server that is already there. Its own cost is printed apart and not counted.

CPU seconds are the numbers to trust; rollouts per second depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import uvloop

from gymctl.cli.output import Console, reporter
from gymctl.config.load import load
from gymctl.config.sources import Selection
from gymctl.contract.part import Pool
from gymctl.rollouts.collect import CollectOptions
from gymctl.rollouts.dataset import Source
from gymctl.rollouts.run import Run, RunRequest
from gymctl.runtime.running import RunningProject
from gymctl.runtime.up import bring_up
from gymctl.transport import Transport

TICKS = os.sysconf("SC_CLK_TCK")
UPSTREAM = "upstream (not counted)"
CLIENT = "client"


def main() -> None:
    asked = arguments()
    with tempfile.TemporaryDirectory(prefix="gymctl-perf-") as folder, upstream(asked) as (url, process):
        os.chdir(folder)
        uvloop.run(measure(asked, Path(folder), url, process))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--warm-up", type=int, default=100, help="rollouts made before counting begins")
    parser.add_argument("--no-aggregation", action="store_true", help="collection only")
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--upstream-script", type=Path, help="run as `python SCRIPT --port N`")
    given.add_argument("--upstream-url", help="a model server that is already running, with /v1")
    parser.add_argument("--upstream-args", default="", help="more arguments for the script, as one string")
    parser.add_argument("--head-port", type=int, default=0, help="default: a free one")
    return parser.parse_args()


@contextmanager
def upstream(asked: argparse.Namespace) -> Iterator[tuple[str, subprocess.Popen[bytes] | None]]:
    """The model's URL, and its process when it is ours."""
    if asked.upstream_url:
        yield asked.upstream_url, None
        return
    port = free_port()
    command = [sys.executable, str(asked.upstream_script.resolve()), "--port", str(port)]
    process = subprocess.Popen([*command, *shlex.split(asked.upstream_args)])
    try:
        wait_for(port, process)
        yield f"http://127.0.0.1:{port}/v1", process
    finally:
        process.terminate()
        process.wait(10)


async def measure(
    asked: argparse.Namespace, folder: Path, url: str, model: subprocess.Popen[bytes] | None
) -> None:
    config = load(
        Selection(
            resources_server=("weather",),
            model_type="openai_model",
            model="fake-model",
            model_url=url,
            model_api_key="none",
            overrides=(f"++head_server.port={asked.head_port or free_port()}",),
        )
    )
    stack = await bring_up(config, choice="process", reporter=reporter(Console()))
    try:
        pids = {name: stack.state.pids[service] for name, service in stack.state.services.items()}
        if model is not None:
            pids[UPSTREAM] = model.pid
        if asked.warm_up:
            await collect(stack, folder, asked.warm_up, asked.concurrency, is_aggregated=False)
        before = seconds(pids)
        wall = time.monotonic()
        run = await collect(
            stack, folder, asked.rows, asked.concurrency, is_aggregated=not asked.no_aggregation
        )
        wall = time.monotonic() - wall
        report(run, asked, before, seconds(pids), wall)
    finally:
        await stack.down()


async def collect(
    stack: RunningProject, folder: Path, rows: int, concurrency: int, *, is_aggregated: bool
) -> Run:
    source = folder / "rows.jsonl"
    with source.open("w") as file:
        for number in range(rows):
            file.write(json.dumps(row(number)) + "\n")
    run = Run.prepare(
        RunRequest([Source(source, fallback="weather_simple_agent")], folder / "out" / "run.jsonl"),
        stack.table,
    )
    try:
        async with Transport(Pool(limit=0, limit_per_host=0)) as transport:
            options = CollectOptions(concurrency)
            await run.collect(transport, stack.table, options, asyncio.Event(), stack.deaths())
            if is_aggregated:
                await run.aggregate(transport, stack.table)
    finally:
        run.close()
    return run


def row(number: int) -> dict[str, object]:
    """About 2 kB, like the rows of a usual benchmark."""
    question = f"Question {number}: what is the weather in Oslo today? " + "State the sky. " * 120
    return {"responses_create_params": {"input": question}, "city": "Oslo"}


def report(
    run: Run, asked: argparse.Namespace, before: Mapping[str, float], after: Mapping[str, float], wall: float
) -> None:
    spent = {name: after[name] - before[name] for name in after}
    counted = {name: value for name, value in spent.items() if name != UPSTREAM}
    lines = [f"{'process':<30} {'CPU ms per rollout':>18}"]
    for name, value in (*counted.items(), ("all", sum(counted.values())), (UPSTREAM, spent.get(UPSTREAM))):
        if value is not None:
            lines.append(f"{name:<30} {value / asked.rows * 1000:>18.2f}")
    tally, speed = run.tally, asked.rows / run.seconds
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    lines += [
        "",
        f"{asked.rows} rows, {asked.concurrency} at once: {tally.scored} scored, {tally.failed.total()} not",
        f"collection {run.seconds:.1f} s = {speed:.0f} rollouts/s; with files and metrics {wall:.1f} s",
        f"client peak memory {memory:.0f} MB, load {os.getloadavg()[0]:.1f}",
    ]
    print("\n".join(lines))


def seconds(pids: Mapping[str, int]) -> dict[str, float]:
    """CPU seconds so far of each server (its whole process group) and of this process."""
    by_group: dict[int, float] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # ended meanwhile
        used = sum(int(ticks) for ticks in fields[11:15]) / TICKS
        group, pid = int(fields[2]), int(stat.parent.name)
        by_group[group] = by_group.get(group, 0.0) + used
        if group != pid:
            by_group.setdefault(pid, used)
    own = os.times()
    found = {name: by_group.get(pid, 0.0) for name, pid in pids.items()}
    return {**found, CLIENT: own.user + own.system}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 20
    while time.monotonic() < end and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise SystemExit(f"the upstream does not listen on port {port}")


if __name__ == "__main__":
    main()
