"""`gymctl config schema`: what a config file may hold, as JSON Schema for editors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from gymctl.cli import selection as flags
from gymctl.cli.output import Console
from gymctl.errors import UsageError


def command(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it there.")
    ] = None,
    search_dir: flags.SearchDirs = None,
) -> None:
    """Print the JSON Schema of config files, with the fields of every server found here, for an editor.

    A file says `# yaml-language-server: $schema=FILE` in its first line.
    """
    import os

    from gymctl.config.reading.roots import SearchRoots
    from gymctl.config.telling.schema import schema

    made = schema(SearchRoots.of(Path.cwd(), os.environ, flags.search_folders(search_dir)))
    text = json.dumps(made, indent=2, ensure_ascii=False)
    console = Console()
    if output is None:
        console.data(text)
        return
    try:
        output.write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"`{output}` cannot be written: {error.strerror}", where="--output") from error
    console.say(f"# yaml-language-server: $schema={output}")
