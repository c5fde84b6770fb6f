"""Layers -> one OmegaConf tree; later ones win, mappings key by key, the rest as a whole (CONTRACT 1.4).

OmegaConf merges the values, so that its rules hold (`???` never replaces a value, null does); the origins are
merged beside it. What OmegaConf reports without a place is found first and said with both places.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from gymctl.config.files import Layer
from gymctl.config.masking import is_secret, redact
from gymctl.config.model import Origin
from gymctl.config.origins import MISSING, REST, Origins, OriginTree, Path, dotted, leaves
from gymctl.errors import ConfigError, ConfigInterpolationError


def merge(layers: Iterable[Layer]) -> tuple[DictConfig, Origins]:
    """The merged tree (interpolations kept) and who wrote what."""
    merged = OmegaConf.create({})
    tree: dict[Any, OriginTree] = {}
    for layer in layers:
        _merge_origins(tree, layer.origins, layer.values, ())
        try:
            merged = OmegaConf.merge(merged, OmegaConf.create(layer.values))
        except OmegaConfBaseException as error:
            raise _explain(error, layer) from error
    assert isinstance(merged, DictConfig)
    return merged, Origins(tree)


def _merge_origins(
    into: dict[Any, OriginTree], new: Mapping[Any, OriginTree], values: Mapping[Any, Any], path: Path
) -> None:
    for key, origin in new.items():
        before = into.get(key)
        where = (*path, key)
        if isinstance(before, dict) and isinstance(origin, dict):
            _merge_origins(before, origin, values[key], where)
        elif _is_container(before) and _is_container(origin) and type(before) is not type(origin):
            raise clash(where, before, origin)
        elif before is None or values[key] != MISSING:
            into[key] = copied(origin)
            if isinstance(before, Origin) and isinstance(origin, dict):
                # `judge: ${base}` and then `judge: {t: 1}`: OmegaConf keeps the rest of `base` in `judge`.
                into[key] = {**copied(origin), REST: before}  # type: ignore[dict-item]


def _is_container(tree: OriginTree | None) -> bool:
    return isinstance(tree, (dict, list))


def copied(tree: OriginTree) -> OriginTree:
    """Mappings are merged in place, so a layer's own tree must not be shared."""
    return {key: copied(child) for key, child in tree.items()} if isinstance(tree, dict) else tree


def clash(path: Path, before: OriginTree | None, after: OriginTree) -> ConfigError:
    """The error for a mapping and a list that want the same key."""

    def describe(tree: OriginTree | None) -> str:
        kind = "a mapping" if isinstance(tree, dict) else "a list"
        place = Origins({"": tree}).where("") if tree is not None else None
        return f"{kind} in {place}" if place else kind

    return ConfigError(
        f"`{dotted(path)}` is {describe(before)} and {describe(after)}; the two cannot be merged",
        where=Origins({"": after}).where(""),
    )


def _explain(error: OmegaConfBaseException, layer: Layer) -> ConfigError:
    """OmegaConf names no file: find the leaf that it refuses on its own."""
    origins = Origins(layer.origins)
    for path, value in leaves(layer.values):
        if isinstance(value, str) and "${" in value:
            try:
                OmegaConf.create({"value": value})
            except OmegaConfBaseException:
                shown = "" if any(map(is_secret, path)) else f": {redact(value, ())}"
                return ConfigInterpolationError(
                    f"`{dotted(path)}` is no valid interpolation{shown}", where=origins.where(*path)
                )
    key = getattr(error, "full_key", None)
    reason = str(error).splitlines()[0]
    return ConfigError(f"{reason}{f' (at `{key}`)' if key else ''}", where=layer.name)
