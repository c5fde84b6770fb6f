"""A project as containers: started by `docker compose`, watched and read through the engine's socket.

Everything is found again by label, so that `down` removes what a killed start left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

import docker.errors

from gymctl.compose.names import HEAD
from gymctl.compose.ray import KIND
from gymctl.compose.render import PROFILE_LABEL, PROJECT_LABEL, SERVER_LABEL
from gymctl.counts import counted
from gymctl.engine import Engine
from gymctl.errors import EngineError, GymctlError, PrerequisiteError
from gymctl.images import lock as images_lock
from gymctl.images.lock import Lock
from gymctl.images.locking import lock_of_containers
from gymctl.paths import ProjectPaths
from gymctl.programs import Finished
from gymctl.runtime import container_facts, container_logs, events, logs, private, probe, state
from gymctl.runtime.container_facts import Container
from gymctl.runtime.ready import PortTakenError
from gymctl.runtime.running import LAST_LINES, RunningProject
from gymctl.runtime.stack import Reporter, ServerDeath, ServerStatus, StackFacts
from gymctl.runtime.state import ProjectState

GRACE_SECONDS = 2
KEPT_LOG_LINES = 5000
REMOVE_TRIES = 20
REMOVE_PAUSE = 0.25

_PORT_TAKEN = re.compile(
    r"Bind for \S+:(\d+) failed: port is already allocated"
    r"|listen tcp\d? \S+:(\d+): bind: address already in use"
)
_NO_NETWORK = re.compile(r"non-overlapping IPv4 address pool|fully subnetted")
_DEPENDENCY = re.compile(r"dependency failed to start: container (\S+)")
_NO_IMAGE = re.compile(r"No such image: (\S+)")


class ComposeStack(RunningProject):
    """A project of containers; started here, or found running."""

    def __init__(self, paths: ProjectPaths, state: ProjectState, engine: Engine) -> None:
        super().__init__(paths, state)
        self._engine = engine
        self._since = int(time.time())
        self._is_stopping = False

    def place(self, server: str) -> str:
        return f"container of {server}, log kept in {super().place(server)}"

    async def start(self, reporter: Reporter, secrets: Collection[str]) -> None:
        """`docker compose up -d`. No `--wait`: compose then fails when a service has finished well
        (docker/compose#10596), and our own polling is faster."""
        reporter.progress(f"starting {counted(len(self.servers), 'container')}")
        removed: list[str] = []

        def read(line: str) -> None:
            if match := re.search(r"Container (\S+)\s+Removed", line):
                removed.append(match[1])

        command = ("up", "-d", "--remove-orphans", "--no-build")
        finished = await self._compose(*command, on_line=read, secrets=secrets)
        if finished.exit_code != 0 and not await asyncio.to_thread(self.is_death, finished):
            raise self.failure(finished)
        if removed:
            reporter.note(f"removed {', '.join(removed)}: no longer in the config")

    def is_death(self, finished: Finished) -> bool:
        """A container that others wait for has ended: `deaths` tells of it, with reason and last lines."""
        match = _DEPENDENCY.search("\n".join(finished.last_lines))
        return match is not None and any(
            row.name == match[1] and not row.is_running for row in self.containers()
        )

    def containers(self) -> list[Container]:
        """All containers of the project, running or not. Blocking, milliseconds."""
        return containers(self._engine, self.project)

    async def deaths(self) -> AsyncGenerator[ServerDeath]:
        killed_for_memory: set[str] = set()
        reported: set[str] = set()
        async with contextlib.aclosing(events.follow(self._engine, self.project, self._since)) as stream:
            async for event in stream:
                if event.action == "oom":
                    killed_for_memory.add(event.container)
                if event.action != "die" or self._is_stopping or event.container in reported:
                    continue
                death = await self._death(event, event.container in killed_for_memory)
                if death is not None and not self._is_stopping:
                    reported.add(event.container)
                    yield death

    async def last_lines(self, server: str, count: int = LAST_LINES) -> tuple[str, ...]:
        """Also keeps the log on disk: the container will be gone when somebody wants to read it."""
        found = [row for row in await asyncio.to_thread(self.containers) if row.server == server]
        if not found:
            return ()
        lines = await asyncio.to_thread(container_logs.last, self._engine, found[0].id, KEPT_LOG_LINES)
        private.make_folder(self.paths.logs)
        path = self.log(self.state.services.get(server, server))
        private.write(path, "".join(f"{line}\n" for line in lines))
        return tuple(lines[-count:])

    async def joined(self) -> Collection[str]:
        rows = await asyncio.to_thread(self.containers)
        return {row.server for row in rows if row.server in self.state.ray and row.is_healthy}

    async def status(self) -> Sequence[ServerStatus]:
        is_ready, joined, found = await asyncio.gather(
            probe.ready(self.project, self.head_url, self.table, self.state.foreign),
            self.joined(),
            asyncio.to_thread(self._inspected),
        )
        is_ready |= {name: name in joined for name in self.state.ray}
        return [self._status(server, found.get(server), is_ready[server]) for server in self.servers.values()]

    async def facts(self) -> StackFacts:
        return await container_facts.look(self._engine, self.containers, self.paths.compose)

    async def lock(self) -> Lock | None:
        return await asyncio.to_thread(self._lock)

    def _lock(self) -> Lock:
        """The file beside the compose file says what was meant; the engine, what is run."""
        known = images_lock.read(self.paths.images) if self.paths.images.is_file() else Lock()
        return lock_of_containers(known, {row.image_id for row in self.containers()}, self._engine)

    def logs(self, query: logs.LogQuery) -> AsyncGenerator[logs.LogLine]:
        rows = [(row.server, row.id) for row in self.containers() if query.wants(row.server)]
        return container_logs.read(self._engine, rows, query)

    async def release(self) -> None:
        """Containers live on by themselves."""

    async def down(self) -> None:
        """`docker compose down`, then look: it returns 0 when it left something behind, and a start that was
        cancelled may still be creating a container while the engine is already told to remove all."""
        self._is_stopping = True
        state.mark_stopping(self.paths)
        finished = await self._compose(
            "down", "-t", str(GRACE_SECONDS), "--volumes", "--remove-orphans", keep_lines=50
        )
        left = await asyncio.to_thread(remove, self._engine, self.project)
        if left:
            raise EngineError(
                f"{counted(len(left), 'thing')} of `{self.project}` cannot be removed",
                details=[*left, *finished.last_lines[-5:]],
                hint=f"gymctl down {self.project}, again",
            )
        await asyncio.to_thread(state.forget, self.paths)

    async def _compose(self, *args: str, secrets: Collection[str] = (), **options: Any) -> Finished:
        file = ("-f", str(self.paths.compose)) if self.paths.compose.is_file() else ()
        return await self._engine.run(
            "compose", "-p", self.project, *file, *args, secrets=secrets, environ=_COMPOSE_ENVIRON, **options
        )

    async def _death(self, event: events.Event, was_out_of_memory: bool) -> ServerDeath | None:
        """None when the container was replaced: compose stops the old one when a service has changed."""
        rows = await asyncio.to_thread(self.containers)
        same = [row for row in rows if row.server == event.server]
        if not any(row.id == event.container for row in same) or len(same) > 1:
            return None
        if same[0].is_running:
            return None
        known = await asyncio.to_thread(_inspect, self._engine, event.container)
        ended: Mapping[str, Any] = known.get("State", {}) if known else {}
        return ServerDeath(
            server=event.server,
            exit_code=ended.get("ExitCode", event.exit_code),
            was_out_of_memory=was_out_of_memory or bool(ended.get("OOMKilled")),
            last_lines=await self.last_lines(event.server),
            needed_by=self.state.ray.get(event.server, ()),
        )

    def _inspected(self) -> dict[str, Mapping[str, Any]]:
        found = ((row.server, _inspect(self._engine, row.id)) for row in self.containers())
        return {server: known for server, known in found if known}

    def _status(self, server: str, known: Mapping[str, Any] | None, is_ready: bool) -> ServerStatus:
        ended = known["State"] if known else {}
        is_running = bool(ended.get("Running"))
        return ServerStatus(
            server=server,
            kind=self._kind(server),
            state=_state(is_running, is_ready, ended),
            url=self._url(server),
            image=known["Config"]["Image"] if known else None,
            container=known["Name"].lstrip("/") if known else None,
            exit_code=None if is_running or not known else ended.get("ExitCode"),
            was_out_of_memory=bool(ended.get("OOMKilled")),
            seconds_up=_seconds_since(ended["StartedAt"]) if is_running else None,
            restarts=int(known["RestartCount"]) if known else 0,
            profile=(known["Config"]["Labels"] or {}).get(PROFILE_LABEL, "closed") if known else "closed",
        )

    def _kind(self, server: str) -> str:
        if server in self.state.ray:
            return KIND
        return self.table[server].kind if server in self.table.servers else HEAD

    def _url(self, server: str) -> str | None:
        """Nobody outside dials Ray."""
        if server in self.state.ray:
            return None
        return self.table[server].url if server in self.table.servers else self.head_url

    def failure(self, finished: Finished) -> GymctlError:
        """Why `up -d` failed, from what compose printed."""
        text = "\n".join(finished.last_lines)
        if match := _PORT_TAKEN.search(text):
            port = int(match[1] or match[2])
            return PortTakenError(self._server_at(port), port)
        if _NO_NETWORK.search(text):
            return PrerequisiteError(
                "the engine has no address range left for another network",
                hint="stop projects that are not needed (gymctl ps --all-projects), `docker network prune`, "
                "or set `default-address-pools` in /etc/docker/daemon.json",
            )
        if match := _NO_IMAGE.search(text):
            return EngineError(
                f"image {match[1]} is gone", hint="run the same command again: it is looked for anew"
            )
        try:
            finished.check(f"the containers of `{self.project}` did not start")
        except EngineError as error:
            return error
        raise AssertionError("called for a failure only")

    def _server_at(self, port: int) -> str:
        if port in self.state.ray_ports:
            return next(iter(self.state.ray))
        rows = ((name, entry.address.port) for name, entry in self.table.servers.items())
        return next((name for name, own in rows if own == port), HEAD)


_COMPOSE_ENVIRON = {"COMPOSE_ANSI": "never", "COMPOSE_PROFILES": "", "COMPOSE_PROJECT_NAME": ""}
"""The user's own Compose settings are not meant for this file."""


def containers(engine: Engine, project: str | None = None) -> list[Container]:
    """Containers of one project, or of all of gymctl's."""
    label = PROJECT_LABEL if project is None else f"{PROJECT_LABEL}={project}"
    rows = engine.api.api.containers(all=True, filters={"label": label})
    return [
        Container(
            id=row["Id"],
            name=str((row.get("Names") or [row["Id"][:12]])[0]).lstrip("/"),
            server=row["Labels"].get(SERVER_LABEL, ""),
            image=row["Image"],
            state=row["State"],
            is_healthy="(healthy)" in row.get("Status", ""),
            image_id=row["ImageID"],
        )
        for row in rows
    ]


def remove(engine: Engine, project: str) -> list[str]:
    """Remove by label whatever is there, and look again until nothing is. Returns what stayed. Blocking."""
    left: list[str] = []
    for attempt in range(REMOVE_TRIES):
        found = containers(engine, project)
        networks = engine.api.api.networks(filters={"label": f"{PROJECT_LABEL}={project}"})
        left = [*(f"container {row.name}" for row in found), *(f"network {row['Name']}" for row in networks)]
        if not left:
            return []
        if attempt:
            time.sleep(REMOVE_PAUSE)
        for row in found:
            _quietly(engine.api.api.remove_container, row.id, force=True, v=True)
        for row in networks:
            _quietly(engine.api.api.remove_network, row["Id"])
    return left


def _quietly(call: Any, *args: Any, **options: Any) -> None:
    """Gone already, or removal in progress: the next look tells."""
    with contextlib.suppress(docker.errors.APIError):
        call(*args, **options)


def _inspect(engine: Engine, container: str) -> Mapping[str, Any] | None:
    try:
        return engine.api.api.inspect_container(container)
    except docker.errors.NotFound:
        return None


def _state(is_running: bool, is_ready: bool, ended: Mapping[str, Any]) -> str:
    if is_running:
        return "ready" if is_ready else "starting"
    return "failed" if ended.get("ExitCode") not in (None, 0, 143) or ended.get("OOMKilled") else "stopped"


def _seconds_since(timestamp: str) -> float:
    """`2026-11-29T20:45:01.123456789Z`: nanoseconds, which fromisoformat does not read."""
    whole = re.sub(r"(\.\d{1,6})\d*", r"\1", timestamp).replace("Z", "+00:00")
    return time.time() - datetime.fromisoformat(whole).timestamp()
