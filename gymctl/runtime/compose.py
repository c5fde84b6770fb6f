"""How a project of containers is started: images, compose file, `docker compose up -d`."""

from __future__ import annotations

import asyncio
import hashlib
import os

from gymctl.compose import render
from gymctl.compose.addresses import ViewName
from gymctl.config.model import Config
from gymctl.contract.servers import HEAD_PORT
from gymctl.engine import Engine
from gymctl.images import build
from gymctl.images.build import Images
from gymctl.images.locked import Source, ensure_locked
from gymctl.paths import ProjectPaths
from gymctl.runtime import composefile, needs, parts, preflight, private
from gymctl.runtime.containers import ComposeStack
from gymctl.runtime.stack import Reporter, RuntimeName
from gymctl.runtime.state import ProjectState


class ComposeLauncher:
    """`runtime.up.Launcher` on a Docker engine."""

    name: RuntimeName = "compose"
    view: ViewName = "network"

    def __init__(self, engine: Engine, locked: Source | None = None) -> None:
        """locked: the lock whose images are run, by digest; without one, what is missing is built."""
        self._engine = engine
        self._locked = locked
        self._images: Images | None = None

    @property
    def description(self) -> str:
        return f"one container per server, Docker engine {self._engine.facts.version}"

    async def world(self) -> needs.World:
        return needs.of_engine(await asyncio.to_thread(self._engine.api.info))

    async def preflight(self, config: Config, reporter: Reporter) -> None:
        preflight.ray_address(config)
        await asyncio.to_thread(preflight.engine, config, self._engine)

    async def prepare(self, config: Config, reporter: Reporter) -> None:
        if self._locked is not None:
            self._images = await ensure_locked(config, self._locked, self._engine, reporter)
        else:
            self._images = await build.ensure(config, self._engine, reporter)

    def head_network_port(self, previous: ProjectState | None) -> int:
        return HEAD_PORT

    def owner(self) -> tuple[int, int] | None:
        """Containers of root's projects run as 999, who must be able to read the part files."""
        user = render.user(os.getuid(), os.getgid())
        return (999, 999) if user == render.CONTAINER_USER else None

    def write(self, config: Config, paths: ProjectPaths, told: parts.Parts) -> str:
        """Write the compose file, and beside it which images it names; returns the digest of the first."""
        assert self._images is not None, "prepare comes first"
        facts = composefile.Facts(
            self._images.by_server,
            self._images.base,
            self._engine.facts.has_start_interval,
            self._engine.platform,
            self._engine.is_emulating,
        )
        digests = {service: parts.digest(part) for service, part in told.items()}
        text = composefile.text(config, paths, facts, digests)
        private.write(paths.compose, text)
        private.write(paths.images, self._images.lock.text())
        return hashlib.sha256(text.encode()).hexdigest()

    def stack(self, paths: ProjectPaths, state: ProjectState) -> ComposeStack:
        return ComposeStack(paths, state, self._engine)

    async def start(self, stack: ComposeStack, config: Config, reporter: Reporter) -> None:
        await stack.start(reporter, config.secrets)
