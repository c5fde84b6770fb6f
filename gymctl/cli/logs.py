"""`gymctl logs`: the merged log lines of a project's servers, secrets cut out."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated

import typer

from gymctl.cli.output import Console
from gymctl.errors import Interrupted, UsageError

if TYPE_CHECKING:
    from gymctl.cli.interrupts import Interrupts
    from gymctl.paths import ProjectPaths
    from gymctl.runtime.logs import LogLine, LogQuery

_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?")


def command(
    servers: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SERVER]...", help="Only these servers.", show_default=False),
    ] = None,
    project: Annotated[
        str | None,
        typer.Option("--project", "-p", metavar="NAME", help="Which project, if there are several."),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with lines as they come.")] = False,
    since: Annotated[
        str | None, typer.Option("--since", metavar="AGE", help="Only the last `10m`, `90s`, `1h30m`.")
    ] = None,
    tail: Annotated[
        int | None, typer.Option("--tail", "-n", metavar="N", min=0, help="Only the last N lines of each.")
    ] = None,
) -> None:
    """Print log lines of this folder's project. Of a project that is down: what was kept of it."""
    import time

    from gymctl.cli import interrupts
    from gymctl.runtime.logs import LogQuery

    age = None if since is None else seconds(since)
    query = LogQuery(
        servers=tuple(servers or ()),
        follow=follow,
        since=None if age is None else time.time() - age,
        tail=tail,
    )
    console = Console()

    async def main(_: Interrupts) -> None:
        await _print(project, query, console)

    try:
        interrupts.run(main, lambda _: None)
    except Interrupted:
        if not follow:
            raise


async def _print(project: str | None, query: LogQuery, console: Console) -> None:
    import contextlib

    from gymctl.cli.projects import find, kept
    from gymctl.runtime.at_rest import secrets_of

    paths = kept(project)
    if paths is not None:
        await _print_kept(paths, query, console)
        return
    stack = find(project)
    unknown = [name for name in query.servers if name not in stack.servers.values()]
    if unknown:
        raise UsageError(
            f"no server `{unknown[0]}` in `{stack.project}`",
            hint=f"its servers: {', '.join(stack.servers.values())}",
        )
    hidden = secrets_of(stack.paths)
    width = max(len(name) for name in stack.servers.values() if query.wants(name))
    async with contextlib.aclosing(stack.logs(query)) as lines:
        async for line in lines:
            console.data(shown(line, width, hidden))


async def _print_kept(paths: ProjectPaths, query: LogQuery, console: Console) -> None:
    """What is left of a project that is down: the logs of processes, and of containers that died."""
    from dataclasses import replace

    from gymctl.compose.names import legal
    from gymctl.runtime.at_rest import secrets_of
    from gymctl.runtime.logs import follow_files

    console.say(f"{paths.folder.name} is down; this was kept of its logs")
    files = {path.stem: path for path in sorted(paths.logs.glob("*.log"))}
    query = replace(query, servers=tuple(map(legal, query.servers)), follow=False)
    hidden = secrets_of(paths)
    width = max(map(len, files))
    async for line in follow_files(files, query):
        console.data(shown(line, width, hidden))


def shown(line: LogLine, width: int, secrets: Collection[str]) -> str:
    """`weather  INFO seeded`: the server's name in a column, its own prefix dropped, secrets masked."""
    from gymctl.config.tree.masking import redact

    return f"{line.server:<{width}}  {redact(line.text, secrets).removeprefix(f'({line.server}) ')}"


def seconds(age: str) -> float:
    """`90`, `90s`, `10m`, `1h30m` as seconds."""
    match = _DURATION.fullmatch(age)
    if not age or match is None:
        raise UsageError(f"`{age}` is no age", where="--since", hint="write 90s, 10m or 1h30m")
    hours, minutes, rest = (int(part or 0) for part in match.groups())
    return hours * 3600.0 + minutes * 60 + rest
