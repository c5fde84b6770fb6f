"""`???` and `${…}`: all that is still open is found at once, then the tree becomes a plain document."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gymctl.config.names import close
from gymctl.config.problems import Problems
from gymctl.config.tree.lookup import Circle, Lookup, Unresolved
from gymctl.config.tree.origins import MISSING, Origins, Path, dotted
from gymctl.errors import ConfigError, ConfigInterpolationError, ConfigMissingValuesError

_MAX_VALUES = 1_000_000
"""References to mappings are expanded; a nest of them could otherwise fill the memory."""
_FLAGS = {
    "policy_base_url": "--model-url",
    "policy_api_key": "--model-api-key",
    "policy_model_name": "--model",
}


@dataclass(frozen=True)
class Open:
    """A value nobody gave. `key` is what to set: the value itself or the end of the interpolation."""

    path: Path
    problem: str
    key: str | None
    is_missing: bool
    is_consequence: bool = False
    """It refers to a `???`, which is listed itself."""


def resolve(merged: dict[Any, Any], origins: Origins, problems: Problems) -> dict[str, Any]:
    """The document without `${…}`. One error lists every open value (CONTRACT 1.9); each becomes null."""
    lookup = Lookup(merged)
    names = [str(key) for key in merged]
    try:
        found = [item for path, value in _special(merged, ()) for item in _open(lookup, path, value, names)]
        if found:
            problems.leave_open(item.path for item in found)
            problems.add(_listed([item for item in found if not item.is_consequence], origins))
            merged = _with_null(merged, found)
        document = _Resolving(Lookup(merged)).value(merged, ())
    except Circle as error:
        raise _circle(error.paths, origins) from error
    except RecursionError as error:
        raise ConfigInterpolationError("the configuration is nested too deeply") from error
    return {str(key): value for key, value in document.items()}


def resolved(merged: dict[Any, Any], keys: Iterable[str], origins: Origins) -> dict[str, Any]:
    """Some top-level values of a tree whose other values may be open."""
    resolving = _Resolving(Lookup(merged))
    document: dict[str, Any] = {}
    for key in keys:
        if key not in merged:
            continue
        if merged[key] == MISSING:
            raise ConfigMissingValuesError(f"`{key}` is mandatory and not set", where=origins.where(key))
        try:
            document[key] = resolving.value(merged[key], (key,))
        except Circle as error:
            raise _circle(error.paths, origins) from error
        except Unresolved as error:
            raise ConfigInterpolationError(f"`{key}` {_problem(error)}", where=origins.where(key)) from error
    return document


def value_at(document: Mapping[Any, Any], path: Path) -> Any:
    """One value of a document that may still hold `${…}`; None where it is absent or not to be resolved."""
    lookup = Lookup(dict(document))
    node: Any = document
    at: Path | None = ()
    try:
        for step in path:
            if isinstance(node, str) and "${" in node and at is not None:
                found = lookup.find(at, node)
                node, at = (found.resolved(), None) if found.at is None else (found.value, found.at)
            if not isinstance(node, Mapping) or step not in node:
                return None
            node, at = node[step], None if at is None else (*at, step)
        return None if node == MISSING else _Resolving(lookup).value(node, at or ())
    except (Unresolved, ConfigError, RecursionError):
        return None


def _special(node: Any, path: Path) -> Iterator[tuple[Path, str]]:
    """Every `???` and every text with `${…}`, in document order."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        if isinstance(value, str):
            if "${" in value or value == MISSING:
                yield (*path, key), value
        elif isinstance(value, (dict, list)):
            yield from _special(value, (*path, key))


def _open(lookup: Lookup, path: Path, value: str, names: list[str]) -> Iterable[Open]:
    if value == MISSING:
        yield Open(path, "is mandatory and not set", dotted(path), is_missing=True)
        return
    try:
        lookup.find(path, value)
    except Circle:
        raise
    except Unresolved as error:
        problem, key = _problem(error), None
        if error.kind == "key":
            near = [] if error.name in _FLAGS else close(error.name, names)
            problem += f" (did you mean `{near[0]}`?)" if near else ""
            is_relative = f"${{.{error.name.lstrip('.')}" in value
            key = None if is_relative else error.name
        is_missing = error.kind == "mandatory"
        yield Open(path, problem, key, is_missing=is_missing, is_consequence=is_missing)


def _problem(error: Unresolved) -> str:
    problems = {
        "mandatory": "refers to a value that is not set",
        "variable": f"needs the environment variable `{error.name}`, which is not set",
        "key": f"refers to `{error.name}`, which nothing defines",
    }
    return problems.get(error.kind, f"cannot be resolved: {error.name}")


def _with_null(document: dict[Any, Any], found: Iterable[Open]) -> dict[Any, Any]:
    document = copy.deepcopy(document)
    for item in found:
        node: Any = document
        for step in item.path[:-1]:
            node = node[step]
        node[item.path[-1]] = None
    return document


class _Resolving:
    """One walk over the merged tree that copies it, with what each `${…}` leads to in its place."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._entered: list[Path] = []
        self._count = 0

    def value(self, node: Any, path: Path) -> Any:
        self._count += 1
        if self._count > _MAX_VALUES:
            raise ConfigInterpolationError(f"the configuration expands to more than {_MAX_VALUES} values")
        if isinstance(node, dict):
            return {key: self.value(child, (*path, key)) for key, child in node.items()}
        if isinstance(node, list):
            return [self.value(child, (*path, index)) for index, child in enumerate(node)]
        return self._referred(node, path) if isinstance(node, str) and "${" in node else node

    def _referred(self, text: str, path: Path) -> Any:
        found = self._lookup.find(path, text)
        if found.at is None:
            try:
                return found.resolved()
            except RecursionError as error:
                raise Circle((path,)) from error
        if found.at in self._entered:
            raise Circle(tuple(self._entered[self._entered.index(found.at) :]))
        self._entered.append(found.at)
        try:
            return self.value(found.value, found.at)
        finally:
            self._entered.pop()


def _listed(found: list[Open], origins: Origins) -> ConfigError:
    error_class = (
        ConfigMissingValuesError if any(item.is_missing for item in found) else ConfigInterpolationError
    )
    details = []
    for item in found:
        place = origins.where(*item.path)
        details.append(f"`{dotted(item.path)}` {item.problem}{f' ({place})' if place else ''}")
    noun = "value is" if len(found) == 1 else "values are"
    return error_class(
        f"{len(found)} {noun} missing in the configuration: {', '.join(dotted(item.path) for item in found)}",
        where=origins.where(*found[0].path),
        details=details,
        hint=_hint(list(dict.fromkeys(item.key for item in found if item.key))),
    )


def _hint(keys: list[str]) -> str | None:
    if not keys:
        return None
    settable = [key for key in keys if "[" not in key][:3]
    flags = [f"{_FLAGS[key]} <value>" for key in keys if key in _FLAGS]
    tokens = " ".join(f"++{key}=<value>" for key in settable)
    ways = [" ".join(flags)] if flags else []
    ways += [tokens] if tokens else []
    return f"{' or '.join([*ways, 'set them in env.yaml' if len(keys) > 1 else 'set it in env.yaml'])}"


def _circle(paths: Iterable[Path], origins: Origins) -> ConfigError:
    circle = list(paths)
    places = [origins.where(*path) or "" for path in circle]
    return ConfigInterpolationError(
        f"values refer to each other in a circle: {' → '.join(map(dotted, [*circle, circle[0]]))}",
        where=", ".join(dict.fromkeys(filter(None, places))) or None,
    )
