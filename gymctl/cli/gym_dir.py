"""`gymctl gym-dir`: a folder that clients take for a NeMo Gym checkout, so that they start gymctl instead."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gymctl.cli import selection as flags
from gymctl.cli.output import Console
from gymctl.counts import counted


def command(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The folder: new, empty, or made so before.")],
    search_dir: flags.SearchDirs = None,
    sync: Annotated[
        bool, typer.Option("--sync", help="Make its .venv now, as clients do with `uv sync`.")
    ] = False,
) -> None:
    """Make or refresh a stand-in Gym folder for clients that start the servers themselves.

    It depends on this gymctl and holds the configs and data of the built-in servers and of those found
    through --search-dir, under NeMo Gym's paths. An env.yaml in it is never touched.
    """
    import os

    from gymctl.clients import gym_dir
    from gymctl.config.reading.roots import SearchRoots

    console = Console()
    here = Path.cwd().resolve()
    named = flags.search_folders(search_dir) or ()
    roots = SearchRoots.of(here, os.environ, named).folders
    asked = {(here / folder).resolve() for folder in named}
    made = gym_dir.write(path, [root for root in roots if root != here or here in asked])
    verb = "refreshed" if made.is_refreshed else "made"
    console.say(
        f"{verb} {path}: {counted(made.configs, 'config')}, "
        f"{counted(made.data, 'file of rows', 'files of rows')}; gymctl from {made.source}"
    )
    if sync:
        _sync(made.folder)
    console.say(f'next: cd {path} && uv sync && .venv/bin/ng_run "+config_paths=[…]"')


def _sync(folder: Path) -> None:
    """`uv sync` with the Python that runs us, in an environment that no active one disturbs."""
    import os
    import subprocess
    import sys

    import uv

    from gymctl.errors import PrerequisiteError

    environ = {key: value for key, value in os.environ.items() if key != "VIRTUAL_ENV"}
    asked = [uv.find_uv_bin(), "sync", "--python", sys.executable]
    done = subprocess.run(asked, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PrerequisiteError(
            "`uv sync` failed", where=str(folder), details=done.stderr.strip().splitlines()[-8:]
        )
