"""The files that docs/servers.md shows, written to a folder as a reader would."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "servers.md").read_text(encoding="utf-8")
FILES: dict[str, str] = dict(re.findall(r"^`([^`\n]+)`:\n\n```\w+\n(.*?)^```$", PAGE, re.S | re.M))


def write(folder: Path) -> None:
    for name, content in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    for app in folder.glob("mine/*/*/app.py"):
        app.with_name("requirements.txt").write_text("")
