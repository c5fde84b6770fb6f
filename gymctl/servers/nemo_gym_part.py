"""Inside an image of NeMo Gym's family: a server's part stands where `nemo_gym` looks for its configuration.

nemo_gym reads NEMO_GYM_CONFIG_DICT (YAML text of the whole document) and NEMO_GYM_CONFIG_PATH (the instance's
name). A real variable ends at 128 KiB, is inherited by all that a server starts, and is shown to whoever may
inspect the container. So `os.environ` answers both names from the mounted part file, in this process only.
Every Python process of the container calls `install` (by a .pth file of the image), workers of a server
included; it needs nothing but the standard library. What really is in the environment wins.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

# As in gymctl/contract/part.py, which is not in the image.
PART_VARIABLE = "GYMCTL_PART"
PART_PATH = "/run/gymctl/part.json"
FIELDS = {"NEMO_GYM_CONFIG_DICT": "document", "NEMO_GYM_CONFIG_PATH": "name"}


class Environment(type(os.environ)):
    """The process's environment, which also knows the two names; they are not listed and not inherited."""

    def __getitem__(self, key: str) -> str:
        try:
            return super().__getitem__(key)
        except KeyError:
            found = _told(FIELDS[key]) if key in FIELDS else None
            if found is None:
                raise
            return found


def _told(field: str) -> str | None:
    try:
        part: dict[str, Any] = json.loads(Path(os.environ.get(PART_VARIABLE, PART_PATH)).read_text("utf-8"))
    except FileNotFoundError:
        return None
    return part.get(field)


def install() -> None:
    """Let `os.environ` of this process know the part."""
    os.environ.__class__ = Environment
