"""`gymctl ps`: the servers of this folder's projects, or every project on this machine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gymctl.cli import common_flags as common
from gymctl.cli.output import Console

if TYPE_CHECKING:
    from gymctl.runtime.running import RunningProject
    from gymctl.runtime.stack import ServerStatus

HEADER = ("SERVER", "KIND", "STATE", "UP", "URL", "PROFILE", "IMAGE")
KINDS = {
    "responses_api_models": "model",
    "resources_servers": "resources",
    "responses_api_agents": "agent",
    "environment_servers": "environment",
}


def command(
    project: Annotated[
        str | None, typer.Argument(metavar="[PROJECT]", help="Only this project.", show_default=False)
    ] = None,
    all_projects: Annotated[
        bool, typer.Option("--all-projects", "-a", help="Every project on this machine.")
    ] = False,
    json: common.JsonForTable = False,
) -> None:
    """Show servers with their state, address and image."""
    console = Console()
    if all_projects:
        _all_projects(console, is_json=json)
    else:
        _servers(console, project, is_json=json)


def _servers(console: Console, project: str | None, *, is_json: bool) -> None:
    import asyncio

    from gymctl.cli.projects import find
    from gymctl.runtime import attach

    names = [project] if project is not None else [known.project for known in attach.projects()]
    stacks = [find(name) for name in names]

    async def statuses() -> list[Sequence[ServerStatus]]:
        return [await stack.status() for stack in stacks]

    found = list(zip(stacks, asyncio.run(statuses()), strict=True))
    if is_json:
        console.json([_record(stack, rows) for stack, rows in found])
        return
    for stack, rows in found:
        console.say(f"{stack.project}   {stack.runtime}   {_since(stack.project, stack.state.started, rows)}")
        console.table(HEADER, [_row(row) for row in rows])
    if not found:
        console.say("no project is up in this folder (gymctl ps --all-projects shows other folders')")


def _since(project: str, started: float, rows: Sequence[ServerStatus]) -> str:
    """How long it has been up; a project of which nothing runs any more is not up."""
    if any(row.state in ("ready", "starting") for row in rows):
        return f"up {_age(time.time() - started)}"
    return f"nothing runs any more (gymctl down {project} clears it away)"


def _record(stack: RunningProject, rows: Sequence[ServerStatus]) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "project": stack.project,
        "runtime": stack.runtime,
        "head_url": stack.head_url,
        "started": stack.state.started,
        "servers": [asdict(row) for row in rows],
    }


def _row(row: ServerStatus) -> tuple[str, ...]:
    state = row.state
    if row.was_out_of_memory:
        state += " (out of memory)"
    elif row.exit_code is not None:
        state += f" (exit {row.exit_code})"
    image = image_text(row.image)
    age = "-" if row.seconds_up is None else _age(row.seconds_up)
    return row.server, KINDS.get(row.kind, row.kind), state, age, row.url or "-", row.profile, image


def image_text(image: str | None) -> str:
    """A tag is its own text; by digest only a locked project runs."""
    if image is not None and image.startswith("sha256:"):
        return f"{image.removeprefix('sha256:')[:7]} locked"
    return (image or "-").removeprefix("gymctl/")


def _age(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h"


def _all_projects(console: Console, *, is_json: bool) -> None:
    from gymctl.runtime import machine

    rows = machine.projects()
    if is_json:
        console.json([row.__dict__ for row in rows])
    elif rows:
        table = [(row.project, row.runtime, f"{row.running} of {row.servers}", row.folder) for row in rows]
        console.table(("PROJECT", "RUNTIME", "RUNNING", "FOLDER"), table)
    else:
        console.say("no project on this machine")
