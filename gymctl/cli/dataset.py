"""`gymctl dataset`: the files that rows come from. Each command of the group has a module."""

from __future__ import annotations

import typer

from gymctl.cli import dataset_collate, dataset_prepare, dataset_render, dataset_schema

app = typer.Typer(help="Make, render and collate files of rows.", no_args_is_help=True, rich_markup_mode=None)

app.command("collate")(dataset_collate.command)
app.command("prepare")(dataset_prepare.command)
app.command("render")(dataset_render.command)
app.command("schema")(dataset_schema.command)


@app.callback()
def _group() -> None:
    """Make, render and collate files of rows."""
