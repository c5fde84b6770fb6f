"""`gymctl dataset prepare`: run the scripts that make the files of declared datasets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gymctl.cli import selection as flags
from gymctl.cli.output import Console, reporter
from gymctl.errors import ConfigError

if TYPE_CHECKING:
    from gymctl.cli.interrupts import Interrupts


@flags.takes_selection
def command(
    chosen: flags.Chosen,
    json: Annotated[bool, typer.Option("--json", help="The files that were made, as JSON.")] = False,
) -> None:
    """Run the `prepare_script` of every dataset that a configuration declares, with its packages installed.

    Scripts run on this machine, as you; those that need NeMo Gym's package in a container. All are looked
    at before the first one runs. Files land beside the script, or below the current folder where its search
    root is an installation or cannot be written.
    `++prepare_script_args.size=50` is handed to each. `++use_cached_prepared_benchmarks=true` leaves out
    those whose file is there; `++num_prepare_benchmark_processes=4` runs four at once.
    """
    from gymctl.cli import interrupts
    from gymctl.config.checks.collation import read
    from gymctl.config.load import load
    from gymctl.runtime import prepare

    console = Console()
    config = load(chosen.selection(needs_model=False))
    settings = read(config.document, config.origins)
    for warning in config.warnings:
        console.insist(f"warning: {warning}")
    if not any(dataset.prepare_script for dataset in config.datasets):
        raise ConfigError("this configuration declares no dataset with a `prepare_script`")
    args = settings.prepare_script_args
    scripts = prepare.plan(config, args, keeps_files=settings.use_cached_prepared_benchmarks)
    names = [script.dataset.name for script in scripts]
    at_once = settings.num_prepare_benchmark_processes

    async def main(_: Interrupts) -> list[Path]:
        return await prepare.run(config, scripts, args, at_once, reporter(console, names))

    made = interrupts.run(main, console.insist)
    if json:
        console.json([str(path) for path in made])
    else:
        console.data("\n".join(map(str, made)) or "every file is there")
