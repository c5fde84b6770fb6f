"""Whether anything can come from a search root: `--search-dir requests==2.32.3` names a package without."""

from __future__ import annotations

import os
from pathlib import Path

from gymctl.contract.servers import KINDS

_FOLDERS = (*KINDS, "benchmarks", "environments")
_FILES = (".yaml", ".yml", ".jsonl")
_MOST = 5_000
"""Files that are looked at; in a larger folder something is taken to be there."""


def nothing_in(root: Path, asked: str) -> str | None:
    """The line about a search root without servers, configs and rows. asked: as the user wrote it."""
    if any((root / name).is_dir() for name in _FOLDERS):
        return None
    inner = next((place.parent for name in _FOLDERS for place in sorted(root.glob(f"*/{name}"))), None)
    if _holds_files(root, inner):
        return None
    kinds = ", ".join(f"{name}/" for name in _FOLDERS)
    hint = f"did you mean {inner}?" if inner else f"gymctl looks there for {kinds}, config files and rows"
    return f"warning: --search-dir {asked}: there is nothing in it that gymctl can use; {hint}"


def _holds_files(root: Path, left_out: Path | None) -> bool:
    seen = 0
    for folder, inside, files in os.walk(root):
        inside[:] = [name for name in inside if Path(folder, name) != left_out]
        seen += len(files)
        if seen > _MOST or any(name.endswith(_FILES) for name in files):
            return True
    return False
