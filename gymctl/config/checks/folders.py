"""The folder with a server's code: `<root>/<kind>/<implementation>` in the first root that holds it."""

from __future__ import annotations

from pathlib import Path

from gymctl.config.checks.instances import Instance
from gymctl.config.names import suggestion
from gymctl.config.reading.roots import SearchRoots, is_file, is_folder
from gymctl.config.tree.origins import Origins
from gymctl.errors import ConfigError

_REQUIREMENTS = ("requirements.txt", "pyproject.toml")


def find(instance: Instance, roots: SearchRoots, origins: Origins) -> Path:
    """Raises ConfigError with the searched folders, what each lacks, and near names."""
    relative = f"{instance.kind}/{instance.implementation}"
    looked = []
    for folder in roots.candidates(relative):
        lacks = _lacks(folder, str(instance.settings["entrypoint"]))
        if lacks is None:
            return folder
        looked.append(f"  {folder}: {lacks}")
    known = [
        path.name for root in roots.folders for path in (root / instance.kind).glob("*/") if is_server(path)
    ]
    raise ConfigError(
        f"`{instance.name}`: there is no server folder {relative}",
        where=origins.where(*instance.path) or instance.name,
        details=["looked for:", *looked],
        hint=suggestion(instance.implementation, known, noun=f"{instance.kind} found"),
    )


def _lacks(folder: Path, entrypoint: str) -> str | None:
    if not is_folder(folder):
        return "no such folder"
    if not is_file(folder / entrypoint):
        return f"no {entrypoint}"
    if not any((folder / name).is_file() for name in _REQUIREMENTS):
        return f"neither {' nor '.join(_REQUIREMENTS)}"
    return None


def is_server(folder: Path) -> bool:
    return folder.is_dir() and any((folder / name).is_file() for name in _REQUIREMENTS)
