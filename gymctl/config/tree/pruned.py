"""The smallest tree in which OmegaConf gives a `${…}` the same answer as in the whole document.

OmegaConf makes a node of every value before it looks at one, which costs seconds for a large document. A text
can only lead to what it names, and on from there; so that is all that OmegaConf gets to see.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from gymctl.config.tree.origins import Path, children

_NODE = re.compile(r"\$\{\s*(\.*)([\w$.\[\]-]+)\s*\}", re.ASCII)
_VARIABLE = re.compile(r"\$\{\s*oc\.env\s*:[^${}]*\}")


def tree_for(document: dict[Any, Any], path: Path, text: str) -> dict[Any, Any]:
    """Holds `path`, whose value is `text`, and everything that this text can lead to.

    The document itself when that cannot be told, because a name is put together (`${a.${b}}`) or a resolver
    goes and looks for one.
    """
    wanted = _closure(document, path, text)
    if wanted is None:
        return document
    tree: dict[Any, Any] = {}
    # Short paths first: a value that is there as a whole holds what lies below it.
    for place in sorted(wanted, key=len):
        _put(tree, document, place, is_whole=wanted[place])
    return tree


def _closure(document: dict[Any, Any], path: Path, text: str) -> dict[Path, bool] | None:
    """Every place that is needed; True: with all that lies below it."""
    wanted: dict[Path, bool] = {}
    waiting = [(path, text)]
    seen = set(waiting)
    while waiting:
        at, said = waiting.pop()
        wanted[at] = True
        targets = _targets(at, said)
        if targets is None:
            return None
        for target in targets:
            place, node = _reach(document, target)
            is_whole = place == target or not isinstance(node, dict)
            wanted[place] = wanted.get(place, False) or is_whole
            for found in _texts(node, place) if is_whole else ():
                if found not in seen:
                    seen.add(found)
                    waiting.append(found)
    return wanted


def _targets(path: Path, text: str) -> list[Path] | None:
    """The paths that `text` names at `path`; None when it is more than plain references and variables."""
    references = list(_NODE.finditer(text))
    if len(references) + len(_VARIABLE.findall(text)) != text.count("${"):
        return None
    targets: list[Path] = []
    for reference in references:
        dots, key = reference.groups()
        above = path[: max(len(path) - len(dots), 0)] if dots else ()
        targets.append((*above, *(step for step in re.split(r"[.\[\]]+", key) if step)))
    return targets


def _reach(document: dict[Any, Any], target: Path) -> tuple[Path, Any]:
    """As far as `target` can be walked: to its end, to a text or scalar, or to the mapping that lacks a key.

    A list is always taken as a whole, so that its indices stay what they are.
    """
    node: Any = document
    for depth, step in enumerate(target):
        if not isinstance(node, dict) or step not in node:
            return target[:depth], node
        node = node[step]
    return target, node


def _texts(node: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(node, str) and "${" in node:
        yield path, node
    for key, child in children(node):
        yield from _texts(child, (*path, key))


def _put(tree: dict[Any, Any], document: Any, path: Path, *, is_whole: bool) -> None:
    """Copy one place of the document to the same place of the tree, with the mappings above it."""
    into, node = tree, document
    for step in path[:-1]:
        node = node[step]
        below = into.setdefault(step, {} if isinstance(node, dict) else node)
        if below is node:
            return
        into = below
    if path:
        into.setdefault(path[-1], node[path[-1]] if is_whole else {})
