"""The last start that failed: kept in the project's folder, for `gymctl why --up`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from gymctl.errors import EngineError, GymctlError, IntegrityError, PrerequisiteError, ServerError
from gymctl.paths import ProjectPaths
from gymctl.runtime import private


@dataclass(frozen=True, slots=True)
class StartFailure:
    """An error as it was told, without secrets."""

    project: str
    at: float
    error: str
    """`ServerError`, `EngineError`, `IntegrityError`, `PrerequisiteError`."""
    exit_code: int
    what: str
    where: str | None
    hint: str | None
    details: tuple[str, ...]


@contextmanager
def remembered(paths: ProjectPaths) -> Iterator[None]:
    """Write down why what happens inside failed; forget it when it did not."""
    try:
        yield
    except (EngineError, IntegrityError, PrerequisiteError, ServerError) as error:
        with suppress(OSError):
            private.write(_place(paths), json.dumps(asdict(_of(paths, error)), indent=1))
        raise
    _place(paths).unlink(missing_ok=True)


def recall(paths: ProjectPaths) -> StartFailure | None:
    """None when the last start went well, or nothing was started."""
    try:
        told = json.loads(_place(paths).read_bytes())
        return StartFailure(**{**told, "details": tuple(told["details"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def all_in(base: Path | None = None) -> list[StartFailure]:
    """Of every project of a folder, the latest last."""
    folder = (base or Path.cwd()) / ".gymctl"
    found = (recall(ProjectPaths(path.parent)) for path in folder.glob("*/failure.json"))
    return sorted((one for one in found if one is not None), key=lambda one: one.at)


def _place(paths: ProjectPaths) -> Path:
    return paths.folder / "failure.json"


def _of(paths: ProjectPaths, error: GymctlError) -> StartFailure:
    return StartFailure(
        paths.folder.name,
        round(time.time(), 3),
        type(error).__name__,
        error.exit_code,
        error.what,
        None if error.where is None else str(error.where),
        error.hint,
        error.details,
    )
