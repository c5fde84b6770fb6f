"""Who wrote each value: a tree beside the config tree, merged alike, asked for `file:line:column`.

A node of the tree is a dict (a mapping), a list (a sequence) or an `Origin` (anything else). Empty containers
keep no origin of their own; nobody needs to find them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from gymctl.config.model import Origin

Path = tuple[str | int, ...]
OriginTree = dict[Any, "OriginTree"] | list["OriginTree"] | Origin

MISSING = "???"
DEFAULT = Origin("default")
REST = object()
"""Key of a mapping's tree for values that came in through an interpolation merged under it."""


def dotted(path: Sequence[object]) -> str:
    """`("a", "b", 0)` -> `a.b[0]`, the spelling of CONTRACT 1.9."""
    text = ""
    for step in path:
        if isinstance(step, int) and not isinstance(step, bool):
            text += f"[{step}]"
        else:
            text += f".{step}" if text else str(step)
    return text


def uniform(value: object, origin: Origin) -> OriginTree:
    """The tree of a value that one place wrote as a whole (an override, a default)."""
    if isinstance(value, Mapping):
        return {key: uniform(child, origin) for key, child in value.items()}
    if isinstance(value, list):
        return [uniform(child, origin) for child in value]
    return origin


def below(tree: OriginTree, step: object) -> OriginTree:
    """The origins one step down; of a value that came in through an interpolation: those of the reference."""
    if isinstance(tree, Origin):
        return tree
    if isinstance(tree, list):
        return tree[step] if isinstance(step, int) and step < len(tree) else DEFAULT
    return tree[step] if step in tree else tree.get(REST, DEFAULT)


def at(tree: OriginTree, path: Iterable[object]) -> OriginTree:
    """The origins at the end of `path`."""
    for step in path:
        tree = below(tree, step)
    return tree


def first(tree: OriginTree) -> Origin | None:
    """The place of a value; of a mapping or list: of its first leaf. None when it has none."""
    if isinstance(tree, Origin):
        return tree
    children = tree.values() if isinstance(tree, dict) else tree
    return next((origin for child in children if (origin := first(child)) is not None), None)


def children(value: object) -> Iterator[tuple[Any, Any]]:
    """Keys and values of a mapping, indices and values of a list, nothing of a scalar."""
    if isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, list):
        yield from enumerate(value)


def through(tree: OriginTree, place: Origin) -> OriginTree:
    """The same writers; `place` is why their values are where they are now."""
    if isinstance(tree, dict):
        return {key: through(child, place) for key, child in tree.items()}
    if isinstance(tree, list):
        return [through(child, place) for child in tree]
    return tree.through(place)


def leaves(value: object, path: Path = ()) -> Iterator[tuple[Path, object]]:
    """Every scalar (and empty container) below `value` with its path, in document order."""
    if isinstance(value, Mapping) and value:
        for key, child in value.items():
            yield from leaves(child, (*path, key))
    elif isinstance(value, list) and value:
        for index, child in enumerate(value):
            yield from leaves(child, (*path, index))
    else:
        yield path, value


class Origins:
    """Answers "where does this come from?" for any path of the merged document."""

    def __init__(self, tree: dict[Any, OriginTree]) -> None:
        self._tree = tree

    @property
    def tree(self) -> dict[Any, OriginTree]:
        return self._tree

    def find(self, *path: object) -> Origin | None:
        """The place of a value; of a container: its first leaf; of a value inside `${…}`: the reference."""
        node: OriginTree = self._tree
        for step in path:
            if isinstance(node, Origin):
                return node
            try:
                node = node[step]  # type: ignore[index]
            except (KeyError, IndexError, TypeError):
                rest = node.get(REST) if isinstance(node, dict) else None
                return rest if isinstance(rest, Origin) else None
        return first(node)

    def where(self, *path: object) -> str | None:
        """`file:line:column` for an error, or None when only gymctl itself wrote the value."""
        origin = self.find(*path)
        return None if origin is None else origin.place

    def flat(self, document: Mapping[str, Any]) -> Mapping[str, Origin]:
        """Last writer of each leaf, by dotted key. What no layer wrote is a default."""
        return _Flat(self, document)


def place_of(origins: Mapping[str, Origin], key: str) -> str | None:
    """By dotted key: the place of a value, else of what is below it, else of the key above it.

    None for what nobody wrote.
    """
    while key:
        below = (f"{key}.", f"{key}[")
        named = (place for name, place in origins.items() if name == key or name.startswith(below))
        found = next((place for place in named if place != DEFAULT), None)
        if found is not None:
            return found.place
        key = key.rpartition("[" if key.endswith("]") else ".")[0]
    return None


class _Flat(Mapping[str, Origin]):
    """Costs nothing until it is asked: most commands ask for a handful of thousands of keys, or for none."""

    def __init__(self, origins: Origins, document: Mapping[str, Any]) -> None:
        self._origins = origins
        self._document = document

    @cached_property
    def _by_key(self) -> dict[str, Origin]:
        return {dotted(path): self._origins.find(*path) or DEFAULT for path, _ in leaves(self._document)}

    def __getitem__(self, key: str) -> Origin:
        return self._by_key[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_key)

    def __len__(self) -> int:
        return len(self._by_key)
