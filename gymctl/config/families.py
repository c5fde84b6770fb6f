"""Whose SDK a server folder is written for (DESIGN D13): ours, or NeMo Gym's.

A folder is NeMo Gym's when its requirements ask for `nemo-gym`, or its entrypoint imports `nemo_gym`. Told
from the text of both; nothing is imported.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

Family = Literal["gymctl", "nemo_gym"]

REQUIREMENT_FILES = ("requirements.txt", "pyproject.toml")
_REQUIRES = re.compile(r"^[^#\n]*\bnemo[-_.]gym\b", re.MULTILINE | re.IGNORECASE)
_IMPORTS = re.compile(r"^\s*(?:from|import)\s+nemo_gym\b", re.MULTILINE)


def family_of(folder: Path, entrypoint: str = "app.py") -> Family:
    """The family of a server folder; ours when neither file says otherwise or can be read."""
    if not folder.is_absolute():
        return "gymctl"  # a stand-in, which has no folder
    if any(_REQUIRES.search(_text(folder / name)) for name in REQUIREMENT_FILES):
        return "nemo_gym"
    return "nemo_gym" if _IMPORTS.search(_text(folder / entrypoint)) else "gymctl"


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8", "replace")
    except OSError:
        return ""
