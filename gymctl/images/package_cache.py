"""What BuildKit keeps of packages for the next build: the cache mounts of our Dockerfiles."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gymctl.engine import Engine

_MOUNT = re.compile(r"cached mount .* with id \"?/?(gymctl-(?:pip|uv))\"?$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class PackageCache:
    id: str
    """BuildKit's own."""
    name: str
    """`gymctl-uv` or `gymctl-pip`."""
    size: int
    """Bytes."""
    is_used: bool


def found(engine: Engine) -> list[PackageCache]:
    """Blocking, a second or more."""
    return of(engine.api.df().get("BuildCache") or ())


def of(rows: Sequence[Mapping[str, Any]]) -> list[PackageCache]:
    """rows: `BuildCache` of what the engine says about its disk."""
    matched = ((_MOUNT.search(str(row.get("Description", ""))), row) for row in rows)
    return [
        PackageCache(row["ID"], match[1], int(row.get("Size", 0)), bool(row.get("InUse")))
        for match, row in matched
        if match is not None
    ]


def remove(cache: PackageCache, engine: Engine) -> str | None:
    """None when it is gone, else why it stays. Blocking."""
    prune = ("buildx", "prune", "--builder", engine.builder, "--force", "--filter", f"id={cache.id}")
    done = asyncio.run(engine.run(*prune))
    if done.exit_code != 0:
        return (done.last_lines or ("docker buildx prune failed",))[-1]
    return None if cache.id in done.stdout else "a build uses it"
