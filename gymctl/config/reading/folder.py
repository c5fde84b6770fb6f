"""What a folder says of itself: `[tool.gymctl]` in its pyproject.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gymctl.errors import ConfigError

FILE = "pyproject.toml"
SEARCH_DIRS = "search-dirs"


def search_dirs(folder: Path) -> list[Path]:
    """Further search roots, after the folder itself. Raises ConfigError when one is not there."""
    path = folder / FILE
    listed = read_table(folder).get(SEARCH_DIRS, [])
    if not isinstance(listed, list) or not all(isinstance(entry, str) for entry in listed):
        raise ConfigError(f"`{SEARCH_DIRS}` of [tool.gymctl] must be a list of folders", where=str(path))
    found = [folder / entry for entry in listed]
    for place in found:
        if not place.is_dir():
            raise ConfigError(
                f"`{place}` is not a folder",
                where=f"{path}: tool.gymctl.{SEARCH_DIRS}",
                hint="correct it; in a folder made by `gymctl gym-dir`, run that again",
            )
    return found


def read_table(folder: Path) -> Mapping[str, Any]:
    """`[tool.gymctl]`; empty when there is none. Raises ConfigError when its file is no TOML."""
    try:
        text = (folder / FILE).read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return {}
    if "tool.gymctl" not in text:
        return {}
    try:
        table = tomllib.loads(text).get("tool", {}).get("gymctl", {})
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"not valid TOML: {error}", where=str(folder / FILE)) from error
    return table if isinstance(table, dict) else {}
