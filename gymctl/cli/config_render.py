"""`gymctl config render`: the Compose file of a selection, with nothing built, started or written besides."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gymctl.cli import common_flags as common
from gymctl.cli import selection as flags
from gymctl.cli.output import Console
from gymctl.errors import PrerequisiteError

if TYPE_CHECKING:
    from gymctl.config.model import Config
    from gymctl.engine import Engine
    from gymctl.images.plan import BaseImage
    from gymctl.images.project import Pythons


@flags.takes_selection
def command(
    chosen: flags.Chosen,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to FILE, not to stdout.")
    ] = None,
    quiet: common.Quiet = False,
) -> None:
    """Print the Compose file that `up` would write. No engine is needed; nothing is built or started.

    No secret stands in it: what each server is told lies in part files, which `up` writes. Missing ports are
    those of the last start, else counted up from port_range_low without a look at what is free.
    """
    import asyncio

    from gymctl.config.load import load
    from gymctl.paths import ProjectPaths
    from gymctl.runtime import composefile

    console = Console(is_quiet=quiet)
    loaded = load(chosen.selection())
    for warning in loaded.warnings:
        console.insist(f"warning: {warning}")
    pythons, engine, note = asyncio.run(_facts(loaded))
    text = composefile.preview(
        loaded,
        pythons,
        has_start_interval=engine is not None and engine.facts.has_start_interval,
        platform=None if engine is None else engine.platform,
        is_emulated=engine is not None and engine.is_emulating,
    )
    if output is None:
        console.data(text.rstrip("\n"))
    else:
        _write(output, text)
    console.say(note)
    console.say(f"`gymctl up` writes ./parts/ beside its copy, {ProjectPaths.of(loaded.project).compose}")


async def _facts(config: Config) -> tuple[Pythons, Engine | None, str]:
    """The Python images, the engine that answers, and a line that says where this is from."""
    import asyncio

    from gymctl import engine
    from gymctl.images import base
    from gymctl.images.project import Pythons, needs_nemo_gym

    unknown = base.candidates(config)[0]
    without_id = Pythons(_unknown(unknown), _unknown(base.PUBLIC))
    inexact = f"image tags without the id of {unknown}, so `up` names others"
    if not await asyncio.to_thread(engine.answers):
        return without_id, None, f"no engine answers: {inexact}; no start_interval, which old ones refuse"
    try:
        found = await asyncio.to_thread(engine.Engine.connect, config.settings.build.platform)
    except PrerequisiteError as error:
        return without_id, None, f"{error.what}: {inexact}; no start_interval, which old ones refuse"
    python = await base.held(config, found)
    facts = f"as for Docker engine {found.facts.version}"
    if python is None:
        return without_id, found, f"{facts}, which has no base image yet: {inexact}"
    if not needs_nemo_gym(config):
        return Pythons(python), found, facts
    newer = await base.held_for_nemo_gym(config, found)
    if newer is None:
        facts += ", which has no image for NeMo Gym's servers yet: `up` names others for them"
    return Pythons(python, newer or _unknown(base.PUBLIC)), found, facts


def _unknown(reference: str) -> BaseImage:
    from gymctl.images.plan import BaseImage

    return BaseImage(reference, reference)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise PrerequisiteError(
            f"the compose file cannot be written: {error.strerror}", where=str(path)
        ) from error
