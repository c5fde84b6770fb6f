"""Layers -> one tree; later ones win, mappings key by key, the rest as a whole (CONTRACT 1.4).

The rules are OmegaConf's (`???` never replaces a value, null does, a mapping over a `${reference}` is laid
over what that refers to). They are written down here because OmegaConf makes a node of every value at every
step and needs seconds for a large configuration; the tests compare the two. Who wrote a value is merged in
the same walk.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gymctl.config.tree.layers import Layer
from gymctl.config.tree.lookup import Lookup, Unresolved, is_plain, is_scalar
from gymctl.config.tree.masking import is_secret, redact
from gymctl.config.tree.origins import MISSING, REST, Origins, OriginTree, Path, below, dotted, first, leaves
from gymctl.errors import ConfigError, ConfigInterpolationError


def merge(layers: Iterable[Layer]) -> tuple[dict[Any, Any], Origins]:
    """The merged tree (interpolations kept) and who wrote what. The layers stay as they are."""
    merged: dict[Any, Any] = {}
    tree: dict[Any, OriginTree] = {}
    known: set[str] = set()
    for layer in layers:
        _check(layer, known)
        _Merging(merged).lay(merged, tree, layer.values, layer.origins, ())
    return merged, Origins(tree)


class _Merging:
    """One layer over the tree as it is; `document` is its top, where references start."""

    def __init__(self, document: dict[Any, Any]) -> None:
        self._document = document

    def lay(
        self,
        values: dict[Any, Any],
        tree: dict[Any, OriginTree],
        new: Mapping[Any, Any],
        origins: Mapping[Any, OriginTree],
        path: Path,
    ) -> None:
        for key, value in new.items():
            origin = origins[key]
            if key not in values:
                values[key], tree[key] = copied(value), copied(origin)
                continue
            writer = below(tree, key)
            before = self._expanded(values, key, value, (*path, key))
            if isinstance(before, dict) and isinstance(value, dict):
                into: dict[Any, OriginTree] = writer if isinstance(writer, dict) else {REST: writer}
                tree[key] = into
                self.lay(before, into, value, origin if isinstance(origin, dict) else {}, (*path, key))
            elif isinstance(before, (dict, list)) and isinstance(value, (dict, list)):
                if type(before) is not type(value):
                    raise clash((*path, key), before, writer, value, origin)
                values[key], tree[key] = copied(value), copied(origin)
            elif value != MISSING:
                values[key], tree[key] = copied(value), copied(origin)

    def _expanded(self, values: dict[Any, Any], key: Any, new: Any, path: Path) -> Any:
        """The value so far; a reference that `new` does not simply replace becomes what it refers to."""
        before = values[key]
        is_reference = isinstance(before, str) and "${" in before
        if not is_reference or not (isinstance(new, (dict, list)) or new == MISSING):
            return before
        try:
            found = Lookup(self._document).find(path, before)
        except Unresolved:
            return before
        if not is_scalar(found.value):
            values[key] = found.raw()
        return values[key]


def copied(value: Any) -> Any:
    """The result belongs to the caller, so a layer's own mappings and lists must not be shared."""
    if isinstance(value, dict):
        return {key: copied(child) for key, child in value.items()}
    return [copied(child) for child in value] if isinstance(value, list) else value


def clash(path: Path, before: Any, writer: OriginTree, after: Any, origin: OriginTree) -> ConfigError:
    """The error for a mapping and a list that want the same key."""

    def described(value: Any, tree: OriginTree) -> str:
        kind = "a mapping" if isinstance(value, dict) else "a list"
        origin = first(tree)
        return kind if origin is None else f"{kind} in {origin.place}"

    return ConfigError(
        f"`{dotted(path)}` is {described(before, writer)} and {described(after, origin)};"
        " the two cannot be merged",
        where=None if (later := first(origin)) is None else later.place,
    )


def _check(layer: Layer, known: set[str]) -> None:
    """Refuse what OmegaConf would refuse to hold: a malformed `${…}`, a value of a type of its own."""
    if _is_sound(layer.values, known):
        return
    origins = Origins(layer.origins)
    for path, value in leaves(layer.values):
        if _is_sound(value, known):
            continue
        where = origins.where(*path)
        if not isinstance(value, str):
            raise ConfigError(
                f"`{dotted(path)}` is of the type {type(value).__name__}, which a config cannot hold",
                where=where,
                hint="quote it to make it text",
            )
        shown = "" if any(map(is_secret, path)) else f": {redact(value, ())}"
        raise ConfigInterpolationError(f"`{dotted(path)}` is no valid interpolation{shown}", where=where)


def _is_sound(value: Any, known: set[str]) -> bool:
    if isinstance(value, dict):
        return all(_is_sound(child, known) for child in value.values())
    if isinstance(value, list):
        return all(_is_sound(child, known) for child in value)
    if not isinstance(value, str) or "${" not in value:
        return is_scalar(value)
    if value not in known and not is_plain(value) and not _is_grammatical(value):
        return False
    known.add(value)
    return True


def _is_grammatical(text: str) -> bool:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        OmegaConf.create({"value": text})
    except (OmegaConfBaseException, RecursionError):
        return False
    return True
