"""`inherit_from`, `copy` and `_delete_key`: where a document asks for them, and which block each names.

A path is looked up in the merged tree as it is before any directive (CONTRACT 1.10); ids may hold dots, lists
are indexed (`a[0]`), a plain `${reference}` on the way is followed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gymctl.config.model import Origin
from gymctl.config.names import close, did_you_mean
from gymctl.config.tree.origins import DEFAULT, MISSING, Origins, Path, children, dotted
from gymctl.errors import ConfigError, InheritPathNotFoundError

Kind = Literal["inherit_from", "copy"]
KEYS: dict[str, Kind] = {"_inherit_from": "inherit_from", "_copy": "copy"}
DELETE = "_delete_key"
VALUE = re.compile(r"\s*\$\{(inherit_from|copy):([^${}]*)\}\s*")
LOOKS_LIKE = re.compile(r"\$\{(inherit_from|copy):")
_REFERENCE = re.compile(r"\$\{([^${}:.][^${}:]*)\}")
_MOST_REFERENCES = 20


@dataclass(frozen=True)
class Directive:
    """One request to bring a block from `source` to `target`; no source where `???` stands on the way."""

    target: Path
    source: Path | None
    kind: Kind
    said: str
    origin: Origin
    is_key: bool
    """Written as `_inherit_from: a.b` beside siblings, not as `${inherit_from:a.b}`."""


def are_in(value: object) -> bool:
    """Does anything below `value` look like a directive?"""
    if isinstance(value, Mapping):
        return any(key in KEYS or key == DELETE or are_in(child) for key, child in value.items())
    if isinstance(value, list):
        return any(map(are_in, value))
    return isinstance(value, str) and LOOKS_LIKE.search(value) is not None


def find(frozen: dict[Any, Any], node: Any, path: Path, origins: Origins) -> Iterator[Directive]:
    if isinstance(node, str):
        if match := VALUE.fullmatch(node):
            origin = origins.find(*path) or DEFAULT
            kind: Kind = "copy" if match[1] == "copy" else "inherit_from"
            yield _directive(frozen, path, kind, match[2].strip(), node.strip(), origin, is_key=False)
        return
    if isinstance(node, dict):
        keys = [key for key in node if key in KEYS] if path else []  # at the top level: without effect
        if len(keys) > 1:
            raise ConfigError(
                f"`{dotted(path)}` has both `_inherit_from` and `_copy`; keep one",
                where=origins.where(*path, keys[1]),
            )
        for key in keys:
            origin = origins.find(*path, key) or DEFAULT
            if not isinstance(node[key], str) or not node[key].strip():
                raise ConfigError(
                    f"`{dotted((*path, key))}` must be the path of a block, got `{node[key]}`",
                    where=origin.place,
                )
            said = f"{key}: {node[key].strip()}"
            yield _directive(frozen, path, KEYS[key], node[key].strip(), said, origin, is_key=True)
    for key, child in children(node):
        if key not in KEYS:
            yield from find(frozen, child, (*path, key), origins)


def _directive(
    frozen: dict[Any, Any], target: Path, kind: Kind, wanted: str, said: str, origin: Origin, *, is_key: bool
) -> Directive:
    if wanted == MISSING:
        return Directive(target, None, kind, said, origin, is_key)
    source = _locate(frozen, wanted, target, kind, origin, follow=is_key)
    if source is not None and target[: len(source)] == source:
        raise ConfigError(
            f"`{dotted(target)}` takes its content from `{dotted(source)}`, of which it is a part",
            where=origin.place,
        )
    return Directive(target, source, kind, said, origin, is_key)


def _locate(
    frozen: dict[Any, Any], wanted: str, target: Path, kind: Kind, origin: Origin, *, follow: bool
) -> Path | None:
    """The path that `wanted` names, through plain references; None when a `???` stands on it."""
    steps = _split(wanted)
    for _ in range(_MOST_REFERENCES):
        node: Any = frozen
        path: Path = ()
        rest = steps
        while rest:
            if node == MISSING:
                return None
            if isinstance(node, str) and _REFERENCE.fullmatch(node):
                break
            found = _step(node, rest)
            if found is None:
                raise _not_found(wanted, target, kind, origin, path, node)
            step, used = found
            path, node, rest = (*path, step), node[step], rest[used:]
        if node == MISSING:
            return None
        reference = _REFERENCE.fullmatch(node) if isinstance(node, str) else None
        if reference is None or not (rest or follow):
            return path
        steps = [*_split(reference[1]), *rest]
    raise ConfigError(f"`{wanted}` is a circle of references", where=origin.place)


def _split(wanted: str) -> list[str]:
    return re.sub(r"\[(\w+)\]", r".\1", wanted).split(".")


def _step(node: Any, steps: list[str]) -> tuple[Any, int] | None:
    """The key or index that comes next, and how many steps it takes: an id may hold dots."""
    if isinstance(node, list):
        is_index = steps[0].isascii() and steps[0].isdigit() and int(steps[0]) < len(node)
        return (int(steps[0]), 1) if is_index else None
    if not isinstance(node, dict):
        return None
    for length in range(1, len(steps) + 1):
        name = ".".join(steps[:length])
        if name in node:
            return name, length
        for key in node:
            if not isinstance(key, str) and str(key) == name:
                return key, length
    return None


def _not_found(
    wanted: str, target: Path, kind: Kind, origin: Origin, path: Path, node: Any
) -> InheritPathNotFoundError:
    near: list[str] = []
    if isinstance(node, dict):
        rest = wanted[len(dotted(path)) + 1 :] if path else wanted
        candidates = {str(key): dotted((*path, key)) for key in node if key not in KEYS}
        nearest = close(rest, candidates) or close(rest.split(".")[0], candidates)
        near = [candidates[name] for name in nearest if (*path, name) != target]
    verb = "inherits from" if kind == "inherit_from" else "copies"
    lacking = f" (`{dotted(path)}` has no such key)" if path else ""
    return InheritPathNotFoundError(
        f"`{dotted(target)}` {verb} `{wanted}`, which the configuration does not define{lacking}",
        where=origin.place,
        hint=did_you_mean(near),
    )
