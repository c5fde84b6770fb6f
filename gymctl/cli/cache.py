"""`gymctl cache info|prune`: what gymctl keeps between commands, and removing what is old."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from gymctl.cli import common_flags as common
from gymctl.cli import removal
from gymctl.cli.output import Console
from gymctl.counts import counted
from gymctl.errors import UsageError

if TYPE_CHECKING:
    from gymctl.cli.removal import Candidate
    from gymctl.images.package_cache import PackageCache

DAYS = 30.0
PACKAGES = "packages"
"""How the engine's caches are called: BuildKit keeps them, not a folder of ours."""

app = typer.Typer(
    help="What gymctl keeps between commands: environments, fetched packages.", no_args_is_help=True
)


@app.command("info")
def info(json: common.JsonForTable = False) -> None:
    """Show the parts of the cache with their sizes."""
    from gymctl.cli.amounts import size
    from gymctl.paths import cache_dir
    from gymctl.runtime import cache

    console = Console()
    console.transient("looking")
    found = cache.entries()
    folders = {
        folder: [one for one in found if one.path.parent == folder]
        for folder in dict.fromkeys(one.path.parent for one in found)
    }
    rows = [
        (folder, len(held), sum(one.size for one in held), max(one.days for one in held))
        for folder, held in folders.items()
    ]
    engines = [(one.name, one.size) for one in _packages()]
    console.clear_line()
    if json:
        console.json(
            {
                "folder": str(cache_dir()),
                "parts": [
                    {
                        "part": folder.name,
                        "folder": str(folder),
                        "entries": count,
                        "size": total,
                        "oldest_days": round(days, 1),
                    }
                    for folder, count, total, days in rows
                ],
                "engine": [{"name": name, "size": total} for name, total in engines],
            }
        )
        return
    table = [
        (folder.name, str(count), size(total), counted(round(days), "day"), str(folder))
        for folder, count, total, days in rows
    ]
    table += [(PACKAGES, "1", size(total), "-", f"{name}, kept by the engine") for name, total in engines]
    if table:
        console.table(("PART", "ENTRIES", "SIZE", "OLDEST", "WHERE"), table)
    else:
        console.say(f"nothing is kept in {cache_dir()}")


@app.command("prune")
def prune(
    parts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PART]...", help="Only these parts of `cache info`.", show_default=False),
    ] = None,
    days: Annotated[
        float, typer.Option("--days", metavar="DAYS", help="What was not used for so long.")
    ] = DAYS,
    everything: Annotated[
        bool, typer.Option("--all", help="However old, and the packages that the engine keeps for builds.")
    ] = False,
    dry_run: removal.DryRun = False,
    yes: removal.Yes = False,
    json: common.JsonForTable = False,
) -> None:
    """Remove what was not used for a while. Shows it first, and asks. What a process uses stays."""
    if not 0 <= days < float("inf"):
        raise UsageError(f"`--days` must be a number of days, got {days:g}")
    console = Console()
    console.transient("looking")
    found = list(_found(parts or (), 0.0 if everything else days, everything=everything))
    console.clear_line()
    removal.run(console, found, dry_run=dry_run, yes=yes, is_json=json)


def _found(parts: Collection[str], days: float, *, everything: bool) -> Iterator[Candidate]:
    from functools import partial

    from gymctl.cli.removal import Candidate
    from gymctl.engine import Engine
    from gymctl.images import package_cache
    from gymctl.runtime import cache

    entries = cache.entries()
    packages = _packages() if everything else []
    known = {*(one.part for one in entries), PACKAGES}
    unknown = [part for part in parts if part not in known]
    if unknown:
        raise UsageError(
            f"the cache has no part `{unknown[0]}`", hint=f"there are {', '.join(sorted(known))}"
        )
    for entry, why in cache.old([one for one in entries if not parts or one.part in parts], days):
        name = f"{entry.part}/{entry.path.name}"
        yield Candidate(entry.part, name, why, entry.size, partial(cache.remove, entry))
    if not parts or PACKAGES in parts:
        for one in packages:
            act = partial(package_cache.remove, one, Engine.connect())
            yield Candidate(PACKAGES, one.name, "kept by the engine for builds", one.size, act)


def _packages() -> list[PackageCache]:
    from gymctl import engine
    from gymctl.images import package_cache

    return package_cache.found(engine.Engine.connect()) if engine.answers() else []
