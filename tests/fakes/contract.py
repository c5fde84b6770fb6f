"""What the contract suite runs against: servers by role, a project of our own, a planned endpoint."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import signal
import socket
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from fakes.openai_upstream import OpenAIUpstream
from fakes.program import gymctl

from gymctl.contract.part import ServerPart

ROLES = (
    *("resources", "stateful", "sessions", "step", "mcp", "agent", "player", "simulation"),
    *("environment", "native", "rows", "model"),
)

_PREFERRED: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "resources": ("resources_servers", ("weather", "example_single_tool_call")),
    "stateful": ("resources_servers", ("counter", "example_session_state_mgmt")),
    "sessions": ("resources_servers", ("counter", "example_single_tool_call")),
    "step": ("resources_servers", ("blackjack",)),
    "mcp": ("resources_servers", ("weather", "example_mcp_weather")),
    "agent": ("responses_api_agents", ("simple_agent",)),
    "player": ("responses_api_agents", ("gymnasium_agent",)),
    "simulation": ("responses_api_agents", ("tool_simulation_agent",)),
    "environment": ("environment_servers", ("legacy_agent",)),
    "native": ("environment_servers", ("single_agent_turn",)),
    "rows": ("environment_servers", ("single_agent_turn_legacy",)),
    "model": ("responses_api_models", ("openai_model", "vllm_model")),
}
"""Role -> kind, and the implementations that can play it. The first server of the table that does gets it."""

WITH_SESSION = ("resources_url", "stateful_url", "agent_url", "model_url")
WITHOUT_SESSION = ("environment_url", "native_environment_url")
"""Fixtures of the contract suite: servers that keep a session by a cookie, and those that have none."""
AGENT_BLOCK = {
    "model_server": {"type": "responses_api_models", "name": "policy_model"},
    "resources_server": {"type": "resources_servers", "name": "weather"},
}
"""Of an agent with the model server and the resources server of that project."""


@dataclass(frozen=True)
class Server:
    """One server of the target."""

    url: str
    name: str
    """Its instance id; empty when the target was given as a bare URL."""


@dataclass(frozen=True)
class Target:
    head: str | None
    servers: Mapping[str, Server]
    """By role."""
    is_ours: bool
    """Built with gymctl; a foreign server need not keep the rules that only we have."""

    @classmethod
    def behind_head(cls, url: str) -> Target:
        """Read as trainers read it (CONTRACT 2.5): JSON, then YAML, then `<id>.<type>.<impl>.{host,port}`."""
        document = yaml.safe_load(json.loads(_get(f"{url}/global_config_dict_yaml")[1]))
        servers: dict[str, Server] = {}
        for name, block in document.items():
            for role, found in _roles(name, block):
                servers.setdefault(role, found)
        return cls(url, servers, is_ours=any(_is_ours(server.url) for server in servers.values()))

    @classmethod
    def given(cls, options: Iterable[str]) -> Target:
        """From the values of `--contract-target`: heads, and `ROLE=URL` for servers without one."""
        head, servers = None, {}
        for option in options:
            role, equals, url = option.partition("=")
            if equals and role in ROLES:
                servers[role] = Server(url.rstrip("/"), "")
            else:
                head = option.rstrip("/")
                servers = {**cls.behind_head(head).servers, **servers}
        return cls(head, servers, is_ours=any(_is_ours(server.url) for server in servers.values()))


def _roles(name: str, block: Any) -> Iterator[tuple[str, Server]]:
    if not isinstance(block, dict):
        return
    for role, (kind, implementations) in _PREFERRED.items():
        for implementation in implementations:
            with contextlib.suppress(KeyError, TypeError):
                inner = block[kind][implementation]
                over_mcp = bool(inner.get("expose_tools_over_mcp"))
                if role in ("resources", "mcp") and over_mcp != (role == "mcp"):
                    continue
                yield role, Server(f"http://{inner['host']}:{inner['port']}", name)


def _get(url: str) -> tuple[Mapping[str, str], bytes]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=30) as answer:
        return answer.headers, answer.read()


def _is_ours(url: str) -> bool:
    try:
        return "x-gymctl-project" in _get(f"{url}/readyz")[0]
    except urllib.error.HTTPError as answer:
        return "x-gymctl-project" in answer.headers


PROJECT = """\
policy_model:
  responses_api_models:
    openai_model:
      entrypoint: app.py
      openai_base_url: {upstream}
      openai_api_key: sk-contract-suite
      openai_model: tiny-1
      upstream_unreachable_seconds: 2
weather:
  resources_servers:
    weather: {{entrypoint: app.py, domain: agent}}
counter:
  resources_servers:
    counter: {{entrypoint: app.py, domain: agent}}
game:
  resources_servers:
    blackjack: {{entrypoint: app.py, domain: games}}
weather_over_mcp:
  resources_servers:
    weather: {{entrypoint: app.py, domain: agent, expose_tools_over_mcp: true}}
desk_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {{type: resources_servers, name: weather}}
      model_server: {{type: responses_api_models, name: policy_model}}
player:
  responses_api_agents:
    gymnasium_agent:
      entrypoint: app.py
      resources_server: {{type: resources_servers, name: game}}
      model_server: {{type: responses_api_models, name: policy_model}}
      max_steps: 3
simulation:
  responses_api_agents:
    tool_simulation_agent:
      entrypoint: app.py
      resources_server: {{type: resources_servers, name: weather}}
      model_server: {{type: responses_api_models, name: policy_model}}
desk_environment_server:
  environment_servers:
    legacy_agent:
      entrypoint: app.py
      agent_server: {{type: responses_api_agents, name: desk_agent}}
turn_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {{type: resources_servers, name: weather}}
      model_server: {{type: responses_api_models, name: policy_model}}
turn_environment_server:
  environment_servers:
    single_agent_turn:
      entrypoint: app.py
      agent_server: {{type: responses_api_agents, name: turn_agent}}
      resources_server: {{type: resources_servers, name: weather}}
      resources_tool_transports: [direct_http]
      default_episode_timeout_seconds: 60
      cleanup_timeout_seconds: 10
row_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {{type: resources_servers, name: weather}}
      model_server: {{type: responses_api_models, name: policy_model}}
row_environment_server:
  environment_servers:
    single_agent_turn_legacy:
      entrypoint: app.py
      agent_server: {{type: responses_api_agents, name: row_agent}}
      resources_server: {{type: resources_servers, name: weather}}
      resources_tool_transports: [direct_http]
      cleanup_timeout_seconds: 10
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def own_project(folder: Path, upstream: str, runtime: str = "process") -> Iterator[str]:
    """The head's URL of a project, started by `gymctl up` as a user does."""
    (folder / "contract.yaml").write_text(PROJECT.format(upstream=upstream))
    port = free_port()
    flags = ("--project", f"contract-{port}", "--runtime", runtime, "--detach")
    try:
        done = gymctl("up", "contract.yaml", *flags, f"++head_server.port={port}", cwd=folder)
        assert done.returncode == 0, done.stderr
        yield f"http://127.0.0.1:{port}"
    finally:
        gymctl("down", f"contract-{port}", cwd=folder)


@contextlib.contextmanager
def endpoint_in_a_thread(port: int | None) -> Iterator[OpenAIUpstream]:
    """A model endpoint that outlives the event loops of single tests. With a port: for containers, too."""
    upstream = OpenAIUpstream() if port is None else OpenAIUpstream("0.0.0.0", port)
    with in_a_thread(upstream):
        yield upstream


@contextlib.contextmanager
def in_a_thread(upstream: contextlib.AbstractAsyncContextManager[Any]) -> Iterator[None]:
    """A fake that is served by an event loop of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(upstream.__aenter__(), loop).result(10)
    try:
        yield
    finally:
        asyncio.run_coroutine_threadsafe(upstream.__aexit__(None, None, None), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


class Process:
    """`python -m gymctl.servers` with one part; `lines` are what it has said so far, both streams."""

    def __init__(self, part: ServerPart, folder: Path, files: tuple[int, int] | None = None) -> None:
        """folder: the server's. files: soft and hard limit of open files."""
        self.url = f"http://{part.bind_host}:{part.bind_port}"
        self.lines: list[str] = []
        self._part = part
        self._folder = folder
        self._files = files

    async def __aenter__(self) -> Process:
        with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as file:
            file.write(self._part.model_dump_json())
        self._file = Path(file.name)
        command = shlex.join([sys.executable, "-m", "gymctl.servers"])
        if self._files is not None:
            soft, hard = self._files
            command = f"ulimit -Sn {soft} && ulimit -Hn {hard} && exec {command}"
        self._process = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            command,
            cwd=self._folder,
            env={**os.environ, "GYMCTL_PART": file.name},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGTERM)
        await self.ended()
        self._file.unlink()

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.lines.append(line.decode().rstrip("\n"))

    async def ended(self) -> int:
        """Its exit code, once it has said all it had to say."""
        async with asyncio.timeout(60):
            await self._reading
            return await self._process.wait()

    async def ready(self) -> str:
        """Its URL, once it answers."""
        async with asyncio.timeout(60), aiohttp.ClientSession() as session:
            while True:
                assert self._process.returncode is None, self.lines
                with contextlib.suppress(aiohttp.ClientError):
                    async with session.get(f"{self.url}/readyz"):
                        return self.url
                await asyncio.sleep(0.05)


async def until(condition: Callable[[], object], seconds: float = 30) -> None:
    """Wait, but not for ever, for what happens elsewhere."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - another thread or process makes it true
            await asyncio.sleep(0.02)


def cookies_of(answer: aiohttp.ClientResponse) -> dict[str, str]:
    """Name and raw value of every Set-Cookie; `dict(jar, **cookies_of(answer))` is the next jar."""
    jar: dict[str, str] = {}
    for line in answer.headers.getall("set-cookie", []):
        name, _, value = line.partition(";")[0].partition("=")
        jar[name] = value
    return jar


def sending(jar: Mapping[str, str]) -> dict[str, str]:
    """The request headers that send a jar back, byte for byte as it came."""
    return {"cookie": "; ".join(f"{name}={value}" for name, value in jar.items())} if jar else {}
