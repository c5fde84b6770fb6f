"""Every project on this machine, whoever started it: containers by label, processes by their environment."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from gymctl.runtime import keeper
from gymctl.runtime.stack import RuntimeName


@dataclass(frozen=True)
class FoundProject:
    project: str
    runtime: RuntimeName
    folder: str
    """Where `gymctl up` was called."""
    servers: int
    running: int


def projects() -> list[FoundProject]:
    """In order of name. Where no engine answers, only local processes are found."""
    from gymctl import engine

    found = _processes()
    if engine.answers():
        found += _containers(engine.Engine.connect())
    return sorted(found, key=lambda row: (row.project, row.folder))


def _containers(connected: object) -> list[FoundProject]:
    from gymctl.compose.render import FOLDER_LABEL, PROJECT_LABEL
    from gymctl.engine import Engine

    assert isinstance(connected, Engine)
    total: Counter[tuple[str, str]] = Counter()
    running: Counter[tuple[str, str]] = Counter()
    for row in connected.api.api.containers(all=True, filters={"label": PROJECT_LABEL}):
        key = (row["Labels"][PROJECT_LABEL], row["Labels"].get(FOLDER_LABEL, ""))
        total[key] += 1
        running[key] += row["State"] == "running"
    return [
        FoundProject(name, "compose", folder, total[name, folder], running[name, folder])
        for name, folder in total
    ]


def _processes() -> list[FoundProject]:
    services: dict[Path, set[str]] = {}
    for parts, row in keeper.find_all():
        services.setdefault(parts, set()).add(row.service)
    return [
        FoundProject(parts.parent.name, "process", str(parts.parent.parent.parent), len(found), len(found))
        for parts, found in services.items()
        if parts.parent.parent.name == ".gymctl"
    ]
