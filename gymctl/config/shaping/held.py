"""Overrides for agents that only the composition makes: held back, then laid over it (CONTRACT 1.16)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gymctl.config.names import suggestion
from gymctl.config.tree import agents
from gymctl.config.tree.agents import AGENTS
from gymctl.config.tree.layers import Layer
from gymctl.config.tree.merge import clash, merge
from gymctl.config.tree.origins import Origins, OriginTree, Path, at, below, dotted
from gymctl.errors import UnsupportedAgentOverrideError

EVERY_SERVER = ("host", "port", "num_workers")
"""Fields of any server block (CONTRACT 1.1): they may be set although few blocks declare them."""
Problem = tuple[str, str | None]
"""What is wrong, and the override that says it."""


def split(layers: Sequence[Layer], top: Layer) -> tuple[Layer, Layer]:
    """The command line as (what is merged now, what waits for the composed agents)."""
    for_agents = {
        name
        for name, block in top.values.items()
        if isinstance(block, dict) and isinstance(block.get(AGENTS), dict)
    }
    waiting = for_agents and for_agents & _future_ids(layers, for_agents, top)
    return _only(top, set(top.values) - waiting), _only(top, waiting)


def apply(
    held: Layer, name: str, implementation: str, block: dict[str, Any], tree: dict[Any, OriginTree]
) -> Iterator[Problem]:
    """Lay what is held for agent `name` over `block`. Yields what cannot be applied, a line for each."""
    origins = Origins(held.origins)
    for key, inner in (held.values.get(name) or {}).items():
        if key != AGENTS or not isinstance(inner, dict):
            yield _refused(origins, (name, key), f"the composed agent has no `{key}`")
            continue
        for chosen, settings in inner.items():
            here = (name, AGENTS, chosen)
            if chosen != implementation or not isinstance(settings, dict):
                yield _refused(origins, here, f"the composed agent is `{AGENTS}.{implementation}`")
                continue
            yield from _overlay(block, tree, settings, at(held.origins, here), here, origins)


def left_over(held: Layer, composed: Sequence[str]) -> Iterator[Problem]:
    """What names an agent that the composition did not make."""
    for name in held.values:
        if name not in composed:
            near = suggestion(name, composed, noun="composed agents")
            yield _refused(Origins(held.origins), (name,), f"there is no such agent ({near})")


def refuse(problems: Sequence[Problem]) -> UnsupportedAgentOverrideError:
    """One error for all of them."""
    return UnsupportedAgentOverrideError(
        f"an override for a composed agent cannot be applied: {problems[0][0]}",
        where=problems[0][1],
        details=[f"{text} ({place})" for text, place in problems[1:]],
        hint="`gymctl config show` prints the agents and fields that the swap makes",
    )


def _future_ids(layers: Sequence[Layer], for_agents: set[Any], top: Layer) -> set[Any]:
    """The ids that the files' one standalone agent will make, and unknown ids without an `entrypoint`.

    The latter would be no servers: they are meant for agents that a directive and then the composition make.
    """
    if not any(agent.is_standalone for layer in layers for agent in agents.find(layer.values)):
        return set()
    document, _ = merge(layers)
    found = agents.find(document)
    standalone = [agent for agent in found if agent.is_standalone]
    if len(standalone) != 1:
        return set()
    [source] = standalone
    made = {agents.composed_id(agent.name, agent.type, source.type) for agent in found if agent != source}
    unknown = {
        name for name in for_agents if name not in document and not _is_whole(top.values[name][AGENTS])
    }
    return made | unknown


def _is_whole(inner: dict[Any, Any]) -> bool:
    return any(isinstance(settings, dict) and "entrypoint" in settings for settings in inner.values())


def _only(layer: Layer, names: set[Any]) -> Layer:
    return Layer(
        layer.name,
        {name: value for name, value in layer.values.items() if name in names},
        {name: tree for name, tree in layer.origins.items() if name in names},
    )


def _overlay(
    values: dict[str, Any],
    tree: dict[Any, OriginTree],
    new: dict[Any, Any],
    new_tree: Any,
    path: Path,
    origins: Origins,
) -> Iterator[Problem]:
    """As layers are merged; but a mapping that declares fields takes no others."""
    is_block = len(path) == 3
    is_closed = is_block or bool(values)
    for key, value in new.items():
        here, before, origin = (*path, key), values.get(key), new_tree[key]
        if is_closed and key not in values and not (is_block and key in EVERY_SERVER):
            yield _refused(
                origins, here, f"no such field ({suggestion(str(key), map(str, values), noun='declared')})"
            )
        elif isinstance(before, dict) and isinstance(value, dict):
            into = tree.get(key)
            tree[key] = into = into if isinstance(into, dict) else {}
            yield from _overlay(before, into, value, origin, here, origins)
        elif (
            isinstance(before, (dict, list))
            and isinstance(value, (dict, list))
            and type(before) is not type(value)
        ):
            raise clash(here, before, below(tree, key), value, origin)
        else:
            values[key], tree[key] = value, origin


def _refused(origins: Origins, path: Path, why: str) -> Problem:
    return f"`{dotted(path)}`: {why}", origins.where(*path)
