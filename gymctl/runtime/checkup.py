"""Is this machine fit to run projects? One finding for each thing that has gone wrong for somebody before."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gymctl.compose.addresses import LOOPBACK
from gymctl.config.ports import is_free
from gymctl.contract.servers import HEAD_PORT
from gymctl.engine import Engine
from gymctl.errors import GymctlError
from gymctl.paths import cache_dir
from gymctl.runtime import machine, preflight, state

Mark = Literal["ok", "warn", "fail", "skip"]

COMFORTABLE_DISK = 4 * 1024**3
FEW_CPUS = 4
ROLLOUTS_PER_CPU = 8
FEW_DESCRIPTORS = 4096
COMFORTABLE_CONNECTIONS = 20_000


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found, and, where it is not well, what to do."""

    mark: Mark
    text: str
    hint: str | None = None


def findings() -> list[Finding]:
    """All of them, in the order in which they matter. Blocking, about a second with an engine."""
    engine, first = _engine()
    found = [first]
    if engine is not None:
        info: dict[str, Any] = engine.api.info()
        found += [_disk(preflight.free_disk(info)), _base_image(engine), _proxy()]
    else:
        found.append(_disk(shutil.disk_usage(_existing(cache_dir())).free))
    found += [_head_port(), _cpus(), _descriptors(), *_leftovers()]
    return found


def _engine() -> tuple[Engine | None, Finding]:
    try:
        engine = Engine.connect()
        plugins = engine.plugin_versions()
    except GymctlError as error:
        # Not a failure: local processes work without it, and `up` says so.
        where = f" ({error.where})" if error.where else ""
        text = f"{error.what}{where}: servers would run as local processes, without isolation"
        return None, Finding("warn", text, error.hint)
    versions = ", ".join(f"{name} {_number(version)}" for name, version in plugins.items())
    where = engine.endpoint.host
    return engine, Finding("ok", f"docker engine {engine.facts.version}, {versions} at {where}")


def _number(version: str) -> str:
    match = re.search(r"\d+\.\d+\.\d+", version)
    return match[0] if match else version


def _disk(free: int | None) -> Finding:
    if free is None:
        return Finding("skip", "disk: the engine is on another machine")
    text = f"{free / 1024**3:.1f} GB of disk free"
    if free < preflight.SMALLEST_DISK:
        return Finding("fail", text, "`docker system df` shows what takes the room")
    if free < COMFORTABLE_DISK:
        return Finding("warn", f"{text}; images of a large project can need more", "docker builder prune")
    return Finding("ok", text)


def _base_image(engine: Engine) -> Finding:
    from gymctl.images import base

    named = os.environ.get(base.VARIABLE)
    names = (named,) if named else (base.PUBLIC, base.HOME_MADE)
    found = next((name for name in names if engine.image_id(name) is not None), None)
    if found is not None:
        return Finding("ok", f"base image {found} is here")
    if named:
        return Finding("warn", f"base image {named} is not here yet", f"docker pull {named}")
    return Finding("ok", f"base image {base.PUBLIC} is not here yet: the first build pulls it, or makes one")


def _proxy() -> Finding:
    capacity = preflight.proxy_capacity()
    if capacity is None:
        return Finding("ok", "published ports are served without docker-proxy, or its limits are not known")
    text = f"docker-proxy serves published ports and dies at about {capacity:,} connections"
    if capacity >= COMFORTABLE_CONNECTIONS:
        return Finding("ok", text)
    return Finding(
        "warn", text, 'set `"userland-proxy": false` in /etc/docker/daemon.json and restart Docker'
    )


def _head_port() -> Finding:
    if is_free(LOOPBACK, HEAD_PORT):
        return Finding("ok", f"port {HEAD_PORT} free")
    holder = asyncio.run(preflight.holder(LOOPBACK, HEAD_PORT))
    if holder.project is not None:
        return Finding("ok", f"port {HEAD_PORT} held by {holder}")
    return Finding(
        "warn", f"port {HEAD_PORT} is in use by {holder}", "++head_server.port=… takes another one"
    )


def _cpus() -> Finding:
    count = os.cpu_count() or 1
    text = f"{count} CPU{'s' if count > 1 else ''}"
    if count >= FEW_CPUS:
        return Finding("ok", text)
    limit = count * ROLLOUTS_PER_CPU
    return Finding("warn", f"{text}: --concurrency above {limit} measures this machine, not the model")


def _descriptors() -> Finding:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= FEW_DESCRIPTORS:
        return Finding("ok", "open files: no limit" if hard < 0 else f"open files: up to {hard:,}")
    return Finding(
        "warn", f"only {hard:,} open files allowed", "raise it: `ulimit -Hn`, /etc/security/limits.conf"
    )


def _leftovers() -> list[Finding]:
    """Projects of which something is left that does not run any more."""
    found = [
        Finding(
            "warn",
            f"{row.servers - row.running} dead containers of {row.project}",
            f"gymctl down {row.project}",
        )
        for row in _quietly(machine.projects)
        if row.running < row.servers
    ]
    alive = {row.project for row in _quietly(machine.projects)}
    for _, known in state.all_in():
        if known.project not in alive:
            text = f"{known.project} ended without `down`"
            found.append(Finding("warn", text, f"gymctl down {known.project}"))
    return found or [Finding("ok", "no leftovers of dead projects")]


def _quietly(look: Callable[[], list[machine.FoundProject]]) -> list[machine.FoundProject]:
    try:
        return look()
    except GymctlError:
        return []  # the engine's own finding says it already


def _existing(folder: Path) -> Path:
    return next(path for path in (folder, *folder.parents) if path.is_dir())
