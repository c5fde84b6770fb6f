"""Files that are replaced whole: readers see the old one or the new one, and an equal one is left alone."""

from __future__ import annotations

import filecmp
import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


@contextmanager
def replacing(target: Path) -> Iterator[IO[bytes]]:
    """A file that takes the place of `target` when everything went well; an equal one leaves it untouched."""
    side = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with side.open("wb") as file:
            yield file
        if not (target.is_file() and filecmp.cmp(side, target, shallow=False)):
            side.replace(target)
    finally:
        side.unlink(missing_ok=True)


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    with replacing(path) as file:
        file.write(json.dumps(document, indent=4).encode())
