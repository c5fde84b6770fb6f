"""An agent that got a new name by inheritance: environment servers follow it there (CONTRACT 1.10)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gymctl.config.model import Origin, Write
from gymctl.config.shaping.building import Applied
from gymctl.config.shaping.directives import Directive
from gymctl.config.tree.agents import AGENTS
from gymctl.config.tree.origins import Origins, OriginTree, Path, dotted
from gymctl.errors import AmbiguousAgentRenameError

ENVIRONMENTS = "environment_servers"


def follow(applied: Applied, frozen: dict[Any, Any]) -> dict[Path, Write]:
    """Rewrite references to moved agents in `applied`; returns the leaves that follow, and what they follow.

    Raises AmbiguousAgentRenameError when a referenced agent went to several new names.
    """
    moves = _moves(applied, frozen)
    followed: dict[Path, Write] = {}
    if not moves:
        return followed
    origins = Origins(applied.tree)
    for path, reference in references(applied.document):
        old = reference["name"]
        if old not in moves:
            continue
        where = (*path, "name")
        if len(moves[old]) > 1:
            raise _ambiguous(old, moves[old], where, origins)
        directive = moves[old][0]
        reference["name"] = directive.target[0]
        note(applied.tree, where, directive.origin)
        followed[where] = Write(directive.origin, directive.said, dotted(where), "rename")
    return followed


def _moves(applied: Applied, frozen: dict[Any, Any]) -> dict[str, list[Directive]]:
    """By the old name: the directives that made a top-level agent a new one, where the old name is gone."""
    moves: dict[str, list[Directive]] = {}
    for directive in applied.directives:
        source = directive.source
        if directive.kind != "inherit_from" or source is None or len(source) != 1:
            continue
        block = frozen[source[0]]
        is_agent = isinstance(block, dict) and AGENTS in block
        is_there = len(directive.target) == 1 and directive.target[0] in applied.document
        if is_agent and is_there and source[0] not in applied.document:
            moves.setdefault(str(source[0]), []).append(directive)
    return moves


def references(document: dict[Any, Any]) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Direct fields of environment servers that name an agent, as `references.agents_of` counts them."""
    for instance, block in document.items():
        implementations = block.get(ENVIRONMENTS) if isinstance(block, dict) else None
        for implementation, settings in implementations.items() if isinstance(implementations, dict) else ():
            for name, value in settings.items() if isinstance(settings, dict) else ():
                if not isinstance(value, dict) or not isinstance(value.get("name"), str):
                    continue
                if value.get("type") == AGENTS or (name == "agent_server" and "type" not in value):
                    yield (instance, ENVIRONMENTS, implementation, name), value


def note(tree: dict[Any, OriginTree], path: Path, place: Origin) -> None:
    """Remember that `place` changed the value at `path`."""
    node: Any = tree
    for step in path[:-1]:
        node = node.get(step) if isinstance(node, dict) else None
    if isinstance(node, dict) and isinstance(node.get(path[-1]), Origin):
        node[path[-1]] = node[path[-1]].through(place)


def _ambiguous(
    old: str, directives: list[Directive], where: Path, origins: Origins
) -> AmbiguousAgentRenameError:
    names = [f"`{dotted(directive.target)}`" for directive in directives]
    return AmbiguousAgentRenameError(
        f"`{dotted(where)}` still names the agent `{old}`, which was inherited into {' and '.join(names)}",
        where=origins.where(*where),
        details=[f"{name} ({item.origin})" for name, item in zip(names, directives, strict=True)],
        hint=f"name one of them there, or use _copy to keep `{old}`",
    )
