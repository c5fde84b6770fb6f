"""`gymctl export`: files that make other programs use a project. One module for each command."""

from __future__ import annotations

import typer

from gymctl.cli import export_attach

app = typer.Typer(
    help="Files that make other programs use a project.", no_args_is_help=True, rich_markup_mode=None
)


@app.callback()
def _group() -> None:
    """Files that make other programs use a project."""


app.command("attach")(export_attach.command)
