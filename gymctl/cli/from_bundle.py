"""A word on the command line that names a bundle: checked, its images loaded, and run with its lock."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gymctl.cli.output import Console, reporter
from gymctl.cli.packed import Opened
from gymctl.cli.selection import Chosen

if TYPE_CHECKING:
    from gymctl.artefacts import opened
    from gymctl.cli.interrupts import Interrupts


def opened_bundle(chosen: Chosen, word: str, console: Console) -> Opened:
    """What the bundle comes to: its benchmark in the user's cache, its images in the engine.

    Raises as `artefacts.opened.open_bundle` and `artefacts.unbundle.load`.
    """
    from gymctl.cli import interrupts

    async def main(_: Interrupts) -> tuple[opened.Opened, Path, Path]:
        import asyncio

        from gymctl.artefacts import unbundle
        from gymctl.artefacts.opened import open_bundle
        from gymctl.engine import Engine

        console.transient(f"  checking {word}")
        found = await asyncio.to_thread(open_bundle, Path(word))
        engine = await asyncio.to_thread(Engine.connect)
        await unbundle.load(found, engine, reporter(console))
        folder = await asyncio.to_thread(unbundle.keep, found)
        return found, folder, await unbundle.lock_for(found, engine, folder)

    found, folder, lock = interrupts.run(main, console.insist)
    console.say(f"{Path(word).name} · {found.digest}")
    named = (Path(word).name, found.digest)
    return replace(Opened.of(chosen, word, folder, found.manifest.benchmark, named), lock=lock)
