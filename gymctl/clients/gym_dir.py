"""The stand-in Gym folder: what clients that start NeMo Gym themselves take for a checkout of it.

PATH/
  pyproject.toml     depends on this gymctl, so that `uv sync` makes .venv/bin/{python,gym,ng_run,ng_status,…}
  wheels/            the wheel it depends on, when gymctl is not run from a checkout
  <kind>/<name>/configs/*.yaml, <kind>/<name>/data/*.jsonl    copies, under the paths of NeMo Gym
  .gymctl-files      what we wrote; a file that is not on it is the user's

Server folders, benchmarks and prompts are found where they are, through `search-dirs` of the pyproject.toml.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gymctl.clients import wheel
from gymctl.config.reading.folder import read_table
from gymctl.contract.servers import KINDS
from gymctl.errors import PrerequisiteError, UsageError
from gymctl.paths import install_roots

PATTERNS = ("configs/*.yaml", "data/*.jsonl")
MANIFEST = ".gymctl-files"
LOCK = "uv.lock"
_PROJECT = """\
# Written by `gymctl gym-dir`, which also refreshes it. Clients take this folder for a NeMo Gym checkout.
[project]
name = "gymctl-gym-dir"
version = "0"
requires-python = ">=3.11"
dependencies = ["gymctl"]

[tool.uv]
package = false

[tool.uv.sources]
gymctl = {{ {source} }}

[tool.gymctl]
gym-dir = true
search-dirs = {search_dirs}
"""


@dataclass(frozen=True, slots=True)
class Written:
    """What is in the folder now."""

    folder: Path
    configs: int
    data: int
    source: str
    """What `uv sync` installs gymctl from."""
    is_refreshed: bool


def write(folder: Path, roots: Sequence[Path]) -> Written:
    """Make or refresh the folder. roots: search roots in winning order; those of the installation need not be
    among them. Raises UsageError when the folder holds something else, PrerequisiteError when it cannot be
    written."""
    is_ours = _is_ours(folder)
    if not is_ours:
        _refuse(folder)
    try:
        return _written(folder.resolve(), roots, is_refreshed=is_ours)
    except OSError as error:
        raise PrerequisiteError(
            f"the folder cannot be written: {error.strerror}", where=str(error.filename or folder)
        ) from error


def _written(folder: Path, roots: Sequence[Path], *, is_refreshed: bool) -> Written:
    installed = install_roots()
    own = [root for root in roots if root not in installed and root != folder]
    folder.mkdir(parents=True, exist_ok=True)
    source, description = _source(folder)
    listed = json.dumps([str(root) for root in own], ensure_ascii=False)
    (folder / "pyproject.toml").write_text(_PROJECT.format(source=source, search_dirs=listed), "utf-8")
    copied = _copy(folder, [*own, *installed])
    return Written(
        folder,
        configs=sum(name.endswith(".yaml") for name in copied),
        data=sum(name.endswith(".jsonl") for name in copied),
        source=description,
        is_refreshed=is_refreshed,
    )


def _source(folder: Path) -> tuple[str, str]:
    """Of the dependency: the TOML that says where it is, and words for it."""
    checkout = wheel.checkout()
    if checkout is not None:
        return f"path = {json.dumps(str(checkout), ensure_ascii=False)}, editable = true", str(checkout)
    known = _content(folder / "wheels")
    packed = wheel.pack(folder / "wheels")
    for old in (folder / "wheels").glob("*.whl"):
        if old != packed:
            old.unlink()
    if _content(folder / "wheels") != known:
        (folder / LOCK).unlink(missing_ok=True)  # it holds the digest of the wheel that was there before
    relative = packed.relative_to(folder).as_posix()
    return f"path = {json.dumps(relative)}", relative


def _content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.whl")}


def _copy(folder: Path, roots: Sequence[Path]) -> list[str]:
    """Copy what `PATTERNS` names of every server, the first root first; returns the relative paths. What we
    wrote before and no root holds any more goes."""
    found: dict[str, Path] = {}
    for root in roots:
        for path in _of_servers(root):
            found.setdefault(path.relative_to(root).as_posix(), path)
    for name in _manifest(folder):
        if name not in found:
            (folder / name).unlink(missing_ok=True)
    (folder / MANIFEST).write_text("".join(f"{name}\n" for name in sorted(found)), "utf-8")
    for name, path in found.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    return list(found)


def _of_servers(root: Path) -> Iterator[Path]:
    for kind in KINDS:
        for pattern in PATTERNS:
            yield from sorted(path for path in root.glob(f"{kind}/*/{pattern}") if path.is_file())


def _manifest(folder: Path) -> list[str]:
    try:
        lines = (folder / MANIFEST).read_text("utf-8").splitlines()
    except OSError:
        return []
    return [line for line in lines if line and not line.startswith("/") and ".." not in Path(line).parts]


def _is_ours(folder: Path) -> bool:
    return read_table(folder).get("gym-dir") is True


def _refuse(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"`{folder}` is a file", where="PATH")
    # A folder for an env.yaml that was written first is as good as empty.
    others = [path.name for path in folder.glob("*") if path.name != "env.yaml"]
    if others:
        raise UsageError(
            f"`{folder}` holds something else: {', '.join(sorted(others)[:3])}{', …' if others[3:] else ''}",
            where="PATH",
            hint="name a folder that is not there yet, is empty, or was made by `gymctl gym-dir`",
        )
