"""Layers -> the tree that is resolved: merge, directives, another agent, old names (CONTRACT 1.11)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gymctl.config.model import Write
from gymctl.config.problems import Problems
from gymctl.config.shaping import aliases, building, composition, directives, held, renames
from gymctl.config.shaping.composition import Asked
from gymctl.config.shaping.writers import Changes
from gymctl.config.tree.layers import Layer
from gymctl.config.tree.merge import merge
from gymctl.config.tree.origins import Origins, Path


@dataclass(frozen=True)
class Shaped:
    """The tree, interpolations kept, with the writer of each leaf; and what was done to the layers."""

    merged: dict[Any, Any]
    origins: Origins
    layers: tuple[Layer, ...]
    changes: Changes


def shape(
    layers: Sequence[Layer],
    top: Layer,
    entries: Sequence[str],
    *,
    agent_type: str | None,
    environ: Mapping[str, str],
    problems: Problems,
) -> Shaped:
    """`layers` are files and env.yaml, `top` is the command line, `entries` the final `config_paths`."""
    now, waiting = held.split(layers, top)
    warnings: list[str] = []
    shaped = _shape(layers, Asked(agent_type, now, waiting, environ, warnings.append), entries)
    if waiting.values and not shaped.changes.swaps:
        # No agent is composed after all (the command line binds the standalone one): nothing has to wait.
        warnings.clear()
        asked = Asked(agent_type, top, Layer(top.name), environ, warnings.append)
        shaped = _shape(layers, asked, entries)
    for warning in warnings:
        problems.warn(warning)
    return shaped


def _shape(layers: Sequence[Layer], asked: Asked, entries: Sequence[str]) -> Shaped:
    everything = (*layers, asked.now)
    merged, origins = merge(everything)
    merged["config_paths"] = list(entries)
    is_directed = any(directives.are_in(layer.values) for layer in everything)
    document, tree = merged, origins.tree
    done: tuple[directives.Directive, ...] = ()
    written: list[Mapping[Path, Write]] = []
    if is_directed:
        applied = building.apply(document, tree)
        for unused in applied.unused:
            asked.warn(f"{unused.what} ({unused.where})")
        written.append(renames.follow(applied, document))
        document, tree, done = applied.document, applied.tree, applied.directives
    composed = composition.compose(document, tree, asked)
    written += [composed.written, aliases.apply(document, tree, asked.warn)]
    changes = Changes(done, composed.swaps, asked.held, _by_path(written))
    return Shaped(document, Origins(tree), everything, changes)


def _by_path(written: Sequence[Mapping[Path, Write]]) -> dict[Path, list[Write]]:
    found: dict[Path, list[Write]] = {}
    for one in written:
        for path, write in one.items():
            found.setdefault(path, []).append(write)
    return found
