"""`gymctl dataset schema`: the task fields that a server asks of rows, as JSON Schema."""

from __future__ import annotations

from typing import Annotated

import typer

from gymctl.cli import selection as flags
from gymctl.cli.output import Console
from gymctl.errors import UsageError


def command(
    server: Annotated[str, typer.Argument(metavar="RESOURCES_SERVER", help="Its implementation: `weather`.")],
    search_dir: flags.SearchDirs = None,
) -> None:
    """Print the `TaskData` of a resources server's `task_data.py` as JSON Schema."""
    from gymctl.cli.eval_input import search_roots
    from gymctl.rollouts.task_schema import FILE, TaskSchema

    roots = search_roots(None, flags.search_folders(search_dir))
    folders = [root / "resources_servers" / server for root in roots]
    folder = next((folder for folder in folders if (folder / FILE).is_file()), None)
    if folder is None:
        is_there = any(folder.is_dir() for folder in folders)
        what = f"has no {FILE}" if is_there else "is not here"
        raise UsageError(f"the resources server `{server}` {what}", hint=f"a {FILE} exports `TaskData`")
    schema = TaskSchema(folder, roots)
    try:
        Console().json(schema.schema)
    finally:
        schema.close()
