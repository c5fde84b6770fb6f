"""Agents of older NeMo Gym configs with a new name: rows and routes may use the old one (CONTRACT 1.18)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gymctl.config.model import Origin, Write
from gymctl.config.reading.include import REASONING_GYM
from gymctl.config.shaping import routing
from gymctl.config.tree.origins import Origins, OriginTree, Path, dotted

RENAMED = {f"reasoning_gym_{old}_agent": f"{new}_reasoning_gym_agent" for old, new in REASONING_GYM.items()}


def apply(
    document: dict[Any, Any], tree: dict[Any, OriginTree], warn: Callable[[str], None]
) -> dict[Path, Write]:
    """Route old names to the agents of today, with a warning for each use. Returns what was written."""
    active = _active(document)
    written: dict[Path, Write] = {}
    uses = []
    for path, agent in list(routing.destinations(document)):
        if agent in active:
            origin = Origins(tree).find(*path) or Origin("default")
            written[path] = Write(origin, _said(agent, active[agent]), dotted(path), "alias")
            uses.append(f"`{agent}` is now `{active[agent]}` ({origin})")
            _set(document, path, active[agent])
    for old, new in active.items():
        origin = Origin("renamed agents")
        path = routing.add(document, tree, old, new, origin)
        if path is not None:
            written[path] = Write(origin, _said(old, new), dotted(path), "alias")
    if uses:
        warn(f"deprecated agent names: {', '.join(uses)}")
    return written


def _active(document: Mapping[Any, Any]) -> dict[str, str]:
    """Old name -> where it goes, for agents that are there; a swapped one is found by its new id."""
    routes = document.get(routing.AGENT_MAP)
    swapped = routes if isinstance(routes, dict) else {}
    targets = {old: swapped.get(new, new) for old, new in RENAMED.items()}
    return {old: new for old, new in targets.items() if old not in document and new in document}


def _said(old: str, new: str) -> str:
    return f"{old} is now {new}"


def _set(document: dict[Any, Any], path: Path, value: str) -> None:
    node: Any = document
    for step in path[:-1]:
        node = node[step]
    node[path[-1]] = value
