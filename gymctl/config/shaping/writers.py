"""Every writer of a value, the winner last: asked by `config explain`, and worked out only then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gymctl.config.model import Origin, Write
from gymctl.config.shaping.composition import Swap
from gymctl.config.shaping.directives import VALUE, Directive
from gymctl.config.tree.layers import Layer
from gymctl.config.tree.origins import DEFAULT, MISSING, OriginTree, Path, below, dotted, first, leaves

_COMMAND_LINE = Origin("command line")


@dataclass(frozen=True)
class Changes:
    """What was done to the merged layers before they were resolved."""

    directives: Sequence[Directive] = ()
    swaps: Sequence[Swap] = ()
    held: Layer = field(default_factory=lambda: Layer("command line"))
    """Overrides for the agents that the swaps made."""
    written: Mapping[Path, Sequence[Write]] = field(default_factory=dict)
    """Values that followed an agent to its new id."""


class Writers(Mapping[str, tuple[Write, ...]]):
    """By dotted key of each leaf: who said what, the winner last. Costs nothing until it is asked."""

    def __init__(
        self,
        layers: Sequence[Layer],
        document: Mapping[str, Any],
        changes: Changes | None = None,
    ) -> None:
        changes = changes or Changes()
        self._layers = tuple(layers)
        self._document = document
        self._directives = {item.target: item for item in changes.directives}
        self._written = changes.written
        self._swaps = {swap.new[0]: swap for swap in changes.swaps}
        self._held = changes.held

    @cached_property
    def _leaves(self) -> dict[str, tuple[Path, object]]:
        return {dotted(path): (path, value) for path, value in leaves(self._document)}

    def __iter__(self) -> Iterator[str]:
        return iter(self._leaves)

    def __len__(self) -> int:
        return len(self._leaves)

    def __getitem__(self, key: str) -> tuple[Write, ...]:
        path, value = self._leaves[key]
        if path[0] == "config_paths":
            return self._of_included(path, value)
        swap = self._swaps.get(str(path[0]))
        writes = self._history(path) if swap is None else self._composed(swap, path)
        writes += self._written.get(path, ())
        is_filled = bool(writes) and writes[-1].kind == "value" and writes[-1].said is None
        if not writes or (is_filled and value is not None):
            writes.append(Write(DEFAULT, value, key, "default"))
        return tuple(writes)

    def _composed(self, swap: Swap, path: Path) -> list[Write]:
        """Of an agent that took another's place: what either said, the swap, what was held back for it."""
        writes = self._history(swap.before(path))
        if not writes and path[:3] != swap.new:
            return writes
        moved = [Write(swap.origin, swap.said, swap.new[0], "composed")] if writes else []
        return [*writes, *moved, *(write for _, write in _said([self._held], path))]

    def _history(self, path: Path) -> list[Write]:
        """A directive beside siblings ranks below them; one that is the whole value, above what it replaced.

        A value above the path (`x: null` and later `x: {k: 1}`) ranks lowest: it would hide the rest.
        """
        own = list(_said(self._layers, path))
        brought = [
            (item, list(_said(self._layers, (*item.source, *path[len(target) :]))))
            for length in range(len(path) + 1)
            if (item := self._directives.get(target := path[:length])) is not None and item.source is not None
        ]
        brought = [(item, writes) for item, writes in brought if writes]
        if not brought:
            return [write for _, write in own]
        return [
            *(write for depth, write in own if depth < len(path)),
            *(write for item, writes in brought if item.is_key for write in _through(item, writes)),
            *(write for depth, write in own if depth == len(path)),
            *(write for item, writes in brought if not item.is_key for write in _through(item, writes)),
        ]

    def _of_included(self, path: Path, value: object) -> tuple[Write, ...]:
        """The final list holds the entries of all files (CONTRACT 1.5): who listed an entry wrote it."""
        for layer in self._layers:
            listed = layer.values.get("config_paths")
            if isinstance(listed, list) and value in listed:
                origin = below(layer.origins["config_paths"], listed.index(value))
                return (Write(first(origin) or DEFAULT, value, dotted(path), "value"),)
        return (Write(_COMMAND_LINE, value, dotted(path), "value"),)


def _through(directive: Directive, writes: list[tuple[int, Write]]) -> Iterator[Write]:
    yield from (write for _, write in writes)
    yield Write(directive.origin, directive.said, dotted(directive.target), "directive")


def _said(layers: Sequence[Layer], path: Path) -> list[tuple[int, Write]]:
    """What each layer says about `path`, with the depth at which it says it.

    A `???` that found a value there did not replace it: it goes to the front.
    """
    idle: list[tuple[int, Write]] = []
    said: list[tuple[int, Write]] = []
    for layer in layers:
        found = _in_layer(layer, path)
        if found is None:
            continue
        depth, write = found
        is_idle = write.said == MISSING and bool(said) and _holds(said[-1], depth)
        (idle if is_idle else said).append(found)
    return [*idle, *said]


def _holds(before: tuple[int, Write], depth: int) -> bool:
    """Was there a value at this depth? A scalar further up is none, but for a reference to a mapping."""
    at, write = before
    return at >= depth or (isinstance(write.said, str) and "${" in write.said)


def _in_layer(layer: Layer, path: Path) -> tuple[int, Write] | None:
    value: Any = layer.values
    step: Any
    tree: OriginTree = layer.origins
    depth = 0
    for depth, step in enumerate(path):  # noqa: B007 - how far it came is asked below
        if isinstance(value, dict):
            if step not in value:
                return None
        elif not isinstance(value, list) or not isinstance(step, int) or step >= len(value):
            break
        value, tree = value[step], below(tree, step)
    else:
        depth = len(path)
    if isinstance(value, str) and VALUE.fullmatch(value):
        return None  # a directive: told with what it brings
    return depth, Write(first(tree) or DEFAULT, value, dotted(path[:depth]), "value")
