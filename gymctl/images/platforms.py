"""For which platforms an engine can build: its own, and those that it emulates."""

from __future__ import annotations

import re

from gymctl.engine import Engine
from gymctl.errors import PrerequisiteError, UsageError

PLATFORMS = ("linux/amd64", "linux/arm64")
"""The locks of the base and of the built-in servers are for these."""
_LINE = re.compile(r"^Platforms:\s*(.*)$", re.MULTILINE)


def chosen(value: str | None) -> str | None:
    """What `--platform` says. UsageError for what is none of `PLATFORMS`."""
    if value is not None and value not in PLATFORMS:
        hint = f"one of {', '.join(PLATFORMS)}"
        raise UsageError(f"`{value}` is no platform that images are made for", where="--platform", hint=hint)
    return value


async def check(engine: Engine) -> str | None:
    """PrerequisiteError when the engine cannot build for its platform; a warning when it emulates it."""
    if engine.platform == engine.facts.platform:
        return None
    finished = await engine.run("buildx", "inspect", engine.builder)
    if engine.platform not in offered(finished.stdout):
        raise PrerequisiteError(
            f"this engine ({engine.facts.platform}) cannot build for {engine.platform}",
            where="--platform",
            hint="install emulation on its machine (Debian: qemu-user-static and binfmt-support), or build on"
            f" a machine that is {engine.platform}",
        )
    return f"{engine.platform} is emulated on this engine ({engine.facts.platform}): slow"


def offered(inspected: str) -> set[str]:
    """The platforms that `docker buildx inspect` names."""
    found = _LINE.search(inspected)
    return set() if found is None else {one.strip().rstrip("*") for one in found[1].split(",")}
