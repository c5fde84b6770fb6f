"""`gymctl dataset collate`: the declared datasets as one file per type, with their figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gymctl.cli import selection as flags
from gymctl.cli.output import Console
from gymctl.errors import UsageError

Mode = Annotated[
    str | None,
    typer.Option(
        "--mode",
        metavar="train_preparation|example_validation",
        help="train_preparation (default): train, validation and benchmark; else example. [mode]",
    ),
]
OutputDir = Annotated[
    str | None, typer.Option("--output-dir", metavar="DIR", help="Where the files go. [output_dirpath]")
]
Json = Annotated[bool, typer.Option("--json", help="What was written, as JSON on stdout.")]


@flags.takes_selection
def command(
    chosen: flags.Chosen, mode: Mode = None, output_dir: OutputDir = None, json: Json = False
) -> None:
    """Write DIR/<type>.jsonl and DIR/<type>_metrics.json from the datasets that a configuration declares.

    Rows say which instance declared them (`task_source`) instead of an agent. Beside each dataset lie its own
    prepared rows and figures; where its folder cannot be written, in DIR.
    """
    from gymctl.cli import collation
    from gymctl.config.checks.collation import read
    from gymctl.config.load import load
    from gymctl.rollouts.collate import MODES

    if mode is not None and mode not in MODES:
        raise UsageError(f"`--mode` must be {' or '.join(MODES)}, got `{mode}`")
    console = Console()
    config = load(chosen.selection(needs_model=False))
    settings = read({**config.document, **({"mode": mode} if mode else {})}, config.origins)
    folder = output_dir or settings.output_dirpath
    if folder is None:
        raise UsageError(
            "missing required configuration: output_dirpath", hint="name a folder: --output-dir DIR"
        )
    if settings.should_download:
        raise UsageError(
            "gymctl does not download datasets",
            where="should_download",
            hint="put the files where they are declared",
        )
    for warning in config.warnings:
        console.insist(f"warning: {warning}")
    types: tuple[str, ...] = MODES[settings.mode or "train_preparation"]
    made = collation.write(config, types, settings, Path(folder), console, is_beside=True)
    written = {type_: {"file": str(path), "rows": made.rows[type_]} for type_, path in made.files.items()}
    if json:
        console.json({"files": written, "prepared": [str(path) for path in made.prepared]})
        return
    console.table(("type", "rows", "file"), [(type_, f["rows"], f["file"]) for type_, f in written.items()])
    first = next(iter(written.values()))["file"]
    console.say(f"next: gymctl eval … --input {first}")
