"""Which projects there are, and how a later command gets hold of one that another command started."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gymctl.paths import ProjectPaths
from gymctl.runtime import state
from gymctl.runtime.running import RunningProject
from gymctl.runtime.state import ProjectState


def running(project: str, base: Path | None = None) -> RunningProject | None:
    """The project if any of its servers runs; None when it is down. Blocking, milliseconds."""
    paths = ProjectPaths.of(project, base)
    known = state.load(paths)
    if known is None or not is_alive(paths, known):
        return None
    return open_project(paths, known)


def projects(base: Path | None = None) -> Sequence[ProjectState]:
    """What was started from a folder and not taken down; its servers may have died meanwhile."""
    return [known for _, known in state.all_in(base)]


def open_project(paths: ProjectPaths, known: ProjectState) -> RunningProject:
    """A handle for status, logs and down, whether or not anything still runs."""
    if known.runtime == "process":
        from gymctl.runtime.processes import ProcessStack

        return ProcessStack(paths, known)
    from gymctl.engine import Engine
    from gymctl.runtime.containers import ComposeStack

    return ComposeStack(paths, known, Engine.connect())


def is_alive(paths: ProjectPaths, known: ProjectState) -> bool:
    if known.runtime == "process":
        from gymctl.runtime import processes

        return processes.is_alive(paths)
    from gymctl.engine import Engine
    from gymctl.runtime import containers

    return any(row.is_running for row in containers.containers(Engine.connect(), known.project))
