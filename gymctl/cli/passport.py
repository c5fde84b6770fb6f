"""`gymctl passport`: what a run was made with (`show`), and what two runs were not made alike in (`diff`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from gymctl.cli import common_flags as common
from gymctl.cli.output import Console

if TYPE_CHECKING:
    from gymctl.rollouts.passport import Passport

app = typer.Typer(help="What runs were made with.", no_args_is_help=True, rich_markup_mode=None)

Run = Annotated[str, typer.Argument(metavar="RUN", help="A rollouts file, its folder, its name, @last.")]
Other = Annotated[str, typer.Argument(metavar="OTHER", help="The run that is compared with it.")]


@app.callback()
def _group() -> None:
    """What runs were made with."""


@app.command()
def show(run: Run, json: common.Json = False) -> None:
    """Print the passport of a run: rows, model, images, limits in force, versions, machine, seal."""
    from gymctl.cli.passport_text import rows

    told = _read(run)
    if json:
        Console().json(told.model_dump())
    else:
        width = 12
        lines = [f"{label:<{width}} {text}".rstrip() for label, text in rows(told)]
        Console().data("\n".join(lines))


@app.command()
def diff(run: Run, other: Other, json: common.Json = False) -> None:
    """Print what two runs were not made alike in: images, configuration, rows, limits, versions, machine.

    `gymctl compare` shows the same above its numbers.
    """
    from gymctl.rollouts.differences import between, short

    old, new = _read(run), _read(other)
    found = between(old, new)
    if json:
        rows: list[dict[str, Any]] = [
            {"kind": one.kind, "key": one.key, "a": one.old, "b": one.new} for one in found
        ]
        Console().json({"a": old.run, "b": new.run, "differs": rows})
    elif found:
        table = [(one.kind, one.key, short(one.old), short(one.new)) for one in found]
        Console().table(("kind", "key", "first", "second"), table)
    else:
        Console().data("the passports tell of no difference")


def _read(run: str) -> Passport:
    """Raises UsageError (which run?) and IntegrityError (it has no passport)."""
    from gymctl.cli.verify_run import run_at
    from gymctl.errors import IntegrityError
    from gymctl.paths import RunPaths
    from gymctl.rollouts import passport

    paths = RunPaths(run_at(run))
    told = passport.read(paths.passport)
    if told is None:
        what = "cannot be read" if paths.passport.is_file() else "is not there"
        raise IntegrityError(f"the passport of the run {what}", where=str(paths.passport))
    return told
