"""The files and tokens of our own that the cases use, as they lie beside this file. Pure standard library."""

from __future__ import annotations

import json
import re
from pathlib import Path

_HERE = Path(__file__).parent
_HEAD = re.compile(r"^=== (\S+)/(\S+)\n", re.MULTILINE)


def folders() -> dict[str, dict[str, str]]:
    """Folder -> file name -> text. A line `=== folder/name` starts a file."""
    _, *parts = _HEAD.split((_HERE / "own_files.txt").read_text(encoding="utf-8"))
    found: dict[str, dict[str, str]] = {"plain": {}}
    for folder, name, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        found.setdefault(folder, {})[name] = text
    return found


def tokens() -> list[list[str]]:
    """The tokens of one command line each, over `server.yaml` and `tokens.yaml`."""
    return json.loads((_HERE / "tokens.json").read_text(encoding="utf-8"))
