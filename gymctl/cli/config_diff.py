"""`gymctl config diff A B`: what differs between two configurations, and who wrote it on either side."""

from __future__ import annotations

import json as json_module
from typing import TYPE_CHECKING, Annotated

import typer

from gymctl.cli import common_flags as common
from gymctl.cli import selection as flags
from gymctl.cli.output import Console, inline
from gymctl.counts import counted

if TYPE_CHECKING:
    from gymctl.config.model import Config
    from gymctl.config.telling.diff import Difference


@flags.takes_selection
def command(
    chosen: flags.Chosen,
    a: Annotated[str, typer.Argument(metavar="A", help="A config file or a benchmark.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The one that it is compared with.")],
    json: common.JsonForText = False,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit 1 when they differ; without it 0, as `git diff` does.")
    ] = False,
) -> None:
    """Print the values that differ between A and B; all other flags and tokens count for both.

    `-` only A has it, `+` only B has it, `~` both have it, with another value. Secrets are masked.
    """
    from gymctl.config.telling.diff import diff

    console = Console()
    found = diff(*(_loaded(chosen, side, console) for side in (a, b)))
    if json:
        console.json([item.to_json() for item in found])
    elif found:
        console.data("\n".join(map(_line, found)))
    console.say(counted(len(found), "value differs", "values differ"))
    if found and exit_code:
        raise typer.Exit(1)


def _loaded(chosen: flags.Chosen, side: str, console: Console) -> Config:
    from gymctl.config.load import load

    given = {**chosen.given, "tokens": [side, *(chosen.given.get("tokens") or ())]}
    loaded = load(flags.selection(**given, needs_model=False))
    for warning in loaded.warnings:
        console.insist(f"warning: {side}: {warning}")
    return loaded


def _line(item: Difference) -> str:
    if item.a is not None and item.b is not None:
        old, new = inline(item.a.value), inline(item.b.value)
        if old == new and repr(item.a.value) != repr(item.b.value):
            old, new = (json_module.dumps(side.value, default=str) for side in (item.a, item.b))
        return f"~ {item.key}: {old} → {new} ({item.a.origin} → {item.b.origin})"
    sign, side = ("-", item.a) if item.a is not None else ("+", item.b)
    return "" if side is None else f"{sign} {item.key} = {inline(side.value)} ({side.origin})"
