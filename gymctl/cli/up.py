"""`gymctl up`: build what is missing, start, wait until every server answers; follow the logs, or return."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from gymctl.cli import common_flags as common
from gymctl.cli import selection as flags
from gymctl.cli.from_registry import PlainHttp, opened
from gymctl.cli.output import Console, reporter
from gymctl.counts import counted
from gymctl.errors import ServerError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from gymctl.cli.interrupts import Interrupts
    from gymctl.config.model import Config
    from gymctl.runtime.running import RunningProject
    from gymctl.runtime.stack import RuntimeChoice


@flags.takes_selection
def command(
    chosen: flags.Chosen,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Return when ready; servers go on.")] = False,
    runtime: common.Runtime = "auto",
    wait: Annotated[
        float | None,
        typer.Option("--wait", metavar="SECONDS", help="How long servers may take to answer. 0: no limit."),
    ] = None,
    locked: flags.Locked = False,
    lock: flags.LockFile = None,
    plain_http: PlainHttp = False,
    start_anyway: flags.StartAnyway = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")
    ] = False,
    quiet: common.Quiet = False,
) -> None:
    """Start a project's servers and wait until every one answers. Ctrl+C stops and removes them."""
    choice = common.runtime_choice(runtime)
    asked_lock = flags.locked_by(locked, lock)
    if wait is not None and not 0 <= wait < float("inf"):
        raise UsageError(f"`--wait` must be a number of seconds, got {wait:g}", hint="0 is no limit")
    from gymctl.cli import interrupts
    from gymctl.config.load import load

    console = Console(is_quiet=quiet)
    found = opened(chosen, console, plain_http=plain_http)
    locked_by = found.locked_by(asked_lock)
    loaded = load(found.chosen.selection(start_anyway=start_anyway))
    for warning in loaded.warnings:
        console.insist(f"warning: {warning}")
    if wait is not None:
        settings = loaded.settings.model_copy(update={"server_spinup_timeout_seconds": wait or None})
        loaded = replace(loaded, settings=settings)
    if dry_run:
        _dry_run(loaded, choice, console, locked_by)
        return

    async def main(signals: Interrupts) -> None:
        await _up(loaded, choice, console, signals, detach=detach, locked_by=locked_by)

    interrupts.run(main, console.insist)


async def _up(
    config: Config,
    choice: RuntimeChoice,
    console: Console,
    signals: Interrupts,
    *,
    detach: bool,
    locked_by: Path | None,
) -> None:
    import time

    from gymctl.paths import ProjectPaths
    from gymctl.runtime.up import bring_up

    began = time.monotonic()
    servers = counted(len(config.servers), "server")
    console.say(f"{config.project} · {servers} · {ProjectPaths.of(config.project).folder}")
    console.say()
    told = reporter(console, config.servers)
    stack = await bring_up(config, choice=choice, reporter=told, locked_by=locked_by)
    console.say()
    console.say(f"ready in {time.monotonic() - began:.1f} s · head {stack.head_url}")
    if detach or stack.was_up:
        await stack.release()
        console.say(f"next: gymctl ps · gymctl logs -f · gymctl down {stack.project}")
        return
    console.say("Ctrl+C stops and removes everything; `gymctl down` from another terminal does too")
    console.say()
    try:
        await _follow(stack, config, console)
    finally:
        await signals.shielded(_take_down(stack, console))


async def _take_down(stack: RunningProject, console: Console) -> None:
    from gymctl.runtime import state

    if state.is_going(stack.paths):
        return
    await stack.down()
    what = "containers and their network" if stack.runtime == "compose" else "processes"
    console.insist(f"stopped and removed {len(stack.servers)} {what}")


async def _follow(stack: RunningProject, config: Config, console: Console) -> None:
    """Logs until the user stops, another command takes the project down, or a server dies."""
    import asyncio

    from gymctl.runtime import tasks

    async with tasks.group() as group:
        printing = group.create_task(_print_logs(stack, config, console))
        watching = group.create_task(_watch(stack, config))
        gone = group.create_task(_until_gone(stack))
        await asyncio.wait([gone, watching], return_when=asyncio.FIRST_COMPLETED)
        if watching.done() and watching.exception() is None:
            await gone
        for task in (printing, watching, gone):
            task.cancel()
    console.insist(f"{stack.project} was taken down by another command")


async def _print_logs(stack: RunningProject, config: Config, console: Console) -> None:
    import contextlib

    from gymctl.cli.logs import shown
    from gymctl.runtime.logs import LogQuery

    width = max(map(len, stack.servers.values()))
    async with contextlib.aclosing(stack.logs(LogQuery(follow=True, tail=0))) as lines:
        async for line in lines:
            console.data(shown(line, width, config.secrets))


async def _watch(stack: RunningProject, config: Config) -> None:
    import contextlib

    from gymctl.runtime import diagnosis, state

    async with contextlib.aclosing(stack.deaths()) as deaths:
        async for death in deaths:
            if state.is_going(stack.paths):
                return
            raise diagnosis.died(death, config, where=stack.place(death.server))
    raise ServerError("the servers can no longer be watched")


GONE_SECONDS = 0.5


async def _until_gone(stack: RunningProject) -> None:
    """Return when another command has taken the project down."""
    import asyncio

    from gymctl.runtime import state

    while True:
        await asyncio.sleep(GONE_SECONDS)
        if state.load(stack.paths) is None:
            return


def _dry_run(config: Config, choice: RuntimeChoice, console: Console, locked_by: Path | None) -> None:
    import asyncio

    from gymctl import engine
    from gymctl.compose.ray import clusters
    from gymctl.paths import ProjectPaths
    from gymctl.runtime import needs, preflight, up

    preflight.complete(config)
    paths = ProjectPaths.of(config.project)
    is_compose = choice == "compose" or (choice == "auto" and engine.answers())
    if locked_by is not None:
        asyncio.run(up.locked(choice, locked_by))  # refused as it would be in earnest
        is_compose = True
    world = needs.of_engine(engine.Engine.connect().api.info()) if is_compose else needs.of_machine()
    needs.check(config, world, reporter(console, config.servers))
    rows = [
        (name, block.kind, "chosen at start" if block.port < 0 else block.port)
        for name, block in config.servers.items()
    ]
    nodes = [(name, "ray", "-") for one in clusters(config) for name in one.nodes] if is_compose else []
    console.table(("SERVER", "KIND", "PORT"), [("head", "head", config.head_port), *rows, *nodes])
    if is_compose:
        console.say(
            f"would write {paths.compose} and {len(rows) + 1} part files, "
            f"{'build' if locked_by is None else 'pull'} missing images, and run"
        )
        console.data(
            f"docker compose -p {config.project} -f {paths.compose} up -d --remove-orphans --no-build"
        )
    else:
        console.say(
            f"would build missing environments, write {len(rows) + 1} part files, and run for each server"
        )
        console.data("python -m gymctl.servers")
