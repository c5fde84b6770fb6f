"""Which project a command means: the one of this folder, or the one named."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gymctl.errors import UsageError

if TYPE_CHECKING:
    from gymctl.paths import ProjectPaths
    from gymctl.runtime.running import RunningProject


def find(name: str | None) -> RunningProject:
    """A handle on a project of this folder. UsageError when there is none, or several and no name."""
    from gymctl.runtime import attach, state

    known = {found.project: (paths, found) for paths, found in state.all_in()}
    if name is None:
        if len(known) == 1:
            return attach.open_project(*next(iter(known.values())))
        if known:
            raise UsageError(
                f"several projects are up here: {', '.join(known)}", hint="name one with --project"
            )
        raise UsageError(
            "no project is up in this folder",
            hint="gymctl up …; gymctl ps --all-projects shows other folders'",
        )
    if name not in known:
        raise UsageError(
            f"no project `{name}` in this folder",
            hint=f"up here: {', '.join(known)}" if known else "gymctl ps --all-projects shows other folders'",
        )
    return attach.open_project(*known[name])


def kept(name: str | None) -> ProjectPaths | None:
    """A project that is down and has left logs: the one named, or the only one here when none is up.

    UsageError when it could be several.
    """
    from gymctl.paths import ProjectPaths

    folders = [path.parent for path in Path(".gymctl").glob("*/logs") if any(path.glob("*.log"))]
    is_here = any(Path(".gymctl").glob("*/project.json"))
    chosen = [folder for folder in folders if (folder.name == name if name else not is_here)]
    if len(chosen) > 1:
        chosen.sort(key=lambda folder: (folder / "logs").stat().st_mtime, reverse=True)
        names = [folder.name for folder in chosen]
        raise UsageError(
            f"no project is up in this folder, and several have left logs: {', '.join(names)}",
            hint=f"name one, such as the latest: --project {names[0]}",
        )
    if len(chosen) != 1 or (chosen[0] / "project.json").exists():
        return None
    return ProjectPaths(chosen[0])
