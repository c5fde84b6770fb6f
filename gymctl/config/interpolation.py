"""`???` and `${…}`: all that is still open is found at once, then the tree becomes a plain document."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import InterpolationToMissingValueError, MissingMandatoryValue, OmegaConfBaseException

from gymctl.config.names import close
from gymctl.config.origins import MISSING, Origins, Path, dotted
from gymctl.config.problems import Problems
from gymctl.errors import ConfigError, ConfigInterpolationError, ConfigMissingValuesError

_REFERENCE = re.compile(r"\$\{([^${}:]+)\}")
_NO_KEY = re.compile(r"Interpolation key '(.+?)' not found")
_NO_VARIABLE = re.compile(r"Environment variable '(.+?)' not found")
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


def resolve(merged: DictConfig, origins: Origins, problems: Problems) -> dict[str, Any]:
    """The document without `${…}`. One error lists every open value (CONTRACT 1.9); each becomes null."""
    raw = OmegaConf.to_container(merged, resolve=False)
    assert isinstance(raw, dict)
    _refuse_cycles(raw, origins)
    found = list(_walk(merged, raw, (), [str(key) for key in raw]))
    if found:
        problems.leave_open(item.path for item in found)
        problems.add(_listed([item for item in found if not item.is_consequence], origins))
        for item in found:
            _set_null(raw, item.path)
        merged = OmegaConf.create(raw)
    try:
        document = OmegaConf.to_container(merged, resolve=True)
    except (OmegaConfBaseException, RecursionError) as error:
        raise ConfigInterpolationError(
            f"the configuration cannot be resolved: {_first_line(error)}"
        ) from error
    assert isinstance(document, dict)
    return {str(key): value for key, value in document.items()}


def resolved(merged: DictConfig, keys: Iterable[str], origins: Origins) -> dict[str, Any]:
    """Some top-level values of a tree whose other values may be open."""
    document: dict[str, Any] = {}
    for key in keys:
        if key not in merged:
            continue
        try:
            value = merged[key]
            is_container = OmegaConf.is_config(value)
            document[key] = OmegaConf.to_container(value, resolve=True) if is_container else value
        except (OmegaConfBaseException, RecursionError) as error:
            raise ConfigInterpolationError(
                f"`{key}` cannot be resolved: {_first_line(error)}", where=origins.where(key)
            ) from error
    return document


def value_at(document: Mapping[Any, Any], path: Path) -> Any:
    """One value of a document that may still hold `${…}`; None where it is absent or not to be resolved."""
    node: Any = document
    for step in path:
        if isinstance(node, str) and "${" in node:
            return _resolved_at(document, path)
        if not isinstance(node, Mapping) or step not in node:
            return None
        node = node[step]
    text = node if isinstance(node, list) else [node]
    if any(isinstance(item, str) and "${" in item for item in text):
        return _resolved_at(document, path)
    return None if node == MISSING else node


def _resolved_at(document: Mapping[Any, Any], path: Path) -> Any:
    node: Any = OmegaConf.create(dict(document))
    try:
        for step in path:
            node = node[step]
        is_container = isinstance(node, (DictConfig, ListConfig))
        return OmegaConf.to_container(node, resolve=True) if is_container else node
    except (OmegaConfBaseException, RecursionError, KeyError, TypeError):
        return None


def _walk(node: Any, raw: Any, path: Path, names: list[str]) -> Iterable[Open]:
    items = raw.items() if isinstance(raw, dict) else enumerate(raw)
    for key, value in items:
        here = (*path, key)
        if isinstance(value, (dict, list)):
            yield from _walk(node[key], value, here, names)
        elif value == MISSING:
            yield Open(here, "is mandatory and not set", dotted(here), is_missing=True)
        elif isinstance(value, str) and "${" in value:
            yield from _unresolved(node, key, value, here, names)


def _unresolved(
    node: DictConfig | ListConfig, key: Any, value: str, path: Path, names: list[str]
) -> Iterable[Open]:
    try:
        node[key]
    except (InterpolationToMissingValueError, MissingMandatoryValue):
        yield Open(path, "refers to a value that is not set", None, is_missing=True, is_consequence=True)
    except (OmegaConfBaseException, RecursionError) as error:
        text = _first_line(error)
        if variable := _NO_VARIABLE.search(text):
            problem = f"needs the environment variable `{variable[1]}`, which is not set"
            yield Open(path, problem, None, is_missing=False)
        elif absent := _NO_KEY.search(text):
            near = [] if absent[1] in _FLAGS else close(absent[1], names)
            also = f" (did you mean `{near[0]}`?)" if near else ""
            is_relative = f"${{.{absent[1].lstrip('.')}" in value
            yield Open(
                path,
                f"refers to `{absent[1]}`, which nothing defines{also}",
                None if is_relative else absent[1],
                is_missing=False,
            )
        else:
            yield Open(path, f"cannot be resolved: {text}", None, is_missing=False)


def _set_null(raw: Any, path: Path) -> None:
    for step in path[:-1]:
        raw = raw[step]
    raw[path[-1]] = None


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


def _refuse_cycles(raw: Any, origins: Origins) -> None:
    """`a: ${b}`, `b: ${a}`: name the circle before OmegaConf meets it one link at a time."""
    links = _links(raw, ())
    for start in links:
        trail = [start]
        while True:
            following = links.get(trail[-1])
            if following is None or following in trail[1:]:
                break  # the circle is reported from one of its own members
            trail.append(following)
            if following == start:
                shown = " → ".join(dotted(path) for path in trail)
                places = [origins.where(*path) or "" for path in trail[:-1]]
                raise ConfigInterpolationError(
                    f"values refer to each other in a circle: {shown}", where=", ".join(dict.fromkeys(places))
                )


def _links(raw: Any, path: Path) -> dict[Path, Path]:
    """Values that are nothing but one absolute `${a.b}`, with what they point at."""
    found: dict[Path, Path] = {}
    items = raw.items() if isinstance(raw, dict) else enumerate(raw)
    for key, value in items:
        if isinstance(value, (dict, list)):
            found |= _links(value, (*path, key))
        elif (
            isinstance(value, str) and (match := _REFERENCE.fullmatch(value)) and not match[1].startswith(".")
        ):
            found[(*path, key)] = tuple(match[1].split("."))
    return found


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
