"""A project as local processes: where no engine answers, and under a debugger. No isolation (DESIGN D4).

Each server is `python -m gymctl.servers` in an environment of its own, in its own session, on loopback. A
keeper (`keeper.py`) ends them all when gymctl is killed; after `release` they live on by themselves.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gymctl.compose.names import HEAD
from gymctl.config.tree.masking import is_secret
from gymctl.contract.part import PART_VARIABLE
from gymctl.counts import counted
from gymctl.errors import EngineError
from gymctl.paths import ProjectPaths
from gymctl.runtime import inforce, keeper, logs, probe, state
from gymctl.runtime.envs import Environments
from gymctl.runtime.running import LAST_LINES, RunningProject
from gymctl.runtime.stack import ServerDeath, ServerFacts, ServerStatus, StackFacts
from gymctl.runtime.state import ProjectState

WATCH_SECONDS = 0.1
_PYTHON_VARIABLES = ("PYTHONPATH", "PYTHONHOME", "PYTHONSAFEPATH", "VIRTUAL_ENV")


@dataclass(frozen=True, slots=True)
class Command:
    """How one server's process is started."""

    service: str
    python: Path
    folder: Path


class ProcessStack(RunningProject):
    """A project of local processes; started here, or found running (then it has no `children`)."""

    def __init__(self, paths: ProjectPaths, state: ProjectState) -> None:
        super().__init__(paths, state)
        self.children: dict[str, subprocess.Popen[bytes]] = {}
        self._keeper: subprocess.Popen[bytes] | None = None
        self._is_stopping = False

    @property
    def parts(self) -> Path:
        return self.paths.parts.resolve()

    def start(self, commands: Iterable[Command], environments: Environments, secrets: Iterable[str]) -> None:
        """Start every process. What was started when this raises is ended by `down`."""
        start = uuid.uuid4().hex
        self._keeper = _start_keeper(self.parts, start)
        environ = {**_environ(os.environ, secrets, environments.sdk), keeper.START_VARIABLE: start}
        self.paths.logs.mkdir(exist_ok=True)
        for command in commands:
            self.children[command.service] = _start(command, self.parts, self.log(command.service), environ)
        pids = {service: child.pid for service, child in self.children.items()}
        self.state = self.state.model_copy(update={"pids": pids})
        state.save(self.paths, self.state)

    async def last_lines(self, server: str, count: int = LAST_LINES) -> tuple[str, ...]:
        return logs.last_lines(self.log(self.state.services.get(server, server)), count)

    async def deaths(self) -> AsyncGenerator[ServerDeath]:
        """Look ten times a second: portable, and cheaper than a thread for each child."""
        reported: set[str] = set()
        while True:
            for service, exit_code in self._ended().items():
                if service not in reported and not self._is_stopping:
                    reported.add(service)
                    server = self.servers.get(service, service)
                    yield ServerDeath(server, exit_code, False, await self.last_lines(server))
            await asyncio.sleep(WATCH_SECONDS)

    async def status(self) -> Sequence[ServerStatus]:
        ended = self._ended()
        is_ready = await probe.ready(self.project, self.head_url, self.table, self.state.foreign)
        rows = []
        for service, server in self.servers.items():
            entry = self.table.servers.get(server)
            url = self.head_url if entry is None else entry.url
            alive = "ready" if is_ready[server] else "starting"
            rows.append(
                ServerStatus(
                    server=server,
                    kind=HEAD if entry is None else entry.kind,
                    state="failed" if service in ended else alive,
                    url=url,
                    exit_code=ended.get(service),
                    seconds_up=None if service in ended else time.time() - self.state.started,
                )
            )
        return rows

    async def facts(self) -> StackFacts:
        """Processes are children of gymctl's: what holds for it holds for them."""
        limits = inforce.here()
        return StackFacts({server: ServerFacts(limits) for server in self.servers.values()})

    def logs(self, query: logs.LogQuery) -> AsyncGenerator[logs.LogLine]:
        files = {server: self.log(service) for service, server in self.servers.items()}
        return logs.follow_files(files, query)

    async def release(self) -> None:
        if self._keeper is not None:
            await asyncio.to_thread(self._keeper.communicate, b"r")
            self._keeper = None

    async def down(self) -> None:
        self._is_stopping = True
        state.mark_stopping(self.paths)
        await asyncio.to_thread(keeper.stop, self.parts, reap=self._reap)
        await asyncio.to_thread(self._reap_all)
        await self.release()
        left = await asyncio.to_thread(keeper.find, self.parts)
        if left:
            raise EngineError(
                f"{counted(len(left), 'process', 'processes')} of `{self.project}` cannot be ended",
                details=[f"{row.service}: process {row.pid}" for row in left],
            )
        await asyncio.to_thread(state.forget, self.paths)

    def _ended(self) -> dict[str, int | None]:
        """Services whose process has ended, with the exit code where it is known (128 + n for a signal)."""
        if self.children:
            codes = {service: child.poll() for service, child in self.children.items()}
            return {service: _exit_code(code) for service, code in codes.items() if code is not None}
        alive = {row.pid for row in keeper.find(self.parts)}
        return {service: None for service, pid in self.state.pids.items() if pid not in alive}

    def _reap(self) -> None:
        for child in self.children.values():
            child.poll()

    def _reap_all(self) -> None:
        for child in self.children.values():
            child.wait(timeout=keeper.KILL_SECONDS)


def is_alive(paths: ProjectPaths) -> bool:
    return bool(keeper.find(paths.parts.resolve()))


def _exit_code(code: int) -> int:
    return code if code >= 0 else 128 - code


def _start(command: Command, parts: Path, log: Path, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        try:
            return subprocess.Popen(
                [str(command.python), "-m", "gymctl.servers"],
                cwd=command.folder,
                env={**environ, PART_VARIABLE: str(parts / f"{command.service}.json")},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise EngineError(
                f"`{command.service}` cannot be started: {error.strerror}", where=str(command.python)
            ) from error


def _start_keeper(parts: Path, start: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", "-S", keeper.__file__, str(parts), start],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
    )


def _environ(user: Mapping[str, str], secrets: Iterable[str], sdk: Path) -> dict[str, str]:
    """The user's environment without what names or holds a secret: a tool's code must not find the model's
    key there. A server gets what its block refers to in its part file."""
    hidden = tuple(secrets)
    kept = {
        name: value
        for name, value in user.items()
        if name not in _PYTHON_VARIABLES
        and not is_secret(name.lower())
        and not any(secret in value for secret in hidden)
    }
    return {**kept, "PYTHONPATH": str(sdk), "PYTHONUNBUFFERED": "1"}
