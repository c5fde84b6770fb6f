"""`gymctl verify`: is it still what it says? Everything that its digests can tell is computed again."""

from __future__ import annotations

from typing import Annotated

import typer

What = Annotated[
    str, typer.Argument(metavar="RUN", help="A rollouts file, its folder, the beginning of its name, @last.")
]
Strict = Annotated[
    bool, typer.Option("--strict", help="What is not on this machine, or was not recorded, fails as well.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object.")]


def command(what: What, strict: Strict = False, json: Json = False) -> None:
    """Compute the digests of a run again and hold them to its passport; exit 9 when something differs.

    One line for each ingredient: `ok`, `differs`, `gone` (not on this machine, which is no failure without
    --strict) or `not recorded`.
    """
    from gymctl.cli import verify_run

    verify_run.verify(what, is_strict=strict, as_json=json)
