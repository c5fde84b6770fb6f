"""The folder with a server's code: `<root>/<kind>/<implementation>` in the first root that holds it.

NeMo Gym's relays (`legacy_agent`, `single_agent_turn`, `single_agent_turn_legacy`) do what ours do, to the
same contract, and start Ray for it, as each of its servers does that does not say that it needs none. Nearly
all of its configs name one. So ours are taken, unless `nemo_gym_relays: true` asks for NeMo Gym's.
"""

from __future__ import annotations

from pathlib import Path

from gymctl.config.checks.instances import Instance
from gymctl.config.families import family_of
from gymctl.config.names import suggestion
from gymctl.config.reading.roots import SearchRoots, is_file, is_folder
from gymctl.config.tree.origins import Origins
from gymctl.errors import ConfigError
from gymctl.paths import install_roots

_REQUIREMENTS = ("requirements.txt", "pyproject.toml")


def find(instance: Instance, roots: SearchRoots, origins: Origins, *, nemo_gym_relays: bool = False) -> Path:
    """Raises ConfigError with the searched folders, what each lacks, and near names."""
    relative = f"{instance.kind}/{instance.implementation}"
    looked = []
    for folder in roots.candidates(relative):
        lacks = _lacks(folder, str(instance.settings["entrypoint"]))
        if lacks is None:
            ours = None if nemo_gym_relays else _our_relay(instance)
            return ours if ours is not None and family_of(folder) == "nemo_gym" else folder
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


def _our_relay(instance: Instance) -> Path | None:
    if instance.kind != "environment_servers":
        return None
    places = (root / instance.kind / instance.implementation for root in install_roots())
    return next((place for place in places if is_server(place)), None)


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
