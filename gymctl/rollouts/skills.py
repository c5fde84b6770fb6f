"""A folder of skills (CONTRACT 8.6): what rows are stamped with, so that results tell their skills."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml

from gymctl.errors import ConfigError

FILE = "SKILL.md"
_FENCE = "---"


def skills_ref(folder: Path) -> dict[str, Any]:
    """`{"path", "hash", "skills"}` of a folder whose sub-folders hold a SKILL.md each. Raises ConfigError."""
    if not folder.is_dir():
        raise ConfigError("there is no such folder of skills", where=str(folder))
    try:
        skills = [_skill(file) for file in sorted(folder.glob(f"*/{FILE}"))]
        digest = folder_hash(folder)
    except OSError as error:
        raise ConfigError(
            f"the skills cannot be read: {error.strerror}", where=str(error.filename or folder)
        ) from error
    if not skills:
        raise ConfigError(
            "this folder holds no skill", where=str(folder), hint=f"a skill is a sub-folder with a {FILE}"
        )
    return {"path": str(folder), "hash": digest, "skills": skills}


def folder_hash(folder: Path) -> str:
    """The first 12 hex digits of sha256 over `path NUL bytes NUL` of all files, sorted by path."""
    total = sha256()
    for name, file in sorted(_files(folder)):
        total.update(name.encode() + b"\0" + file.read_bytes() + b"\0")
    return total.hexdigest()[:12]


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    return ((file.relative_to(folder).as_posix(), file) for file in folder.rglob("*") if file.is_file())


def _skill(file: Path) -> dict[str, Any]:
    matter = _front_matter(file)
    metadata = matter.get("metadata")
    version = metadata.get("version") if isinstance(metadata, Mapping) else None
    return {
        "name": str(matter.get("name") or file.parent.name),
        "description": _text(matter.get("description")),
        "version": _text(version),
    }


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _front_matter(file: Path) -> Mapping[str, Any]:
    """The YAML between the first two `---` lines; nothing where a file has none."""
    lines = file.read_text("utf-8", errors="replace").removeprefix("\ufeff").split("\n")
    if lines[0].rstrip() != _FENCE:
        return {}
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == _FENCE), None)
    if end is None:
        raise ConfigError(f"the front matter has no end: a line `{_FENCE}`", where=str(file))
    try:
        # As text: a version `1.10` must not become the number 1.1.
        matter = yaml.load("\n".join(lines[1:end]), yaml.BaseLoader)
    except yaml.YAMLError as error:
        raise ConfigError("the front matter is not YAML", where=str(file)) from error
    return matter if isinstance(matter, Mapping) else {}
