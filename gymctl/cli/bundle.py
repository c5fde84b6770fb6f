"""`gymctl bundle`: a benchmark, its images, data and SBOMs in one file that runs without a network."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gymctl.cli import amounts, packed
from gymctl.cli import common_flags as common
from gymctl.cli import selection as flags
from gymctl.cli.output import Console, reporter
from gymctl.counts import counted
from gymctl.errors import PrerequisiteError, UsageError

if TYPE_CHECKING:
    from gymctl.artefacts.made import Made
    from gymctl.cli.interrupts import Interrupts


@flags.takes_images()
def command(
    chosen: flags.Chosen,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE.gymb", help="Default: <benchmark>.gymb."),
    ] = None,
    cassette: Annotated[
        list[Path] | None,
        typer.Option("--cassette", metavar="FILE", help="Answers of a model to play back. Repeatable."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="What was written, as JSON on stdout.")] = False,
    quiet: common.Quiet = False,
) -> None:
    """Write one file with a benchmark: `gymctl unbundle` or plain `docker load` uses it, with no network.

    Images that are missing are built. The model is chosen by who runs it, so the small built-in
    model servers come along, and that of --model-type. The same benchmark gives the same bytes.
    """
    from gymctl.cli import interrupts

    console = Console(is_quiet=quiet or json)
    selection = chosen.selection(needs_model=False)
    cassettes = {f"cassettes/{path.name}": path for path in cassette or ()}
    _check(output, cassette or ())

    async def main(_: Interrupts) -> None:
        import asyncio

        from gymctl.artefacts.bundle import SUFFIX, bundle
        from gymctl.artefacts.made import made
        from gymctl.config.load import load
        from gymctl.engine import Engine

        told = reporter(console)
        config = load(replace(selection, model_type=None))
        engine = await asyncio.to_thread(Engine.connect, config.settings.build.platform)
        ready = await made(config, selection, engine, told, extra=cassettes)
        file = output or Path(f"{ready.content.name}{SUFFIX}")
        size = await bundle(ready.content, ready.lock, engine, file, told)
        _tell(file, size, ready, cassettes, console, is_json=json)

    interrupts.run(main, console.insist)


def _check(output: Path | None, cassettes: list[Path] | tuple[()]) -> None:
    """What would otherwise be told after minutes of building."""
    from gymctl.config.reading.roots import is_special
    from gymctl.contract import cassette

    if output is not None and not output.parent.is_dir():
        raise PrerequisiteError("the folder of the bundle is not there", where=str(output.parent))
    folder = Path() if output is None else output.parent
    if not os.access(folder, os.W_OK | os.X_OK):
        hint = "--output names another place"
        raise PrerequisiteError("the folder of the bundle is closed to you", where=str(folder), hint=hint)
    if output is not None and output.is_dir():
        raise UsageError("a bundle is a file, and this is a folder", where=str(output))
    if output is not None and is_special(output):
        # It would be replaced: /dev/null by a file of that name, for everybody on this machine.
        raise UsageError("a bundle is a file, and this is a device, a pipe or a socket", where=str(output))
    names = [path.name for path in cassettes]
    if len(set(names)) != len(names):
        raise UsageError("two cassettes have one name", where="--cassette", hint="rename one of them")
    for path in cassettes:
        try:
            with path.open("rb") as stream:
                cassette.check_header(stream.readline(), str(path))
        except OSError as error:
            what = f"the cassette cannot be read: {error.strerror}"
            raise PrerequisiteError(what, where=str(path)) from None


def _tell(
    file: Path, size: int, ready: Made, cassettes: Mapping[str, Path], console: Console, *, is_json: bool
) -> None:
    from gymctl.artefacts.pack import pack

    content, images = ready.content, ready.lock.images
    digest = pack(content).descriptor.digest
    if is_json:
        console.json(
            {
                "file": str(file),
                "size": size,
                "benchmark": content.name,
                "digest": digest,
                "images": [image.model_dump() for image in images],
            }
        )
        return
    console.data(str(file))
    count = f"{counted(len(images), 'image')}, {counted(len(content.manifest.files), 'file')}"
    console.say(f"{amounts.size(size)} · {count} · benchmark {digest}")
    run = packed.command(file.name, content.manifest.model, cassettes)
    console.say(f"anywhere, without a network: {run}")
