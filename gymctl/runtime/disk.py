"""How many bytes a folder takes on the disk."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def size_of(path: Path) -> int:
    """Bytes on the disk of all files below, a file with several names once."""
    sizes: dict[int, int] = {}
    for parent, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):
                found = os.lstat(os.path.join(parent, name))  # noqa: PTH118 - many thousands of files
                sizes[found.st_ino] = found.st_blocks * 512
    with suppress(OSError):
        if not path.is_dir():
            return path.lstat().st_blocks * 512
    return sum(sizes.values())
