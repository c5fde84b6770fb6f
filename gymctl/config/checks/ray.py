"""Which servers use Ray, told from their text: nobody else starts it or waits for it (DESIGN D8)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from gymctl.config.model import GlobalSettings, ServerBlock
from gymctl.config.problems import Problems
from gymctl.config.server_classes.ray import MARK, imports_ray
from gymctl.config.server_classes.server_class import ServerClasses
from gymctl.errors import ConfigError


def told(servers: Mapping[str, ServerBlock], classes: ServerClasses) -> dict[str, ServerBlock]:
    """The blocks, with what their classes say about Ray."""
    return {name: _told(block, classes.of(block).ray_enabled) for name, block in servers.items()}


def _told(block: ServerBlock, declared: bool | None) -> ServerBlock:
    if declared is None and block.family == "nemo_gym":
        return replace(block, uses_ray=True, runs_ray_tasks=imports_ray(block.folder))
    return replace(block, uses_ray=declared is True, runs_ray_tasks=declared is True)


def asked_for(settings: GlobalSettings, servers: Iterable[ServerBlock], problems: Problems) -> GlobalSettings:
    """The settings under `--ray`, which is a mistake where no server would ever dial it."""
    if not any(block.uses_ray for block in servers):
        error = ConfigError(
            "no server of this project uses Ray",
            where="--ray",
            hint=f"a server that runs tasks says `{MARK} = True` in its class",
        )
        problems.add(error)
    return settings.model_copy(update={"ray": settings.ray.model_copy(update={"is_asked_for": True})})
