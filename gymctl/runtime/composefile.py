"""The Compose file of a project as text: for `up`, which writes it, and `config render`, which prints it.

A preview changes nothing. It is exact where the project's folder and an engine can be asked; where not, it
takes what every engine accepts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gymctl.compose import render, yaml
from gymctl.compose.names import HEAD, service_names
from gymctl.config import ports
from gymctl.config.checks.instances import UNKNOWN_PORT
from gymctl.config.model import Config
from gymctl.errors import PrerequisiteError
from gymctl.images.project import Pythons, by_server, plan_project
from gymctl.paths import ProjectPaths
from gymctl.runtime import parts, private, state

NOT_WRITTEN = "not-written"
"""Label of a part that nobody has written yet: its digest depends on the project's secret."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the file depends on beside the config."""

    images: Mapping[str, str]
    """By server id."""
    head_image: str
    has_start_interval: bool
    platform: str | None = None
    is_emulated: bool = False


def text(config: Config, paths: ProjectPaths, facts: Facts, part_digests: Mapping[str, str]) -> str:
    rendering = render.Rendering(
        images=facts.images,
        head_image=facts.head_image,
        part_digests=part_digests,
        folder=str(paths.folder.parent.parent.resolve()),
        user=render.user(os.getuid(), os.getgid()),
        has_start_interval=facts.has_start_interval,
        cpus=os.cpu_count() or 1,
        platform=facts.platform,
        is_emulated=facts.is_emulated,
    )
    return yaml.dump(render.render(config, rendering), path=_shown(paths.compose))


def preview(
    config: Config,
    pythons: Pythons,
    *,
    has_start_interval: bool,
    platform: str | None = None,
    is_emulated: bool = False,
) -> str:
    """The text that `up` would write, with the ports of last time or else counted up. Writes nothing."""
    paths = ProjectPaths.of(config.project)
    config = _with_ports(config, state.load(paths))
    plans = plan_project(config, pythons)
    facts = Facts(by_server(plans), plans[0].tag, has_start_interval, platform, is_emulated)
    return text(config, paths, facts, _digests(config, paths))


def _with_ports(config: Config, known: state.ProjectState | None) -> Config:
    before = (
        {} if known is None else {name: entry.address.port for name, entry in known.table.servers.items()}
    )
    used = {config.head_port, *ports.disallowed(config.document)}
    used |= {block.port for block in config.servers.values()}
    low, high = ports.port_range(config.document)
    chosen = {}
    for name, block in config.servers.items():
        if block.port == UNKNOWN_PORT:
            wanted = (before.get(name, UNKNOWN_PORT), *range(low, high + 1))
            port = next((port for port in wanted if port not in used), None)
            if port is None:
                raise PrerequisiteError(
                    f"no port is left between {low} and {high}", where="port_range_low, port_range_high"
                )
            used.add(port)
            chosen[name] = replace(block, port=port)
    # With nothing left to look for it only writes them into the document, too.
    return ports.allocate(replace(config, servers={**config.servers, **chosen}))


def _digests(config: Config, paths: ProjectPaths) -> Mapping[str, str]:
    secret = private.read_secret(paths.secret)
    if secret is None:
        return dict.fromkeys([HEAD, *service_names(config.servers).values()], NOT_WRITTEN)
    told = parts.build(config, parts.Wiring(view="network", secret=secret))
    return {service: parts.digest(part) for service, part in told.items()}


def _shown(path: Path) -> str:
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path.resolve())
