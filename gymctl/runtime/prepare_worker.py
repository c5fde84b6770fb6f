"""Runs one prepare script in a process of its own, here or in a container: `prepare_worker.py ASKED`.

ASKED is a JSON file that `prepare.py` wrote. Where nothing may be written into the search root, the script
runs in a copy of it (`view`); what it made or changed there is moved to `made`, below the same names. Needs
nothing but the standard library: in a container it is mounted as this one file.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

LINKED_BYTES = 1 << 20
"""Larger files are linked, not copied: a script that would change one in its place cannot."""
LEFT_OUT = frozenset({"__pycache__", ".git", ".venv", "venv", "node_modules", ".gymctl", ".cache"})

Stamp = tuple[int, int]
"""Size in bytes, time of change in nanoseconds."""


def main(asked: dict[str, Any]) -> None:
    os.environ.update(asked["environ"])
    root = Path(asked["root"])
    view = None if asked["view"] is None else Path(asked["view"])
    laid: dict[str, Stamp | None] = {}
    if view is not None:
        sys.dont_write_bytecode = True
        laid = lay_out(root, view, asked["copied"], asked["linked"], asked["target"])
        os.chdir(view)
    here = view or root
    sys.path.insert(0, str(here))
    returned = _module(here, asked["script"], asked["module"]).prepare(**asked["args"])
    if view is not None:
        made = Path(asked["made"])
        made.mkdir(parents=True, exist_ok=True)
        collect(view, asked["copied"], laid, made)
    told = None if returned is None else str(returned)
    Path(asked["result"]).write_text(json.dumps(told), "utf-8")


def _module(here: Path, script: str, dotted: str | None) -> ModuleType:
    if dotted is not None:
        return importlib.import_module(dotted)
    spec = importlib.util.spec_from_file_location("prepare", here / script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def lay_out(
    root: Path, view: Path, copied: list[str], linked: list[str], target: str
) -> dict[str, Stamp | None]:
    """Make `view`: entries of `root` copied or linked, without the file that is to be made.

    Returns what lies there now, by its place; None for a link.
    """
    view.mkdir(parents=True)
    for name in linked:
        (view / name).symlink_to(root / name)
    laid: dict[str, Stamp | None] = {}
    for place, is_folder in _below(root, copied):
        source, copy = root / place, view / place
        copy.parent.mkdir(parents=True, exist_ok=True)
        if is_folder and not source.is_symlink():
            copy.mkdir(exist_ok=True)
        elif place == target or not source.exists():
            continue
        elif is_folder or (source.stat().st_size > LINKED_BYTES and source.suffix != ".py"):
            copy.symlink_to(source)
            laid[place] = None
        else:
            shutil.copy2(source, copy)
            copy.chmod(copy.stat().st_mode | 0o200)
            laid[place] = _stamp(copy)
    return laid


def collect(view: Path, copied: list[str], laid: dict[str, Stamp | None], made: Path) -> None:
    """Move the files that are new or changed to `made`; what a link points at is copied."""
    for place, is_folder in _below(view, copied):
        file = view / place
        if is_folder or not file.is_file():
            continue
        is_link = file.is_symlink()
        if place in laid and laid[place] == (None if is_link else _stamp(file)):
            continue
        (made / place).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copyfile if is_link else shutil.move)(file, made / place)


def _below(root: Path, names: list[str]) -> Iterator[tuple[str, bool]]:
    """The place of every file and folder below these entries of `root`, and whether it is a folder."""
    for name in names:
        if not (root / name).is_dir():
            yield name, False
            continue
        for folder, folders, files in os.walk(root / name):
            folders[:] = [one for one in folders if one not in LEFT_OUT]
            below = Path(folder).relative_to(root)
            yield from ((str(below / one), True) for one in folders)
            yield from ((str(below / one), False) for one in files)


def _stamp(file: Path) -> Stamp:
    status = file.stat()
    return status.st_size, status.st_mtime_ns


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text("utf-8")))
