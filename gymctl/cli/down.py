"""`gymctl down`: stop and remove a project, whatever is left of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gymctl.cli.output import Console
from gymctl.counts import counted
from gymctl.errors import UsageError

if TYPE_CHECKING:
    from gymctl.cli.interrupts import Interrupts


def command(
    project: Annotated[
        str | None,
        typer.Argument(metavar="[PROJECT]", help="Which one, if several are up here.", show_default=False),
    ] = None,
    all_projects: Annotated[bool, typer.Option("--all", help="All projects of this folder.")] = False,
) -> None:
    """Stop and remove a project's servers. Nothing to stop is no error."""
    if project is not None and all_projects:
        raise UsageError("--all and a project name exclude each other")
    from gymctl.cli import interrupts

    console = Console()

    async def main(signals: Interrupts) -> None:
        names = _names(project, all_projects)
        if not names:
            console.say("nothing is up in this folder")
        for name in names:
            await signals.shielded(_down(name, console))

    interrupts.run(main, console.insist)


def _names(project: str | None, all_projects: bool) -> list[str]:
    from gymctl.runtime import attach

    if project is not None:
        return [project]
    here = [known.project for known in attach.projects()]
    if len(here) > 1 and not all_projects:
        raise UsageError(f"several projects are up here: {', '.join(here)}", hint="name one, or --all")
    return here


async def _down(name: str, console: Console) -> None:
    import asyncio

    from gymctl.paths import ProjectPaths
    from gymctl.runtime import at_rest, attach, lock, state

    paths = ProjectPaths.of(name)
    known = state.load(paths)
    if known is None:
        removed = await asyncio.to_thread(_remove_leftovers, name)
        if paths.parts.is_dir():
            with lock.held(paths.lock, "down"):
                if state.load(paths) is None:  # else somebody has just started it
                    await asyncio.to_thread(at_rest.clear, paths)
        console.say(f"removed {counted(removed, 'leftover')} of {name}" if removed else f"{name} is not up")
        return
    with lock.held(paths.lock, "down"):
        stack = attach.open_project(paths, known)
        console.transient(f"stopping {name}")
        await stack.down()
    others = f"the head and {counted(len(known.ray), 'Ray container')}" if known.ray else "the head"
    console.say(f"{name} is down: {counted(len(known.services), 'server')} and {others} stopped and removed")


def _remove_leftovers(name: str) -> int:
    """Containers and networks of a project that no file here tells of (another folder, a deleted one)."""
    from gymctl import engine

    if not engine.answers():
        return 0
    from gymctl.runtime import containers

    connected = engine.Engine.connect()
    count = len(containers.containers(connected, name))
    left = containers.remove(connected, name)
    if left:
        from gymctl.errors import EngineError

        raise EngineError(f"{counted(len(left), 'thing')} of `{name}` cannot be removed", details=left)
    return count
