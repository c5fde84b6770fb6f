"""How a project comes up: look, plan, act. Whatever happens on the way, nothing half started stays."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from gymctl.compose import ray
from gymctl.compose.addresses import ViewName, host_view
from gymctl.compose.names import HEAD, service_names
from gymctl.config import ports
from gymctl.config.checks.instances import UNKNOWN_PORT
from gymctl.config.model import Config
from gymctl.errors import PrerequisiteError, UsageError
from gymctl.paths import ProjectPaths
from gymctl.runtime import (
    attach,
    cassettes,
    failure,
    lock,
    needs,
    parts,
    preflight,
    private,
    ready,
    state,
    tasks,
)
from gymctl.runtime.needs import World
from gymctl.runtime.parts import Parts, Wiring
from gymctl.runtime.ready import PortTakenError
from gymctl.runtime.running import RunningProject
from gymctl.runtime.stack import Reporter, RuntimeChoice, RuntimeName
from gymctl.runtime.state import ProjectState

PORT_TRIES = 4


class Launcher(Protocol):
    """The small interface behind which the two runtimes are (DESIGN D4)."""

    @property
    def name(self) -> RuntimeName: ...
    @property
    def view(self) -> ViewName: ...
    @property
    def description(self) -> str:
        """What servers run in, for the user's first line."""
        ...

    async def world(self) -> World:
        """What servers find where they run."""
        ...

    async def preflight(self, config: Config, reporter: Reporter) -> None:
        """Check what can be checked before any work."""
        ...

    async def prepare(self, config: Config, reporter: Reporter) -> None:
        """Build images or environments that are missing."""
        ...

    def head_network_port(self, previous: ProjectState | None) -> int: ...

    def owner(self) -> tuple[int, int] | None:
        """Who must be able to read the part files, when it is not the calling user."""
        ...

    def write(self, config: Config, paths: ProjectPaths, told: Parts) -> str:
        """Write the runtime's own files; returns the digest of everything that would run."""
        ...

    def stack(self, paths: ProjectPaths, state: ProjectState) -> Any: ...

    async def start(self, stack: Any, config: Config, reporter: Reporter) -> None: ...


async def bring_up(
    config: Config,
    *,
    choice: RuntimeChoice = "auto",
    launcher: Launcher | None = None,
    locked_by: Path | None = None,
    reporter: Reporter,
    base: Path | None = None,
    concurrency: int = 0,
    use: lock.Use | None = None,
    is_head_movable: bool = False,
) -> RunningProject:
    """Start the project and return when it is ready; one that is up and unchanged is returned as it is.

    launcher: starts the servers in its own way, instead of the one that `choice` names.
    locked_by: a lock file; only its images are run, by digest, and anything else is an IntegrityError.
    concurrency: connections that the caller means to hold; checked against what the engine survives.
    use: how the caller holds the project beyond the start; servers that others rely on are not changed.
    is_head_movable: nobody looks for the head at the default port, so it may be another one.
    When a start fails or is cancelled, everything that belongs to the project has been stopped and removed.
    """
    preflight.complete(config)
    paths = ProjectPaths.of(config.project, base)
    _make_folder(paths)
    with (
        lock.held(paths.lock, "up"),
        nullcontext(use) if use else lock.Use(paths.use) as used,
        failure.remembered(paths),
    ):
        if use is None:
            used.sign("up")
        known = state.load(paths)
        platform = config.settings.build.platform
        if launcher is None and locked_by is not None:
            launcher = await locked(choice, locked_by, platform)
        launcher = launcher or await choose(choice, reporter, paths, known, platform)
        previous = await asyncio.to_thread(_previous, known, paths, launcher.name)
        if previous is not None and previous.runtime != launcher.name:
            raise PrerequisiteError(
                f"`{config.project}` is up in the {previous.runtime} runtime",
                hint=f"gymctl down {config.project}, then again",
            )
        reporter.step("runtime", launcher.description)
        if has_new_servers(config, previous):
            needs.check(config, await launcher.world(), reporter)
        held = _ports_of(previous)
        if is_head_movable:
            config = _with_free_head_port(config, previous, reporter)
        cassettes.prepare(config, launcher.owner())
        preflight.mounts(config)
        preflight.captures(config, launcher.owner())
        await preflight.ports(config, own=held)
        await launcher.preflight(config, reporter)
        _warn_of_proxy(launcher, concurrency, reporter)
        await launcher.prepare(config, reporter)
        return await _with_ports(
            _Start(config, launcher, paths, previous, known, reporter, used, is_head_movable)
        )


def use_of(project: str, base: Path | None = None) -> lock.Use:
    """Hold a project's servers as they are; close it when they are no longer needed."""
    paths = ProjectPaths.of(project, base)
    _make_folder(paths)
    return lock.Use(paths.use)


async def choose(
    choice: RuntimeChoice,
    reporter: Reporter,
    paths: ProjectPaths,
    known: ProjectState | None,
    platform: str | None = None,
) -> Launcher:
    """As asked; for `auto` what the project already runs in, else containers where an engine answers, else
    local processes, said aloud."""
    is_local = known is not None and known.runtime == "process" and attach.is_alive(paths, known)
    if choice == "process" or (choice == "auto" and is_local):
        return _process()
    from gymctl import engine

    if choice == "auto" and not await asyncio.to_thread(engine.answers):
        reporter.note(
            "no Docker engine answers: servers run as local processes, without isolation "
            f"({_engine_command()} changes that)"
        )
        return _process()
    from gymctl.runtime.compose import ComposeLauncher

    return ComposeLauncher(await asyncio.to_thread(engine.Engine.connect, platform))


async def locked(choice: RuntimeChoice, lock_file: Path, platform: str | None = None) -> Launcher:
    """Containers of the images in a lock. Raises UsageError: asked to run without containers, or
    there is no such lock; PrerequisiteError: no engine answers; IntegrityError: the lock is broken."""
    if choice == "process":
        raise UsageError(
            "--locked is about images, and local processes run none",
            where="--runtime process",
            hint="leave one of the two out",
        )
    from gymctl.engine import Engine
    from gymctl.images.lock import read
    from gymctl.images.locked import Source
    from gymctl.runtime.compose import ComposeLauncher

    is_packed = lock_file.with_name("benchmark.json").is_file()
    source = Source(read(lock_file), str(lock_file), is_packed)
    return ComposeLauncher(await asyncio.to_thread(Engine.connect, platform), source)


def has_new_servers(config: Config, previous: RunningProject | None) -> bool:
    """Whether a server would start that is not up yet: what it needs is looked at before images are built."""
    return previous is None or not config.servers.keys() <= previous.state.services.keys()


def _previous(known: ProjectState | None, paths: ProjectPaths, chosen: RuntimeName) -> RunningProject | None:
    """The project as it is up already. Blocking."""
    if known is None:
        return None
    if known.runtime == "compose" and chosen == "process":
        from gymctl import engine

        if not engine.answers():
            return None  # its containers ended with the engine
    return attach.open_project(paths, known) if attach.is_alive(paths, known) else None


def _process() -> Launcher:
    from gymctl.runtime.process import ProcessLauncher

    return ProcessLauncher()


def _engine_command() -> str:
    from gymctl.paths import PACKAGE

    return "`make engine`" if (PACKAGE.parent / "Makefile").is_file() else "installing Docker"


@dataclass(frozen=True, slots=True)
class _Start:
    """One start, with what was found at its beginning."""

    config: Config
    """Ports as the user gave them; -1 where they are ours to choose."""
    launcher: Launcher
    paths: ProjectPaths
    previous: RunningProject | None
    """The same project, when it is up already."""
    known: ProjectState | None
    reporter: Reporter
    use: lock.Use
    is_head_movable: bool


async def _with_ports(start: _Start) -> RunningProject:
    """Try until every server has its port: between looking and binding somebody else may be faster."""
    avoid: set[int] = set()
    for attempt in range(1, PORT_TRIES + 1):
        config = _allocated(start, avoid)
        try:
            return await _attempt(start, config)
        except PortTakenError as error:
            block = start.config.servers.get(error.server)
            is_ours = block is not None and not block.is_port_explicit
            is_second = error.server == HEAD and error.port != config.head_port
            is_movable = error.server == HEAD and start.is_head_movable
            if attempt == PORT_TRIES or not (is_ours or is_second or is_movable):
                raise await _taken(error, config) from None
            if is_movable:
                moved = _with_free_head_port(start.config, start.previous, start.reporter)
                start = replace(start, config=moved)
            avoid.add(error.port)
    raise AssertionError("the last attempt returns or raises")


def _with_free_head_port(config: Config, previous: RunningProject | None, reporter: Reporter) -> Config:
    held = None if previous is None else int(previous.head_url.rpartition(":")[2])
    moved = ports.with_free_head_port(config, held=held)
    if previous is None and moved.head_port != config.head_port:
        reporter.step("head", f"{config.head_port} is taken, so at {moved.head_port}")
    return moved


async def _attempt(start: _Start, config: Config) -> RunningProject:
    launcher, paths = start.launcher, start.paths
    up_state = start.previous.state if start.previous is not None else None
    wiring = Wiring(
        view=launcher.view,
        secret=private.project_secret(paths.secret),
        head_network_port=launcher.head_network_port(up_state),
    )
    told = parts.build(config, wiring)
    inputs = launcher.write(config, paths, told)
    if start.previous is not None and up_state is not None:
        if up_state.inputs == inputs and await _is_whole(start.previous):
            start.reporter.note(f"{config.project} is up already, nothing has changed")
            start.previous.was_up = True
            return start.previous
        if not start.use.is_alone:
            raise lock.in_use(paths.use)
        if launcher.name == "process":
            await tasks.finish(start.previous.down())
    view = host_view(config)
    clusters = ray.clusters(config) if launcher.view == "network" else ()
    stack = launcher.stack(
        paths,
        ProjectState(
            project=config.project,
            runtime=launcher.name,
            head_url=f"http://{view.head_host}:{view.head_port}",
            table=parts.table(config),
            services=service_names(config.servers),
            ray={name: needed for cluster in clusters for name, needed in cluster.needed_by.items()},
            ray_ports=tuple(one.dashboard_port for one in clusters if one.dashboard_port is not None),
            foreign=frozenset(name for name, one in config.servers.items() if one.family != "gymctl"),
            inputs=inputs,
            head_network_port=wiring.head_network_port,
        ),
    )
    return await _started(stack, start, config, told, wiring.secret)


async def _started(
    stack: RunningProject, start: _Start, config: Config, told: Parts, secret: bytes
) -> RunningProject:
    state.save(
        start.paths, stack.state
    )  # first, so that `down` finds what a start that is killed has written
    began = time.monotonic()  # building images is no server's fault
    try:
        _write_secrets(start, told, secret)
        await start.launcher.start(stack, config, start.reporter)
        await ready.wait(stack, config, start.reporter, began=began)
    except BaseException:
        start.reporter.progress("stopping what was started")
        await tasks.finish(stack.down())
        raise
    stack.state = stack.state.model_copy(update={"phase": "ready"})
    state.save(start.paths, stack.state)
    return stack


def _write_secrets(start: _Start, told: Parts, secret: bytes) -> None:
    """What each server is told, and the key behind it; nothing for servers that left the config."""
    paths = start.paths
    private.make_folder(paths.parts)
    private.write_secret(paths.secret, secret)
    written = {paths.part(service): parts.dump(part) for service, part in told.items()}
    for path, text in written.items():
        private.write(path, text, owner=start.launcher.owner())
    for path in set(paths.parts.iterdir()) - written.keys():
        path.unlink()


def _allocated(start: _Start, avoid: set[int]) -> Config:
    """Ports for all: of a project that is up the same ones, else those of last time where they are free."""
    before = {} if start.known is None else _server_ports(start.known)
    config = start.config
    if start.previous is not None:
        pinned = {
            name: replace(block, port=before[name])
            for name, block in config.servers.items()
            if block.port == UNKNOWN_PORT and name in before and before[name] not in avoid
        }
        config = replace(config, servers={**config.servers, **pinned})
    return ports.allocate(config, preferred=before, avoid=avoid)


def _server_ports(known: ProjectState) -> Mapping[str, int]:
    return {name: entry.address.port for name, entry in known.table.servers.items()}


def _ports_of(previous: RunningProject | None) -> set[int]:
    if previous is None:
        return set()
    head_port = int(previous.head_url.rpartition(":")[2])
    return {head_port, *_server_ports(previous.state).values(), *previous.state.ray_ports}


async def _is_whole(project: RunningProject) -> bool:
    return all(row.state == "ready" for row in await project.status())


async def _taken(error: PortTakenError, config: Config) -> PrerequisiteError:
    block = config.servers.get(error.server)
    host = config.head_host if block is None else block.host
    wanted = preflight.Wanted(error.server, host, error.port)
    return preflight.port_taken([(wanted, await preflight.holder(host, error.port))])


def _warn_of_proxy(launcher: Launcher, concurrency: int, reporter: Reporter) -> None:
    capacity = preflight.proxy_capacity() if concurrency and launcher.name == "compose" else None
    if capacity is not None and concurrency > capacity:
        reporter.note(
            f"warning: docker-proxy serves published ports here and dies at about {capacity:,} connections; "
            f"with --concurrency {concurrency:,} set `userland-proxy` to false in /etc/docker/daemon.json"
        )


def _make_folder(paths: ProjectPaths) -> None:
    """`.gymctl/<project>/`, entered by its owner only and never committed."""
    private.make_folder(paths.folder)
    ignore = paths.folder.parent / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n")
