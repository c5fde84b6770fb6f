"""The files of a packed benchmark, laid out as somebody gets them who pulls it."""

from __future__ import annotations

from pathlib import Path

from gymctl.artefacts.content import Content


def unpacked(content: Content, target: Path) -> Path:
    for place, item in content.files.items():
        path = target / place
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as stream:
            item.write_to(stream)
        path.chmod(0o755 if item.is_executable else 0o644)
    return target
