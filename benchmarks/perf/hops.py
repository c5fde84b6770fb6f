"""What does one request cost a server of each kind, beside the least that any server costs?

    python benchmarks/perf/hops.py
    python benchmarks/perf/hops.py --requests 500 --rounds 3 --only model --json

Starts one process per kind as the process runtime does, and a raw uvicorn app that echoes bodies. Everything
that a server calls (the agent behind the relay, the model's upstream, the agent's neighbours) is a stub in
this process, so a line is the work of that one server alone. Bodies are of 4 KiB and 256 KiB.

Prints user and system CPU of the server's process, in ms per request: the least and the median of the
rounds, and the ratio of the least to the echo's least at the same size. Rounds are interleaved (echo, A, B,
echo, ...) because whatever else the machine does adds to all of them. The ratio is what to compare between
machines; the wall clock is not looked at.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop
from raw_http import KEY_MARK, Load, Stub

from gymctl.contract.part import PART_VARIABLE, HeadPart, ServerPart
from gymctl.servers.inprocess import make_part

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "server_images"
TRIVIAL = Path(__file__).with_name("trivial")
SIZES = {"4 KiB": 4096, "256 KiB": 262144}
ECHO = "echo"
ECHO_TIMES = 4
"""The echo is so cheap that it needs more requests for a reading."""


@dataclass
class Case:
    """One line of the table."""

    name: str
    pid: int
    load: Load
    has_cookie: bool = False
    """The caller comes again: it sends the session cookie of the first answer."""
    milliseconds: list[float] = field(default_factory=list)

    async def prepare(self, requests: int, connections: int) -> None:
        await self.load.run(requests, connections)
        if self.has_cookie and self.load.first is not None:
            self.load.head += b"cookie: " + self.load.first.cookie + b"\r\n"

    async def measure(self, requests: int, connections: int) -> None:
        before = seconds(self.pid)
        await self.load.run(requests, connections)
        self.milliseconds.append((seconds(self.pid) - before) / requests * 1000)


def main() -> None:
    asked = arguments()
    with tempfile.TemporaryDirectory(prefix="gymctl-perf-") as folder:
        results = uvloop.run(measure(asked, Path(folder)))
    if asked.json:
        print(json.dumps(results, indent=1))
        return
    print(f"{'CPU of the server, ms per request':<36} {'least':>8} {'median':>8} {'x echo':>8}")
    for line in results:
        name = f"{line['request']}, {line['size']}"
        print(f"{name:<36} {line['least']:>8.3f} {line['median']:>8.3f} {line['ratio']:>8.1f}")
    print(f"{asked.rounds} rounds of {asked.requests} requests, load {os.getloadavg()[0]:.1f}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--requests", type=int, default=1000, help="per round, of 4 KiB; large ones a quarter"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--only", help="requests whose name holds this word")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


async def measure(asked: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    loop = asyncio.get_running_loop()
    stub = await loop.create_server(lambda: Stub(stub_answer), "127.0.0.1", 0)
    stub_url = f"http://127.0.0.1:{stub.sockets[0].getsockname()[1]}"
    results: list[dict[str, Any]] = []
    with Processes(folder, stub_url) as servers:
        for size_name, size in SIZES.items():
            requests = max(asked.requests if size < 65536 else asked.requests // 4, 1)
            measured = cases(servers, size)
            chosen = [case for case in measured[1:] if (asked.only or "") in case.name]
            await rounds(measured[0], chosen, requests, asked)
            results += lines(size_name, [measured[0], *chosen])
    stub.close()
    return results


async def rounds(reference: Case, chosen: Sequence[Case], requests: int, asked: argparse.Namespace) -> None:
    for case in [reference, *chosen]:
        await case.prepare(max(requests // 5, 1), asked.connections)
    for _ in range(asked.rounds):
        for number, case in enumerate(chosen):
            if number % 2 == 0:
                await reference.measure(requests * ECHO_TIMES, asked.connections)
            await case.measure(requests, asked.connections)


def lines(size: str, measured: Sequence[Case]) -> list[dict[str, Any]]:
    least = min(measured[0].milliseconds)
    return [
        {
            "request": case.name,
            "size": size,
            "least": round(min(case.milliseconds), 4),
            "median": round(statistics.median(case.milliseconds), 4),
            "ratio": round(min(case.milliseconds) / least, 2) if least else 0.0,
        }
        for case in measured
    ]


def cases(servers: Mapping[str, tuple[int, int]], size: int) -> list[Case]:
    """The echo first. What a server of ours sends along is sent here, too: keys, cookies, rollout ids."""
    row, text = row_of(size), "x" * (size - 20)

    def case(
        name: str, server: str, start: str, body: bytes, *, extra: bytes = b"", cookie: bool = False
    ) -> Case:
        pid, port = servers[server]
        head = f"{start} HTTP/1.1\r\ncontent-type: application/json\r\nx-gymctl-rollout: 3-0\r\n".encode()
        return Case(name, pid, Load(port, head + extra, body), cookie)

    key = b"idempotency-key: " + KEY_MARK + b"\r\n"
    head_server = "head" if size < 65536 else "head, large"
    params = encoded(row["responses_create_params"])
    chat = encoded({"messages": row["responses_create_params"]["input"]})
    scored = encoded({**row_of(size // 2), "response": response_of(size // 2)})
    made = [
        case(ECHO, "echo", "POST /", encoded(row)),
        case("liveness", "resources", "GET /readyz", b""),
        case("head, config", head_server, "GET /global_config_dict_yaml", b""),
        case("relay /run", "relay", "POST /run", encoded(row), extra=key),
        case("model /v1/responses", "model", "POST /v1/responses", params),
        case("model /v1/chat/completions", "model", "POST /v1/chat/completions", chat),
        case("resources /seed_session", "resources", "POST /seed_session", encoded(row)),
        case("resources tool", "resources", "POST /look_up", encoded({"text": text}), extra=key, cookie=True),
        case("resources /verify", "resources", "POST /verify", scored, extra=key, cookie=True),
        case("agent /run", "agent", "POST /run", encoded(row), extra=key),
    ]
    return made if size == min(SIZES.values()) else [case for case in made if case.name != "liveness"]


# Bodies


def encoded(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def row_of(size: int) -> dict[str, Any]:
    """A conversation of messages of half a kilobyte."""
    count = max(size // 550, 1)
    messages = [
        {"role": "assistant" if number % 2 else "user", "content": "What is the weather in Oslo? " * 17}
        for number in range(count)
    ]
    return {"responses_create_params": {"input": messages}, "city": "Oslo", "agent_ref": {"name": "stub"}}


def response_of(size: int) -> dict[str, Any]:
    part = {"type": "output_text", "text": "It snows in Oslo. " * (size // 18), "annotations": []}
    message = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    return {
        "id": "r",
        "object": "response",
        "created_at": 1790000000,
        "model": "stub",
        "output": [message],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {"input_tokens": 9, "output_tokens": 9, "total_tokens": 18},
    }


SHORT_RESPONSE = encoded(response_of(600))
SHORT_CHAT = encoded(
    {
        "id": "c",
        "object": "chat.completion",
        "created": 1790000000,
        "model": "stub",
        "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Snow."}}
        ],
    }
)


def stub_answer(path: str, body: bytes) -> bytes:
    """An agent and a verifier answer with the row and its reward, a model with a short text."""
    match path:
        case "/v1/responses":
            return SHORT_RESPONSE
        case "/v1/chat/completions":
            return SHORT_CHAT
        case "/run" | "/verify":
            return body[:-1] + b',"reward":1.0}'
        case _:
            return b"{}"


# Processes


class Processes:
    """Started one beside the other, waited for together, ended when the block is left."""

    def __init__(self, folder: Path, stub_url: str) -> None:
        self._folder = folder
        self._stub_url = stub_url
        self._started: dict[int, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> dict[str, tuple[int, int]]:
        """Pid and port by name."""
        resources = {"type": "resources_servers", "name": "stub"}
        model = {"type": "responses_api_models", "name": "stub"}
        agent = {"type": "responses_api_agents", "name": "stub"}
        upstream = {
            "openai_base_url": f"{self._stub_url}/v1",
            "openai_api_key": "none",
            "openai_model": "stub",
        }
        calls = {"resources_server": resources, "model_server": model}
        servers = {
            "echo": self._echo(),
            "relay": self._server("environment_servers/legacy_agent", {"agent_server": agent}),
            "model": self._server("responses_api_models/openai_model", upstream),
            "resources": self._server(TRIVIAL, {}),
            "agent": self._server("responses_api_agents/simple_agent", calls),
            **self._head(),
        }
        for pid, port in servers.values():
            wait_for(port, self._started[pid])
        return servers

    def __exit__(self, *raised: object) -> None:
        for process in self._started.values():
            process.terminate()
        for process in self._started.values():
            process.wait(10)

    def _echo(self) -> tuple[int, int]:
        port = free_port()
        script = Path(__file__).with_name("raw_http.py")
        return self._start([sys.executable, str(script), str(port)], ROOT, {}), port

    def _server(self, folder: str | Path, settings: dict[str, Any]) -> tuple[int, int]:
        place, port = IMAGES / folder, free_port()
        kind: Any = "resources_servers" if folder == TRIVIAL else place.parent.name
        part = make_part(place.name, kind, place.name, settings, {"stub": self._stub_url})
        changes = {"bind_port": port, "log_level": "WARNING"}
        return self._ours(place.name, part.model_copy(update=changes), place), port

    def _head(self) -> dict[str, tuple[int, int]]:
        """It listens twice: a small document for the host, a large one for the network."""
        port, large_port = free_port(), free_port()
        part = HeadPart(
            project="perf",
            bind_host="127.0.0.1",
            host_view_port=port,
            network_view_port=large_port,
            host_view="setting: 17\n" * (4096 // 12),
            network_view="setting: 17\n" * (262144 // 12),
            host_instances=[],
            network_instances=[],
            targets=[],
            log_level="WARNING",
        )
        pid = self._ours("head", part, self._folder)
        return {"head": (pid, port), "head, large": (pid, large_port)}

    def _ours(self, name: str, part: ServerPart | HeadPart, place: Path) -> int:
        """As the process runtime does it."""
        path = self._folder / f"{name}.json"
        path.write_text(part.model_dump_json())
        return self._start([sys.executable, "-m", "gymctl.servers"], place, {PART_VARIABLE: str(path)})

    def _start(self, command: list[str], place: Path, environ: dict[str, str]) -> int:
        environ = {**os.environ, "PYTHONPATH": str(ROOT), **environ}
        process = subprocess.Popen(command, cwd=place, env=environ, stdin=subprocess.DEVNULL)
        self._started[process.pid] = process
        return process.pid


def seconds(pid: int) -> float:
    """User and system time of a process without its children: what /proc/<pid>/stat counts in hundredths,
    from the process's CPU clock, which counts nanoseconds."""
    return time.clock_gettime((~pid << 3) | 2)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise SystemExit(f"{process.args!r} does not listen on port {port}")


if __name__ == "__main__":
    main()
