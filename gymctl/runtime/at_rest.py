"""What a project keeps on disk of its secrets, and how it goes when the project ends.

While servers may be started anew, they need their parts and the key that signs cookies. When nothing of the
project runs any more both go, and what a server wrote of its secrets into a log that stays is blotted out.
"""

from __future__ import annotations

import json
import mmap
import shutil
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

from pydantic_core import from_json

from gymctl.config.tree import masking
from gymctl.errors import EngineError
from gymctl.paths import ProjectPaths


def secrets_of(paths: ProjectPaths) -> Collection[str]:
    """What must not be printed of a project: the secrets in its parts, which only its owner can read."""
    found: set[str] = set()
    for path in paths.parts.glob("*.json"):
        try:
            found |= masking.secrets_of(from_json(path.read_bytes()))
        except (OSError, ValueError):
            continue
    return found


def clear(paths: ProjectPaths) -> None:
    """Leave no secret of a project of which nothing runs. Blocking; again does no harm.

    EngineError when something cannot be removed.
    """
    try:
        hidden = set(_spellings(secrets_of(paths)))
        for log in paths.logs.glob("*.log") if hidden else ():
            _blot(log, hidden)
        while paths.parts.is_dir():
            with suppress(FileNotFoundError):  # another command removes it, too
                shutil.rmtree(paths.parts)
        paths.secret.unlink(missing_ok=True)
    except OSError as error:
        raise EngineError(
            f"`{paths.folder.name}` is stopped, but its secrets cannot be removed: {error.strerror or error}",
            where=str(error.filename or paths.folder),
            hint=f"make it yours to write, then gymctl down {paths.folder.name}",
        ) from error


def _spellings(secrets: Iterable[str]) -> Iterable[bytes]:
    """As a text and as JSON has it."""
    for secret in secrets:
        for text in (secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]):
            yield text.encode("utf-8", "surrogatepass")


def _blot(path: Path, hidden: Collection[bytes]) -> None:
    """In place, so that nothing of it stays in a block of the disk and a reader does not lose its place."""
    if path.stat().st_size == 0:
        return
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as content:
        # All are found before the first goes: they may overlap.
        found = [(place, len(secret)) for secret in hidden for place in _places(content, secret)]
        for place, length in found:
            content[place : place + length] = b"*" * length


def _places(content: mmap.mmap, secret: bytes) -> Iterable[int]:
    place = content.find(secret)
    while place >= 0:
        yield place
        place = content.find(secret, place + 1)
