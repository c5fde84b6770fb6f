"""Which project a command means: the one of this folder, or the one named."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from gymctl.errors import UsageError

if TYPE_CHECKING:
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


def secrets_of(stack: RunningProject) -> Collection[str]:
    """What must not be printed of a project that is up: the secrets in its parts, which only we can read."""
    import orjson

    from gymctl.config.masking import secrets_of as secrets_in

    found: set[str] = set()
    for path in stack.paths.parts.glob("*.json"):
        try:
            found |= secrets_in(orjson.loads(path.read_bytes()))
        except (OSError, ValueError):
            continue
    return found
