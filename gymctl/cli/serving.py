"""The servers of a command that needs them for a while: those that run, or its own, taken down afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from gymctl.cli.interrupts import Interrupts
from gymctl.cli.output import Console, reporter
from gymctl.config.model import Config
from gymctl.contract.servers import HEAD_PORT, ServerTable
from gymctl.errors import EngineError, PrerequisiteError
from gymctl.paths import ProjectPaths
from gymctl.rollouts.head import server_table
from gymctl.runtime import attach, cassettes, lock
from gymctl.runtime.stack import RuntimeChoice, Stack
from gymctl.runtime.up import bring_up, use_of
from gymctl.transport import Transport


@dataclass(frozen=True, slots=True)
class Served:
    """The servers of a run. `stack` is None when only a head is known."""

    table: ServerTable
    stack: Stack | None


@dataclass(frozen=True, slots=True)
class Serving:
    """Where a command's servers come from."""

    config: Config | None
    """None when only a running head is asked (--no-serve)."""
    override: Callable[[str], str | None]
    """The value of a `+key=value` that was typed, or None."""
    console: Console
    runtime: RuntimeChoice
    concurrency: int
    locked_by: Path | None = None
    """The lock whose images are run; None: what the folders come to."""
    is_kept_up: bool = False
    head: str | None = None
    """The head that env.yaml and the command line name, for when no configuration does."""

    async def running(self, transport: Transport) -> Served:
        """What --no-serve means: the selected project, the head that is named, or the only one here."""
        config, port = self.config, self.override("head_server.port")
        host = self.override("head_server.host")
        names = [] if port or host else [project.project for project in attach.projects()]
        if config is not None:
            names = [config.project]
        stack = await asyncio.to_thread(attach.running, names[0]) if len(names) == 1 else None
        if stack is not None:
            return Served(stack.table, stack)
        head = self.head or f"http://{host or '127.0.0.1'}:{port or HEAD_PORT}"
        if config is not None:
            head = f"http://{config.head_host}:{config.head_port}"
        return Served(await server_table(transport, head), None)

    @asynccontextmanager
    async def served(self, found: Served | None, interrupts: Interrupts) -> AsyncIterator[Served]:
        """The servers: those that run already, or started here and taken down at the end."""
        if found is not None:
            with _shared(found.stack) if found.stack is not None else nullcontext():
                yield found
            return
        assert self.config is not None
        with use_of(self.config.project) as use:
            async with self._started(self.config, use, interrupts) as served:
                yield served

    @asynccontextmanager
    async def _started(self, asked: Config, use: lock.Use, interrupts: Interrupts) -> AsyncIterator[Served]:
        was_up = await asyncio.to_thread(_already_up, asked.project)
        is_left_over = was_up is not None and use.is_alone and use.signed_by == "eval"
        if is_left_over:
            self.console.say(f"  {asked.project} was left running by an evaluation that was killed")
        is_ours = was_up is None or is_left_over
        if is_ours:
            use.sign("eval")
        stack = await bring_up(
            asked,
            choice=self.runtime,
            reporter=reporter(self.console, asked.servers),
            locked_by=self.locked_by,
            concurrency=self.concurrency,
            use=use,
            is_head_movable=True,
        )
        if not is_ours:
            use.share()
        try:
            yield Served(stack.table, stack)
        finally:
            if not is_ours:
                # Servers that had to be started anew are children of ours; they must not end with us.
                await interrupts.shielded(stack.release())
                self.console.say(f"project {stack.project} was up before and stays up")
            elif self.is_kept_up:
                await interrupts.shielded(stack.release())
                use.sign("up")
                self.console.say(f"project {stack.project} stays up; stop it: gymctl down {stack.project}")
            else:
                await interrupts.shielded(stack.down())
                for path in await asyncio.to_thread(cassettes.finish, asked):
                    self.console.say(f"  recorded {path}; play it: --model replay:{path.name}")


def _shared(stack: Stack) -> AbstractContextManager[None]:
    return lock.shared(ProjectPaths.of(stack.project).use)


def _already_up(project: str) -> Stack | None:
    """The project when somebody started it before us; an engine that is gone took its containers along."""
    try:
        return attach.running(project)
    except (EngineError, PrerequisiteError):
        return None
