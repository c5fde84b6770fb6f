"""What containers run in: image by id, the limits that hold inside, how they are fenced in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker.errors

from gymctl.compose.render import PROFILE_LABEL
from gymctl.engine import Engine
from gymctl.images.plan import registry_of
from gymctl.images.stores import named_by_manifest
from gymctl.runtime import inforce
from gymctl.runtime.inforce import InForce
from gymctl.runtime.stack import ServerFacts, StackFacts

AT_ONCE = 4
_READERS = (("sh", "-c", inforce.SCRIPT), ("python3", "-c", inforce.PYTHON_SCRIPT))


@dataclass(frozen=True, slots=True)
class Container:
    """What the engine's list says of one container."""

    id: str
    name: str
    server: str
    image: str
    state: str
    """created, running, exited, dead, …"""
    is_healthy: bool = False
    """By the engine's own check."""
    image_id: str = ""

    @property
    def is_running(self) -> bool:
        return self.state == "running"


async def look(engine: Engine, listed: Callable[[], Sequence[Container]], compose: Path) -> StackFacts:
    """Ask the engine, and every running container from inside. Never raises for one that is gone."""
    places = asyncio.Semaphore(AT_ONCE)

    async def one(row: Container) -> ServerFacts:
        async with places:
            return await asyncio.to_thread(_facts, engine, row)

    rows = [row for row in await asyncio.to_thread(listed) if row.is_running]
    async with asyncio.TaskGroup() as group:
        version = group.create_task(asyncio.to_thread(_compose_version, engine))
        text = group.create_task(asyncio.to_thread(_text, compose))
        found = {row.server: group.create_task(one(row)) for row in rows}
    servers = {server: task.result() for server, task in found.items()}
    return StackFacts(servers, engine.facts.version, version.result(), text.result())


def _text(path: Path) -> str | None:
    return path.read_text("utf-8") if path.is_file() else None


def _facts(engine: Engine, row: Container) -> ServerFacts:
    try:
        known: Mapping[str, Any] = engine.api.api.inspect_container(row.id)
        image: Mapping[str, Any] = engine.api.api.inspect_image(known["Image"])
    except (docker.errors.DockerException, OSError):  # gone, or an engine in trouble: others tell of it
        return ServerFacts(InForce(), image=row.image)
    return ServerFacts(
        limits=_limits(engine, row.id),
        image=known["Config"]["Image"],
        image_id=known["Image"],
        digest=_digest(image),
        profile=(known["Config"]["Labels"] or {}).get(PROFILE_LABEL, "closed"),
    )


def _digest(image: Mapping[str, Any]) -> str | None:
    """In the containerd store an image that was never pushed has a digest, too: without a registry's host."""
    found: list[str] = image.get("RepoDigests") or []
    if named_by_manifest(image):
        found = [one for one in found if registry_of(one) is not None]
    return next(iter(found), None)


def _limits(engine: Engine, container: str) -> InForce:
    """By its own files; with Python where the image has no shell."""
    for command in _READERS:
        with suppress(docker.errors.DockerException, OSError):  # stopped meanwhile, or too slow to answer
            made = engine.api.api.exec_create(container, list(command), stderr=False)
            output: bytes = engine.api.api.exec_start(str(made["Id"]))
            found = inforce.parsed(output.decode("utf-8", "replace"))
            if found.cgroup is not None:
                return found
    return InForce()


def _compose_version(engine: Engine) -> str | None:
    try:
        return engine.cli.compose.version().rpartition(" ")[2].lstrip("v")
    except Exception:  # noqa: BLE001 - a version that cannot be told ends no run
        return None
