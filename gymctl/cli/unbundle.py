"""`gymctl unbundle`: check a bundle, load its images, unpack its benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gymctl.cli import common_flags as common
from gymctl.cli import packed
from gymctl.cli.amounts import size
from gymctl.cli.output import Console, reporter
from gymctl.counts import counted
from gymctl.errors import UsageError

if TYPE_CHECKING:
    from gymctl.artefacts.opened import Opened
    from gymctl.cli.interrupts import Interrupts


def command(
    file: Annotated[Path, typer.Argument(metavar="FILE.gymb", help="What `gymctl bundle` wrote.")],
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="DIR", help="Unpack the benchmark here. Default: the user's cache."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check every byte and say what is inside; do nothing.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="What is inside, as JSON on stdout.")] = False,
    quiet: common.Quiet = False,
) -> None:
    """Check every byte of a bundle, load its images into the engine, and unpack its benchmark.

    `gymctl eval FILE.gymb` does the same and runs it. No network and no registry is needed.
    """
    if to is not None and to.exists():
        raise UsageError("the folder is there already", where=str(to), hint="--to names a new one")
    from gymctl.cli import interrupts

    console = Console(is_quiet=quiet or json)

    async def main(_: Interrupts) -> None:
        import asyncio

        from gymctl.artefacts import unbundle
        from gymctl.artefacts.opened import open_bundle
        from gymctl.engine import Engine

        console.transient(f"  checking {file.name}")
        found = await asyncio.to_thread(open_bundle, file)
        folder: Path | None = None
        if not dry_run:
            engine = await asyncio.to_thread(Engine.connect)
            await unbundle.load(found, engine, reporter(console))
            if to is None:
                folder = await asyncio.to_thread(unbundle.keep, found)
            else:
                folder = to
                await asyncio.to_thread(unbundle.unpack_to, found, to)
        if json:
            console.json(_facts(found, folder))
        else:
            _show(found, folder, console)

    interrupts.run(main, console.insist)


def _facts(found: Opened, folder: Path | None) -> dict[str, object]:
    return {
        "benchmark": found.manifest.benchmark,
        "name": found.manifest.name,
        "digest": found.digest,
        "gymctl": found.manifest.gymctl,
        "folder": None if folder is None else str(folder),
        "images": [image.model_dump() for image in found.lock.images],
        "files": [entry.model_dump() for entry in found.manifest.files],
    }


def _show(found: Opened, folder: Path | None, console: Console) -> None:
    header = ("IMAGE", "PLATFORM", "SIZE", "ID")
    rows = [
        (image.name, image.platform, size(image.size), f"{image.id[:19]}…") for image in found.lock.images
    ]
    console.table(header, rows)
    console.say()
    count = f"{counted(len(rows), 'image')}, {counted(len(found.manifest.files), 'file')}"
    console.say(f"{found.manifest.name}: every byte as it was packed · {count}")
    console.say(f"benchmark {found.digest}")
    places = [one.path for one in found.manifest.files if one.path.startswith("cassettes/")]
    cassettes = {place: None if folder is None else folder / place for place in places}
    if folder is not None:
        console.say(f"unpacked to {folder}")
    run = packed.command(str(found.path), found.manifest.model, cassettes)
    console.say(f"run it: {run}")
