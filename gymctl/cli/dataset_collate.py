"""`gymctl dataset collate`: the declared datasets as one file per type, with their figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gymctl.cli import selection as flags
from gymctl.cli.output import Console
from gymctl.errors import UsageError

if TYPE_CHECKING:
    from gymctl.config.model import Config

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
    for warning in config.warnings:
        console.insist(f"warning: {warning}")
    types: tuple[str, ...] = MODES[settings.mode or "train_preparation"]
    if settings.should_download:
        _refuse_download(config, types, settings.data_source)
    made = collation.write(config, types, settings, Path(folder), console, is_beside=True)
    written = {type_: {"file": str(path), "rows": made.rows[type_]} for type_, path in made.files.items()}
    if json:
        console.json({"files": written, "prepared": [str(path) for path in made.prepared]})
        return
    console.table(("type", "rows", "file"), [(type_, f["rows"], f["file"]) for type_, f in written.items()])
    first = next(iter(written.values()))["file"]
    console.say(f"next: gymctl eval … --input {first}")


def _refuse_download(config: Config, types: Sequence[str], source: str) -> None:
    """Clients ask for the download as a matter of course; what is here need not be fetched."""
    absent = [one for one in config.datasets if one.type in types and one.path is None]
    if absent:
        raise UsageError(
            f"gymctl does not download datasets, and {', '.join(f'`{one.name}`' for one in absent)} "
            f"{'is' if len(absent) == 1 else 'are'} not here",
            where=f"should_download, data_source={source}",
            details=[f"put in place: {one.jsonl_fpath}" for one in absent],
        )
