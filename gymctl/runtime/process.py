"""How a project of local processes is started: environments, parts, processes."""

from __future__ import annotations

import asyncio
import hashlib
import random
from pathlib import Path

from gymctl.compose.addresses import LOOPBACK, ViewName
from gymctl.compose.names import HEAD, service_names
from gymctl.config.model import Config
from gymctl.config.ports import is_free
from gymctl.counts import counted
from gymctl.errors import PrerequisiteError
from gymctl.images.context import server_context
from gymctl.paths import ProjectPaths
from gymctl.runtime import envs, needs, parts, tasks
from gymctl.runtime.envs import Environments
from gymctl.runtime.processes import Command, ProcessStack
from gymctl.runtime.stack import Reporter, RuntimeName
from gymctl.runtime.state import ProjectState


class ProcessLauncher:
    """`runtime.up.Launcher` without an engine."""

    name: RuntimeName = "process"
    view: ViewName = "host"

    def __init__(self) -> None:
        self._environments: Environments | None = None

    @property
    def description(self) -> str:
        return "local processes, without isolation"

    async def world(self) -> needs.World:
        return needs.of_machine()

    async def preflight(self, config: Config, reporter: Reporter) -> None:
        """Nothing beyond ports: uv says by itself what it lacks. Servers of NeMo Gym's own need an image."""
        for name, block in config.servers.items():
            if block.family == "nemo_gym":
                raise PrerequisiteError(
                    f"`{name}` is one of NeMo Gym's own servers, which run in containers only",
                    where=str(block.folder),
                    hint="`gymctl doctor` says what the Docker engine lacks; --runtime compose insists on it",
                )
            if block.uses_ray and config.settings.ray.address is None:
                raise PrerequisiteError(
                    f"`{name}` uses Ray, which gymctl starts in containers only",
                    where=str(block.folder / block.entrypoint),
                    hint="++ray_head_node_address=… joins one that is there (`ray start --head` starts it)",
                )

    async def prepare(self, config: Config, reporter: Reporter) -> None:
        self._environments = await envs.ensure(config, reporter)

    def head_network_port(self, previous: ProjectState | None) -> int:
        if previous is not None and previous.head_network_port:
            return previous.head_network_port
        candidates = random.sample(range(20001, 30000), 50)
        return next(port for port in candidates if is_free(LOOPBACK, port))

    def write(self, config: Config, paths: ProjectPaths, told: parts.Parts) -> str:
        """The digest of what would run: parts, packages and the server folders themselves."""
        environments = self._ready()
        total = hashlib.sha256(str(environments.sdk).encode())
        for service, part in told.items():
            total.update(f"\0{service}\0{parts.digest(part)}".encode())
        for name, block in config.servers.items():
            folder = server_context(block.folder).digest()
            total.update(f"\0{name}\0{environments.pythons[name]}\0{folder}".encode())
        return total.hexdigest()

    def owner(self) -> tuple[int, int] | None:
        return None

    def stack(self, paths: ProjectPaths, state: ProjectState) -> ProcessStack:
        return ProcessStack(paths, state)

    async def start(self, stack: ProcessStack, config: Config, reporter: Reporter) -> None:
        environments = self._ready()
        commands = [Command(HEAD, environments.head, stack.paths.folder)]
        for name, service in service_names(config.servers).items():
            folder: Path = config.servers[name].folder
            commands.append(Command(service, environments.pythons[name], folder))
        reporter.progress(f"starting {counted(len(commands), 'process', 'processes')}")
        # To its end, also when cancelled: a thread that goes on would start servers behind `down`'s back.
        await tasks.finish(asyncio.to_thread(stack.start, commands, environments, config.secrets))

    def _ready(self) -> Environments:
        assert self._environments is not None, "prepare comes first"
        return self._environments
