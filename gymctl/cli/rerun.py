"""`gymctl rerun`: the evaluation of a run once more, from the command in its passport."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gymctl.cli import common_flags as common

Run = Annotated[
    str, typer.Argument(metavar="RUN", help="A rollouts file, its folder, the beginning of its name, @last.")
]
Exact = Annotated[
    bool,
    typer.Option("--exact", help="Refuse to start, with exit code 9, unless everything is as it was."),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE.jsonl", help="Default: RUN_rerun.jsonl beside the run."),
]
SetFile = Annotated[
    list[str] | None,
    typer.Option(
        "--set-file",
        metavar="KEY=FILE",
        help="The text of a file for a secret that was typed at first, and is not kept. Repeatable.",
    ),
]
Gate = Annotated[bool, typer.Option("--gate", help="Exit code 7 when a record is not equal.")]


def command(
    run: Run,
    exact: Exact = False,
    output: Output = None,
    set_file: SetFile = None,
    gate: Gate = False,
    json: common.JsonResult = False,
    quiet: common.QuietResult = False,
) -> None:
    """Make the evaluation of a run again, into a new output, and say which records are equal.

    Rows, configuration, prompts, code, images, limits, model, sampling and versions are held to the run's
    passport before anything is started: differences are warnings, and with --exact a refusal. Records are
    compared without times, ports and made-up ids. Only a scripted or recorded model gives equal ones.
    """
    from gymctl.cli.rerunning import Asked, rerun

    rerun(
        Asked(
            run=run,
            is_exact=exact,
            output=output,
            set_files=tuple(set_file or ()),
            is_gate=gate,
            as_json=json,
            is_quiet=quiet,
        )
    )
