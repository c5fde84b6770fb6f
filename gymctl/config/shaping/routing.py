"""Where rows are sent that name an agent by an id it no longer has (CONTRACT 1.16, 9.2).

`agent_map` is a top-level mapping from the agent (or instance) that a row names to the agent that it goes to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gymctl.config.model import Origin
from gymctl.config.tree.origins import OriginTree, Path

AGENT_MAP = "agent_map"


def destinations(document: Mapping[Any, Any]) -> Iterator[tuple[Path, str]]:
    """Where rows are sent, with the agent each place names. Keys are read off the rows and name nobody."""
    if isinstance(document.get("agent_name"), str):
        yield ("agent_name",), document["agent_name"]
    for key in (AGENT_MAP, "fan_out"):
        routes = document.get(key)
        for name, value in routes.items() if isinstance(routes, dict) else ():
            if isinstance(value, str):
                yield (key, name), value
            for index, agent in enumerate(value if isinstance(value, list) else ()):
                if isinstance(agent, str):
                    yield (key, name, index), agent


def add(
    document: dict[Any, Any], tree: dict[Any, OriginTree], old: str, new: str, origin: Origin
) -> Path | None:
    """Map `old` to `new` unless the user has mapped it; returns the new leaf."""
    routes = document.get(AGENT_MAP)
    if routes is not None and not isinstance(routes, dict):
        return None  # no mapping: told by whoever reads it
    if routes is None:
        routes = document[AGENT_MAP] = {}
        tree[AGENT_MAP] = {}
    if old in routes:
        return None
    routes[old] = new
    branch = tree.get(AGENT_MAP)
    if not isinstance(branch, dict):
        branch = tree[AGENT_MAP] = {}
    branch[old] = origin
    return AGENT_MAP, old
