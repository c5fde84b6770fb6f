"""Paths as a table shows them: from the current folder, or their last part."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

_LONG = 40


def short_paths(paths: Collection[str], folder: Path) -> Mapping[str, str]:
    """Of each path what is shown: relative when it lies in `folder`, else `…/weather.jsonl` where it is long,
    with as many folders as tell it from the others."""
    near = {path: _from(path, folder) for path in paths}
    return {path: _tail(shown, near.values()) for path, shown in near.items()}


def _from(path: str, folder: Path) -> str:
    place = Path(path)
    return str(place.relative_to(folder)) if place.is_absolute() and place.is_relative_to(folder) else path


def _tail(path: str, others: Collection[str]) -> str:
    if len(path) <= _LONG:
        return path
    parts = Path(path).parts
    for count in range(1, len(parts)):
        tail = "/".join(parts[-count:])
        if sum(other == tail or other.endswith(f"/{tail}") for other in others) == 1:
            return f"…/{tail}"
    return path
