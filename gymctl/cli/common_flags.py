"""Flags that several commands have, in the same words. Those that select a project are in `selection.py`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gymctl.errors import UsageError

if TYPE_CHECKING:
    from gymctl.runtime.stack import RuntimeChoice

Json = Annotated[bool, typer.Option("--json", help="One JSON object.")]
JsonForTable = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]
JsonForText = Annotated[bool, typer.Option("--json", help="JSON instead of text.")]
JsonResult = Annotated[bool, typer.Option("--json", help="The result as one JSON object on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only errors and warnings.")]
QuietResult = Annotated[bool, typer.Option("--quiet", "-q", help="Only the result, warnings and errors.")]
NoServe = Annotated[bool, typer.Option("--no-serve", help="Use a running project; start and stop nothing.")]
RUNTIMES = ("auto", "compose", "process")
Runtime = Annotated[
    str,
    typer.Option(
        "--runtime",
        metavar="|".join(RUNTIMES),
        help="Containers, or local processes without isolation. auto: containers where an engine answers.",
    ),
]
MinCoverage = Annotated[
    float,
    typer.Option(
        "--min-coverage", help="Share of rollouts that must have a score; below it: a range and exit code 6."
    ),
]
Prices = Annotated[
    Path | None,
    typer.Option("--prices", metavar="FILE", help="Prices of models. Default: ~/.config/gymctl/prices.yaml."),
]


def runtime_choice(value: str) -> RuntimeChoice:
    """What `--runtime` says. Raises UsageError: it is none."""
    if value not in RUNTIMES:
        raise UsageError(f"`{value}` is no runtime", where="--runtime", hint=f"one of {', '.join(RUNTIMES)}")
    return value  # type: ignore[return-value]
