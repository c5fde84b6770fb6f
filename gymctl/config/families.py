"""Whose SDK a server folder is written for (DESIGN D13): ours, or NeMo Gym's.

A folder is NeMo Gym's when its requirements ask for `nemo-gym`, or its entrypoint imports `nemo_gym`. Told
from the text of both; nothing is imported.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from gymctl.config.folder_text import text_of

Family = Literal["gymctl", "nemo_gym"]

REQUIREMENT_FILES = ("requirements.txt", "pyproject.toml")
_REQUIRES = re.compile(r"^[^#\n]*\bnemo[-_.]gym\b", re.MULTILINE | re.IGNORECASE)
_IMPORTS = re.compile(r"^\s*(?:from|import)\s+nemo_gym\b", re.MULTILINE)


def family_of(folder: Path, entrypoint: str = "app.py") -> Family:
    """The family of a server folder; ours when neither file says otherwise or can be read."""
    if not folder.is_absolute():
        return "gymctl"  # a stand-in, which has no folder
    if any(_REQUIRES.search(text_of(folder / name)) for name in REQUIREMENT_FILES):
        return "nemo_gym"
    return "nemo_gym" if _IMPORTS.search(text_of(folder / entrypoint)) else "gymctl"
