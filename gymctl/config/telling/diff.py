"""What differs between two configurations, leaf by leaf, in document order; secrets are masked.

Values are compared in clear, so a secret that changed is told, as `**** → ****`. The list of files is left
out: two selections always differ in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gymctl.config.model import Config, Origin
from gymctl.config.tree.masking import mask
from gymctl.config.tree.origins import DEFAULT, Path, dotted, leaves

_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Side:
    """What one configuration has at a key: the value, masked, and who wrote it."""

    value: Any
    origin: Origin

    def to_json(self) -> dict[str, Any]:
        return {
            "value": self.value,
            "source": self.origin.source,
            "line": self.origin.line,
            "column": self.origin.column,
        }


@dataclass(frozen=True, slots=True)
class Difference:
    """One leaf. None: this side has no such key."""

    key: str
    a: Side | None
    b: Side | None

    def to_json(self) -> dict[str, Any]:
        a, b = (None if side is None else side.to_json() for side in (self.a, self.b))
        return {"key": self.key, "a": a, "b": b}


def diff(a: Config, b: Config) -> list[Difference]:
    """Every leaf that only one side has, or that both have with another value or another type."""
    secrets = a.secrets | b.secrets
    masked = [mask(config.document, secrets) for config in (a, b)]
    return [
        Difference(
            dotted(path),
            _side(a, masked[0], path) if in_a else None,
            _side(b, masked[1], path) if in_b else None,
        )
        for path, in_a, in_b in _differing(_without_files(a), _without_files(b), ())
    ]


def _without_files(config: Config) -> dict[str, Any]:
    return {key: value for key, value in config.document.items() if key != "config_paths"}


def _differing(a: Any, b: Any, path: Path) -> Iterator[tuple[Path, bool, bool]]:
    """(leaf, is it in a, is it in b): in the order of `a`, what only `b` has at the end of its block."""
    if isinstance(a, Mapping) and isinstance(b, Mapping) and a and b:
        for key in [*a, *(key for key in b if key not in a)]:
            yield from _differing(a.get(key, _ABSENT), b.get(key, _ABSENT), (*path, key))
    elif isinstance(a, list) and isinstance(b, list) and a and b:
        for index in range(max(len(a), len(b))):
            yield from _differing(_item(a, index), _item(b, index), (*path, index))
    elif _is_leaf(a) and _is_leaf(b):
        if repr(a) != repr(b):  # 1, 1.0 and true are equal in Python and differ in YAML
            yield path, True, True
    else:
        yield from ((leaf, True, False) for leaf, _ in _leaves(a, path))
        yield from ((leaf, False, True) for leaf, _ in _leaves(b, path))


def _item(items: list[Any], index: int) -> Any:
    return items[index] if index < len(items) else _ABSENT


def _is_leaf(value: Any) -> bool:
    return value is not _ABSENT and not (isinstance(value, (Mapping, list)) and value)


def _leaves(value: Any, path: Path) -> Iterator[tuple[Path, object]]:
    return iter(()) if value is _ABSENT else leaves(value, path)


def _side(config: Config, masked: Any, path: Path) -> Side:
    value = masked
    for step in path:
        value = value[step]
    return Side(value, config.origins.get(dotted(path), DEFAULT))
