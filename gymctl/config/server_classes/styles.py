"""Whether rollouts go by tools (seed, tools, verify) or by steps (reset, step), told from the classes."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Literal

Style = Literal["tools", "steps"]

MARK = "plays_steps"
"""The class attribute by which an agent says that it plays step-style environments."""
_BASES: dict[str, Style] = {"GymnasiumServer": "steps", "ResourcesServer": "tools", "AgentServer": "tools"}
_REROUTED = frozenset({"run", "routes"})
"""A class with its own of these may go either way: only its mark says which."""


def style_of(lineage: Iterable[tuple[ast.AST, bool]]) -> Style | None:
    """lineage: a class and its bases, the nearest first, each with whether it is the SDK's own."""
    for node, is_ours in lineage:
        if not isinstance(node, ast.ClassDef):
            continue
        if is_ours and node.name in _BASES:
            return _BASES[node.name]
        marked = _marked(node)
        if marked is not None:
            return "steps" if marked else "tools"
        if not is_ours and any(getattr(statement, "name", None) in _REROUTED for statement in node.body):
            return None
    return None


def _marked(node: ast.ClassDef) -> bool | None:
    for statement in node.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=bool() as value)):
                if name == MARK:
                    return value
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=bool() as value)):
                if name == MARK:
                    return value
    return None
