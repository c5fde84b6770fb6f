"""What a running project leaves written down: `.gymctl/<project>/project.json`, for ps, logs and down."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gymctl.contract.servers import ServerTable
from gymctl.paths import ProjectPaths
from gymctl.runtime import at_rest, private
from gymctl.runtime.stack import RuntimeName


class ProjectState(BaseModel):
    """Written before the first server is started, so that `down` also ends a start that was killed."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    project: str
    runtime: RuntimeName
    phase: Literal["starting", "ready", "stopping"] = "starting"
    head_url: str
    table: ServerTable
    services: dict[str, str]
    """Instance id -> service name; the head is not among them."""
    ray: dict[str, tuple[str, ...]] = {}
    """Compose runtime: Ray's containers, whose service names are their only ones, each with the servers that
    are lost without it. None are without a worker: Ray runs its tasks again elsewhere."""
    ray_ports: tuple[int, ...] = ()
    """Where their dashboards are published."""
    inputs: str
    """Digest of everything that was rendered: an `up` with the same one has nothing to do."""
    started: float = Field(default_factory=time.time)
    pids: dict[str, int] = {}
    """Process runtime: service -> pid of its first process, which leads its group."""
    head_network_port: int = 0
    """Process runtime: the head's second listener."""
    foreign: frozenset[str] = frozenset()
    """Instance ids of servers that are not on our SDK: they cannot say who they are."""
    endpoint: str = ""
    """Compose runtime: the engine's address, so that a later command can say that it changed."""


def save(paths: ProjectPaths, state: ProjectState) -> None:
    private.make_folder(paths.folder)
    private.write(paths.state, state.model_dump_json(indent=1))


def load(paths: ProjectPaths) -> ProjectState | None:
    """None when the project is not up, or its file is not one of ours."""
    try:
        return ProjectState.model_validate_json(paths.state.read_bytes())
    except (OSError, ValidationError):
        return None


def mark_stopping(paths: ProjectPaths) -> None:
    """Tell a `gymctl up` that follows the project: what dies from now on dies on purpose."""
    known = load(paths)
    if known is not None:
        save(paths, known.model_copy(update={"phase": "stopping"}))


def is_going(paths: ProjectPaths) -> bool:
    """Whether the project is gone, or another command is taking it down."""
    known = load(paths)
    return known is None or known.phase == "stopping"


def all_in(base: Path | None = None) -> Iterator[tuple[ProjectPaths, ProjectState]]:
    """Every project of a folder that has a state, in order of name."""
    folder = (base or Path.cwd()) / ".gymctl"
    for path in sorted(folder.glob("*/project.json")):
        paths = ProjectPaths(path.parent)
        state = load(paths)
        if state is not None:
            yield paths, state


def forget(paths: ProjectPaths) -> None:
    """The project is down: its secrets go, then its state, so that a `down` that was killed is known to be
    unfinished. Compose file, lock and logs stay. Blocking. EngineError when a secret cannot be removed."""
    at_rest.clear(paths)
    paths.state.unlink(missing_ok=True)
