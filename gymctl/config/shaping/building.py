"""Directives applied: the tree that `inherit_from`, `copy` and `_delete_key` make (CONTRACT 1.10).

The merged tree is frozen first; every directive reads from that frozen tree, so the order of the blocks does
not matter and content that was brought in is never scanned again. Then one walk, depth first, builds the new
tree, with the writer of each leaf beside it: what was inherited is left out at its old place, siblings of a
directive are laid over what it brought.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gymctl.config.names import close, did_you_mean
from gymctl.config.shaping.directives import DELETE, KEYS, LOOKS_LIKE, VALUE, Directive, find
from gymctl.config.tree.merge import clash, copied
from gymctl.config.tree.origins import MISSING, Origins, OriginTree, Path, below, children, dotted, through
from gymctl.errors import ConfigError


@dataclass(frozen=True)
class Applied:
    """The document after all directives, its origins, and what was done, in document order."""

    document: dict[Any, Any]
    tree: dict[Any, OriginTree]
    directives: tuple[Directive, ...]
    unused: tuple[ConfigError, ...]
    """Directives without effect: `_delete_key` in a block that holds no such key, others at the top level."""


def apply(frozen: dict[Any, Any], tree: dict[Any, OriginTree]) -> Applied:
    """Apply all directives of a merged document (interpolations kept). Neither argument is changed.

    Raises InheritPathNotFoundError for a source that is not there, ConfigError for a malformed directive.
    """
    origins = Origins(tree)
    found = {item.target: item for item in find(frozen, frozen, (), origins)}
    build = _Build(frozen, tree, found, origins)
    document, new_tree = build.mapping(frozen, tree, (), is_under=False)
    if not isinstance(document, dict):
        raise ConfigError("a directive at the top level must name a mapping", where=found[()].origin.place)
    _refuse_leftovers(document, (), Origins(new_tree))
    idle = [
        ConfigError(f"`{key}` has no effect at the top level", where=origins.where(key))
        for key in KEYS
        if key in frozen
    ]
    return Applied(document, new_tree, tuple(found.values()), (*build.unused, *idle))


class _Build:
    """One walk over the frozen tree."""

    def __init__(
        self,
        frozen: dict[Any, Any],
        tree: dict[Any, OriginTree],
        found: Mapping[Path, Directive],
        origins: Origins,
    ) -> None:
        self._frozen = frozen
        self._tree = tree
        self._found = found
        self._origins = origins
        self._moved = {item.source for item in found.values() if item.kind == "inherit_from" and item.source}
        self.unused: list[ConfigError] = []
        self._owed: dict[Path, list[str]] = {}
        """Keys that `_delete_key` names and that an enclosing directive has to bring."""

    def value(self, value: Any, tree: OriginTree, path: Path, is_under: bool) -> tuple[Any, OriginTree]:
        if path in self._found and not self._found[path].is_key:
            return self._brought(self._found[path])
        if isinstance(value, dict):
            return self.mapping(value, tree, path, is_under)
        if isinstance(value, list):
            built = [
                self.value(child, below(tree, index), (*path, index), is_under)
                for index, child in enumerate(value)
                if (*path, index) not in self._moved
            ]
            return [child for child, _ in built], [origin for _, origin in built]
        return value, tree

    def mapping(self, node: dict[Any, Any], tree: OriginTree, path: Path, is_under: bool) -> tuple[Any, Any]:
        directive = self._found.get(path)
        is_under = is_under or directive is not None
        values: dict[Any, Any] = {}
        origins: dict[Any, OriginTree] = {}
        for key, child in node.items():
            is_directive = key == DELETE or (key in KEYS and path)
            if not is_directive and (*path, key) not in self._moved:
                values[key], origins[key] = self.value(child, below(tree, key), (*path, key), is_under)
        rest = _names(node[DELETE], path, self._origins) if DELETE in node else []
        rest = [name for name in rest if not _drop(values, origins, name)]
        if directive is not None:
            values, origins = self._overlaid(directive, values, origins)
            if values != MISSING:
                rest = [name for name in rest if not _drop(values, origins, name)]
                self._refuse_owed(path)
        if rest and is_under and directive is None:
            self._owed[path] = rest
        elif rest and directive is None:
            # The file that once brought the key may no longer do so.
            self.unused.append(self._nothing_to_delete(path, rest, values))
        elif rest and values != MISSING:
            raise self._nothing_to_delete(path, rest, values)
        return values, origins

    def _brought(self, directive: Directive) -> tuple[Any, OriginTree]:
        """A copy of the source, every leaf with its writer and this directive."""
        if directive.source is None:
            return MISSING, directive.origin
        value: Any = self._frozen
        tree: OriginTree = self._tree
        for step in directive.source:
            value, tree = value[step], below(tree, step)
        return copied(value), through(tree, directive.origin)

    def _overlaid(
        self, directive: Directive, values: dict[Any, Any], origins: dict[Any, OriginTree]
    ) -> tuple[Any, Any]:
        """Siblings on top of what the directive brings."""
        base, base_origins = self._brought(directive)
        if base == MISSING:
            return base, base_origins
        if not values and not isinstance(base, dict):
            return base, base_origins
        if base is None:
            return values, origins
        if not isinstance(base, dict):
            raise ConfigError(
                f"`{dotted(directive.target)}` has keys of its own, and `{dotted(directive.source or ())}`"
                " is no mapping that they could be merged with",
                where=directive.origin.place,
            )
        into = base_origins if isinstance(base_origins, dict) else {}
        self._overlay(base, into, values, origins, directive.target)
        return base, into

    def _overlay(
        self,
        values: dict[Any, Any],
        origins: dict[Any, OriginTree],
        new: dict[Any, Any],
        new_origins: dict[Any, OriginTree],
        path: Path,
    ) -> None:
        """As layers are merged: mappings key by key, the rest as a whole, `???` over nothing."""
        for key, value in new.items():
            here, before, origin = (*path, key), values.get(key), new_origins[key]
            if isinstance(before, dict) and isinstance(value, dict):
                writer = origins.get(key)
                into = writer if isinstance(writer, dict) else {}
                self._overlay(before, into, value, origin if isinstance(origin, dict) else {}, here)
                origins[key] = into
            elif isinstance(before, (dict, list)) and isinstance(value, (dict, list)):
                if type(before) is not type(value):
                    raise clash(here, before, below(origins, key), value, origin)
                values[key], origins[key] = value, origin
            elif key not in values or value != MISSING:
                values[key], origins[key] = value, origin
        owed = self._owed.pop(path, [])
        missing = [name for name in owed if not _drop(values, origins, name)]
        if missing:
            raise self._nothing_to_delete(path, missing, values)

    def _refuse_owed(self, path: Path) -> None:
        """Below `path` everything has been laid over its source; what still waits found no mapping there."""
        for waiting, names in self._owed.items():
            if waiting[: len(path)] == path:
                raise self._nothing_to_delete(waiting, names, {})

    def _nothing_to_delete(self, path: Path, names: list[str], values: Mapping[Any, Any]) -> ConfigError:
        near = close(names[0], map(str, values if isinstance(values, dict) else ()))
        return ConfigError(
            f"`{dotted((*path, DELETE))}` names {', '.join(f'`{name}`' for name in names)},"
            " which is not there to delete",
            where=self._origins.where(*path, DELETE),
            hint=did_you_mean(near[:1]),
        )


def _names(value: Any, path: Path, origins: Origins) -> list[str]:
    names = [name.strip() for name in value.split(",")] if isinstance(value, str) else []
    if not names or not all(names):
        raise ConfigError(
            f"`{dotted((*path, DELETE))}` must name keys, separated by commas, got `{value}`",
            where=origins.where(*path, DELETE),
        )
    return names


def _drop(values: dict[Any, Any], origins: dict[Any, OriginTree], name: str) -> bool:
    for key in values if isinstance(values, dict) else ():
        if str(key) == name:
            del values[key]
            origins.pop(key, None)
            return True
    return False


def _refuse_leftovers(node: Any, path: Path, origins: Origins) -> None:
    """What was brought in is not scanned again: a directive inside it would silently be lost."""
    for key, value in children(node):
        here = (*path, key)
        is_text = isinstance(value, str) and LOOKS_LIKE.search(value) is not None
        is_directive = key == DELETE or (key in KEYS and path)
        if is_directive or (is_text and VALUE.fullmatch(value)):
            raise ConfigError(
                f"`{dotted(here)}` was inherited or copied together with its block, and directives in such"
                " content are not followed",
                where=origins.where(*here),
                hint="name the block that this directive names, and repeat the changes",
            )
        if is_text:
            raise ConfigError(
                f"`{dotted(here)}`: a directive must be the whole value, not part of a text",
                where=origins.where(*here),
            )
        _refuse_leftovers(value, here, origins)
