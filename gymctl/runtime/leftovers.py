"""What projects leave when they were killed, and what is left in their folders: found by label and by lock.

Up is a project of which a container or process runs; held is one whose lock a command has. Neither is
touched, nor what belongs to another user.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymctl.compose.render import FOLDER_LABEL, PROJECT_LABEL, user
from gymctl.images import scratch
from gymctl.paths import ProjectPaths
from gymctl.runtime import attach, prepare_container, state
from gymctl.runtime import scratch as prepares
from gymctl.runtime.disk import size_of

if TYPE_CHECKING:
    from gymctl.engine import Engine

_OURS = ("project.json", "compose.yaml", "parts", "secret", "lock", "failure.json")
"""A folder below `.gymctl` that holds one of these is a project's."""


@dataclass(frozen=True, slots=True)
class Container:
    id: str
    name: str
    project: str


@dataclass(frozen=True, slots=True)
class Network:
    id: str
    name: str
    project: str


@dataclass(frozen=True, slots=True)
class Folder:
    path: Path
    size: int
    """Bytes."""


@dataclass(frozen=True, slots=True)
class Leftovers:
    containers: tuple[Container, ...] = ()
    networks: tuple[Network, ...] = ()
    folders: tuple[Folder, ...] = ()


def of_engine(engine: Engine, only: Collection[str] = ()) -> Leftovers:
    """Containers and networks of dead projects of this user's. Blocking. only: of these projects alone."""
    rows = engine.api.api.containers(all=True, filters={"label": PROJECT_LABEL})
    up = {row["Labels"][PROJECT_LABEL] for row in rows if row["State"] in ("running", "paused", "restarting")}
    nets = engine.api.api.networks(filters={"label": PROJECT_LABEL})
    return Leftovers(
        containers=tuple(
            Container(row["Id"], str((row.get("Names") or [row["Id"][:12]])[0]).lstrip("/"), project)
            for row in rows
            if _may_go(project := row["Labels"][PROJECT_LABEL], row["Labels"], up, only)
            and _is_own(row["Labels"], _user_of(engine, row["Id"]))
        ),
        networks=tuple(
            Network(row["Id"], row["Name"], project)
            for row in nets
            if _may_go(project := row["Labels"][PROJECT_LABEL], row["Labels"], up, only)
            and _is_own(row["Labels"], None)
        ),
    )


def known(base: Path, engine: Engine | None) -> set[str]:
    """The names of all projects, up or not, of which this folder or the engine holds anything. Blocking."""
    found = {scratch.discarded(path) or path.name for path in (base / ".gymctl").glob("*/")}
    if engine is not None:
        rows = engine.api.api.containers(all=True, filters={"label": PROJECT_LABEL})
        found |= {row["Labels"][PROJECT_LABEL] for row in rows}
        nets = engine.api.api.networks(filters={"label": PROJECT_LABEL})
        found |= {row["Labels"][PROJECT_LABEL] for row in nets}
    return found


def _may_go(project: str, labels: Mapping[str, str], up: Collection[str], only: Collection[str]) -> bool:
    if project in up or (only and project not in only):
        return False
    folder = labels.get(FOLDER_LABEL)
    return folder is None or not is_held(ProjectPaths.of(project, Path(folder)))


def _is_own(labels: Mapping[str, str], runs_as: str | None) -> bool:
    """By the owner of the folder that it was started from; of a folder that is gone, by whom it runs as."""
    with suppress(OSError):
        return Path(labels.get(FOLDER_LABEL, "/nowhere")).stat().st_uid == os.getuid()
    return runs_as is None or runs_as in (user(os.getuid(), os.getgid()), "", "0:0")


def _user_of(engine: Engine, container: str) -> str | None:
    import docker.errors

    try:
        return str(engine.api.api.inspect_container(container)["Config"].get("User") or "")
    except docker.errors.APIError:
        return None


def of_folder(base: Path, only: Collection[str] = ()) -> Leftovers:
    """`.gymctl/<project>` of dead projects, with parts, logs and all. Blocking."""
    return Leftovers(folders=tuple(Folder(path, size_of(path)) for path in _dead(base, only)))


def _dead(base: Path, only: Collection[str]) -> Iterator[Path]:
    for path in sorted((base / ".gymctl").glob("*/")):
        aside = scratch.discarded(path)
        if path.is_symlink() or not (aside or any((path / name).exists() for name in _OURS)):
            continue
        is_meant = not only or (aside or path.name) in only
        is_dead = not scratch.is_locked(path) if aside else not is_up(path)
        if is_meant and path.stat().st_uid == os.getuid() and is_dead:
            yield path


def is_up(folder: Path) -> bool:
    """Whether anything of the project runs, or a command holds it. What cannot be asked counts as up."""
    paths = ProjectPaths(folder)
    if is_held(paths):
        return True
    known = state.load(paths)
    if known is None:
        return False
    from gymctl.errors import GymctlError

    try:
        return attach.is_alive(paths, known)
    except GymctlError:
        return True


def is_held(paths: ProjectPaths) -> bool:
    return any(scratch.is_locked(path) for path in (paths.lock, paths.use))


def of_builds(base: Path) -> Leftovers:
    """Folders of builds that were killed (contexts, files with the logins of indexes), and those of bundles
    in `base`. Blocking."""
    places = [
        (scratch.PREFIX, None),
        (scratch.COMPARED, None),
        (scratch.CHECK, None),
        (scratch.BUNDLE, base),
        (scratch.UNBUNDLE, base),
    ]
    found = (path for prefix, place in places for path in scratch.abandoned(prefix, place))
    return Leftovers(folders=tuple(Folder(path, size_of(path)) for path in found))


def of_prepares(engine: Engine | None) -> Leftovers:
    """Folders of prepare scripts that were killed, with the tokens that these were given. One that told a
    container is the only trace of it: it stays where no engine answers. Blocking."""
    found = (path for path in prepares.left() if engine is not None or not (path / prepares.TOLD).exists())
    return Leftovers(folders=tuple(Folder(path, size_of(path)) for path in found))


def remove_prepare(folder: Folder, engine: Engine | None) -> str | None:
    """None when it is gone, and its container before it; else why it stays."""
    if engine is not None:
        name = prepare_container.container_of(folder.path)
        why = _call(engine.api.api.remove_container, name, v=True, force=True)
        if why is not None:
            return why
    shutil.rmtree(folder.path, ignore_errors=True)
    return "it cannot be removed" if folder.path.exists() else None


def remove_folder(folder: Folder) -> str | None:
    """None when it is gone, else why it stays."""
    path = folder.path
    if scratch.is_locked(path) or is_held(ProjectPaths(path)):
        return "a command has just begun to use it"
    try:
        scratch.discard(path)
    except OSError as error:
        return str(error.strerror)
    return None


def remove_container(container: Container, engine: Engine) -> str | None:
    """None when it is gone, else why it stays: it runs again. Its volumes stay."""
    return _call(engine.api.api.remove_container, container.id, v=False, force=False)


def remove_network(network: Network, engine: Engine) -> str | None:
    """None when it is gone, else why it stays: somebody's container is in it."""
    return _call(engine.api.api.remove_network, network.id)


def _call(call: Any, *args: Any, **options: Any) -> str | None:
    import docker.errors

    try:
        call(*args, **options)
    except docker.errors.NotFound:
        return None
    except docker.errors.APIError as error:
        return str(error.explanation or error)
    return None
