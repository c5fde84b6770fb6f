"""The text of files in a server folder, for what is told of a server without importing its code."""

from __future__ import annotations

from collections.abc import Container, Iterator
from pathlib import Path

_LEFT_OUT = frozenset({"__pycache__", ".venv", "venv", "node_modules", ".git"})


def text_of(file: Path) -> str:
    """As UTF-8, with what is none replaced; empty when the file cannot be read."""
    try:
        return file.read_text("utf-8", "replace")
    except OSError:
        return ""


def files_of(folder: Path, suffixes: Container[str]) -> Iterator[Path]:
    """What the server's author wrote, with one of the suffixes: nothing of caches and environments."""
    for file in folder.rglob("*"):
        if file.suffix in suffixes and not _LEFT_OUT & set(file.relative_to(folder).parts):
            yield file
