"""The project's name: what Compose, images, labels and `.gymctl/` call it (at most 63 plain characters)."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path

from gymctl.errors import UsageError

PATTERN = re.compile(r"[a-z0-9][a-z0-9_-]*[a-z0-9]")
LONGEST = 63
_HASH = 4


def project_name(display: str, folder: Path, files: Iterable[Path], explicit: str | None = None) -> str:
    """`explicit` when given and valid, else `display` made plain plus a hash of folder and selected files."""
    if explicit is not None:
        return validated(explicit)
    told = "\0".join([str(folder.resolve()), *(str(file.resolve()) for file in files)])
    digest = hashlib.sha256(told.encode(errors="surrogatepass")).hexdigest()[:_HASH]
    return f"{plain(display)}-{digest}"


def plain(name: str) -> str:
    """Lower-case ASCII, cut to leave room for the hash, then stripped: a cut can end in a dash."""
    ascii_name = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    dashed = re.sub(r"[^a-z0-9_-]+", "-", ascii_name)
    return dashed.strip("-_")[: LONGEST - _HASH - 1].strip("-_") or "gym"


def validated(name: str) -> str:
    if not PATTERN.fullmatch(name) or len(name) > LONGEST:
        near = plain(name)
        near = near if PATTERN.fullmatch(near) else f"{near}-1"
        raise UsageError(
            f"`{name}` cannot be a project name",
            where="--project",
            hint=f"use a-z, 0-9 and, inside, - and _; 2 to {LONGEST} characters, like `{near}`",
        )
    return name


def display_name(files: Iterable[Path]) -> str:
    """What the first selected file is called: its stem, or its folder's name for `config.yaml`."""
    first = next(iter(files), None)
    if first is None:
        return "gym"
    return first.parent.name if first.stem == "config" else first.stem
