"""Agent blocks of a document that is not resolved yet, and the ids that gymctl makes from an agent's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gymctl.config.tree.origins import MISSING

AGENTS = "responses_api_agents"


@dataclass(frozen=True)
class Agent:
    """One top-level agent. `settings` is the level-3 block itself, interpolations kept."""

    name: str
    type: str
    settings: dict[str, Any]

    @property
    def path(self) -> tuple[str, str, str]:
        return self.name, AGENTS, self.type

    @property
    def is_standalone(self) -> bool:
        """It says which resources server it needs, by leaving the name open (CONTRACT 1.16)."""
        reference = self.settings.get("resources_server")
        return isinstance(reference, dict) and reference.get("name") == MISSING

    @property
    def has_resources_server(self) -> bool:
        reference = self.settings.get("resources_server")
        return isinstance(reference, dict) or (isinstance(reference, str) and "${" in reference)


def find(document: Mapping[Any, Any]) -> list[Agent]:
    """Every top-level agent with exactly one implementation; what is wrong with others is told elsewhere."""
    found = []
    for name, block in document.items():
        inner = block.get(AGENTS) if isinstance(block, dict) else None
        if not isinstance(name, str) or not isinstance(inner, dict) or len(inner) != 1:
            continue
        implementation, settings = next(iter(inner.items()))
        if isinstance(settings, dict):
            found.append(Agent(name, str(implementation), settings))
    return found


def composed_id(agent: str, implementation: str, new: str) -> str:
    """`trivia_simple_agent` of type simple_agent, replaced by a hermes_agent -> `trivia_hermes_agent`."""
    stem = _stem(agent, implementation)
    return f"{stem}_{new}" if stem else new


def relay_id(agent: str, implementation: str, taken: set[str]) -> str:
    """`desk_simple_agent` of type simple_agent -> `desk_environment_server`; never one of `taken`."""
    suffix = "_environment_server"
    name = f"{_stem(agent, implementation) or implementation}{suffix}"
    if name in taken:
        name = f"{agent}{suffix}"
    while name in taken:
        name += suffix
    return name


def _stem(agent: str, implementation: str) -> str:
    """The id without its type at the end, or else without `_agent`; "" when nothing is left."""
    stem = agent.removesuffix(f"_{implementation}").removesuffix(implementation).rstrip("_")
    return agent.removesuffix("_agent").rstrip("_") if stem == agent else stem
