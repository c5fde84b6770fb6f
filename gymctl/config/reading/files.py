"""One YAML file -> its values and the place of each, by OmegaConf's scalar rules; mistakes with their place.

What a scalar is (`1e5` is a number, a date is text) is what it is to OmegaConf's loader, so that a file means
the same here and in the peer. Importing that loader costs 0.1 CPU seconds, so its rules are said here, and
compared in the tests. The nodes are walked by hand because the places live on them, and because a key that
stands twice must be reported with both lines.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from gymctl.config.model import Origin
from gymctl.config.reading.quoting import is_plain
from gymctl.config.tree.layers import Layer
from gymctl.config.tree.origins import OriginTree
from gymctl.errors import ConfigError, Place

_MAX_NODES = 1_000_000
"""Aliases are expanded; a nest of them could otherwise fill the memory."""
MAX_DEPTH = 50
"""Levels of one value. Real configs have a dozen; OmegaConf itself ends in a RecursionError near 80."""

_YAML = "tag:yaml.org,2002:"
_EXPONENT = re.compile(r"[-+]?[0-9]+(_[0-9]+)*(\.[0-9_]*)?[eE][-+]?[0-9]+$")
_NO_SUCH_VALUE = (ValueError, LookupError, AttributeError, TypeError, ArithmeticError)
"""What PyYAML lets through for a scalar that its tag does not fit: `!!int x`, a date that does not exist."""
_QUOTES = "if text is meant, put it in quotes"
_UNFINISHED = {"quoted scalar": "a quoted text", "flow sequence": "a `[`", "flow mapping": "a `{`"}
_QUOTED_TEXT = re.compile(r"(undefined alias|for the tag) '[^']*'")
"""Parts of PyYAML's texts that repeat the value; a key that starts with `*` or `!` must not be printed."""


def display(path: Path, cwd: Path) -> str:
    """The path as a user of `cwd` would type it."""
    return str(path.relative_to(cwd)) if path.is_relative_to(cwd) else str(path)


def read(path: Path, name: str) -> Layer:
    """Read a config file. An empty file is an empty layer; anything but a mapping is an error."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"`{name}` cannot be read: {error.strerror}", where=name) from error
    return parse(content, name)


def parse(content: bytes, name: str) -> Layer:
    try:
        try:
            return _parse(content, name, _fast_loader())
        except yaml.YAMLError:
            # The C parser names neither the tab nor the token; the slow one says what a person can act on.
            return _parse(content, name, _loader())
    except yaml.YAMLError as error:
        raise _readable(error, name) from error
    except RecursionError as error:
        raise ConfigError(f"`{name}` is nested too deeply", where=name) from error


def _parse(content: bytes, name: str, loader_class: Any) -> Layer:
    loader = loader_class(content)
    try:
        node = loader.get_single_node()
        if node is None:
            return Layer(name)
        if not isinstance(node, yaml.MappingNode):
            found = "a list" if isinstance(node, yaml.SequenceNode) else "a single value"
            raise ConfigError(
                f"the top level of `{name}` must be a mapping, got {found}",
                where=_place(name, node),
            )
        values, origins = _Builder(loader, name).mapping(node)
    finally:
        loader.dispose()
    return Layer(name, values, origins)


class _Builder:
    """Turns nodes into values and origins, side by side."""

    def __init__(self, loader: Any, name: str) -> None:
        self._loader = loader
        self._name = name
        self._open: set[int] = set()
        """The containers around the current node."""
        self._count = 0

    def build(self, node: yaml.Node, mark: Any) -> tuple[Any, OriginTree]:
        self._count += 1
        if self._count > _MAX_NODES:
            raise ConfigError(f"`{self._name}` expands to more than {_MAX_NODES} values", where=self._name)
        if isinstance(node, yaml.ScalarNode):
            value = self._scalar(node)
            is_plainly = isinstance(value, str) or value is None or is_plain(node.value, value)
            raw = None if is_plainly else node.value
            return value, Origin(self._name, mark.line + 1, mark.column + 1, raw=raw)
        if id(node) in self._open:
            raise ConfigError("a YAML alias contains itself", where=self._place(node))
        if len(self._open) >= MAX_DEPTH:
            raise ConfigError(
                f"`{self._name}` is nested more than {MAX_DEPTH} levels deep", where=self._place(node)
            )
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode) and node.tag == f"{_YAML}map":
                return self.mapping(node)
            if isinstance(node, yaml.SequenceNode) and node.tag == f"{_YAML}seq":
                built = [self.build(child, child.start_mark) for child in node.value]
                return [value for value, _ in built], [origin for _, origin in built]
        finally:
            self._open.discard(id(node))
        raise self._refused_tag(node)

    def mapping(self, node: yaml.MappingNode) -> tuple[dict[Any, Any], dict[Any, OriginTree]]:
        self._refuse_duplicates(node)
        self._loader.flatten_mapping(node)
        values: dict[Any, Any] = {}
        origins: dict[Any, OriginTree] = {}
        for key_node, child in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise ConfigError("a mapping key must be a plain value", where=self._place(key_node))
            key = self._scalar(key_node)
            if not isinstance(key, (str, int, float, bool)):
                raise ConfigError(f"`{key_node.value}` cannot be a mapping key", where=self._place(key_node))
            values[key], origins[key] = self.build(child, key_node.start_mark)
        return values, origins

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        if node.tag == f"{_YAML}str":
            return node.value
        try:
            value = self._loader.construct_object(node)
        except _NO_SUCH_VALUE as error:
            kind = node.tag.rsplit(":", 1)[-1]
            raise ConfigError(
                f"a value cannot be read as the YAML {kind} that it looks like",
                where=self._place(node),
                hint=_QUOTES,
            ) from error
        if isinstance(value, bytes):
            raise self._refused_tag(node)
        return value

    def _refuse_duplicates(self, node: yaml.MappingNode) -> None:
        first: dict[tuple[str, str], yaml.Node] = {}
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag == f"{_YAML}merge":
                continue
            before = first.setdefault((key_node.tag, key_node.value), key_node)
            if before is not key_node:
                raise ConfigError(
                    f"the key `{key_node.value}` stands twice,"
                    f" in lines {before.start_mark.line + 1} and {key_node.start_mark.line + 1}",
                    where=self._place(key_node),
                    hint="keep one of them; the other would be lost",
                )

    def _refused_tag(self, node: yaml.Node) -> ConfigError:
        tag = f" `!!{node.tag[len(_YAML) :]}`" if node.tag.startswith(_YAML) else ""
        return ConfigError(
            f"the YAML tag{tag} is not allowed in a config", where=self._place(node), hint=_QUOTES
        )

    def _place(self, node: yaml.Node) -> str:
        return _place(self._name, node)


def _place(name: str, node: yaml.Node) -> str:
    return Place.at(name, node.start_mark.line + 1, node.start_mark.column + 1)


def _unfinished(error: yaml.YAMLError, mark: Any) -> str | None:
    """The parser notices a quote or a bracket that is not closed many lines later."""
    started = getattr(error, "context_mark", None)
    context = getattr(error, "context", None) or ""
    what = next((noun for ending, noun in _UNFINISHED.items() if context.endswith(ending)), None)
    if what is None or started is None or mark is None or started.line == mark.line:
        return None
    return f"{what} that is not closed began in line {started.line + 1}"


def _readable(error: yaml.YAMLError, name: str) -> ConfigError:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    where = name if mark is None else Place.at(name, mark.line + 1, mark.column + 1)
    problem, repeats = _QUOTED_TEXT.subn(r"\1", problem)
    hint = _QUOTES if repeats or "cannot start any token" in problem else None
    if "\\t" in problem or "\t" in problem:
        hint = "YAML is indented with spaces; replace the tab"
    elif "'?'" in problem:
        hint = 'inside `{…}` a mandatory value must be quoted: "???"'
    elif hint is None:
        hint = _unfinished(error, mark)
    return ConfigError(f"`{name}` is not valid YAML: {problem}", where=where, hint=hint)


@cache
def _loader() -> Any:
    """PyYAML's parser, whose errors a person can act on."""
    return type("Loader", (yaml.SafeLoader,), {"yaml_implicit_resolvers": _resolvers()})


@cache
def _fast_loader() -> Any:
    """libyaml's parser, which is ten times faster."""
    if not yaml.__with_libyaml__:
        return _loader()
    return type("FastLoader", (yaml.CSafeLoader,), {"yaml_implicit_resolvers": _resolvers()})


def _resolvers() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    """What a plain scalar is, by its first character: PyYAML's rules, no dates, and `1e5` is a number."""
    kept = {
        first: [(tag, pattern) for tag, pattern in rules if tag != f"{_YAML}timestamp"]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    for first in "+-0123456789":
        kept[first] = [*kept.get(first, []), (f"{_YAML}float", _EXPONENT)]
    return kept
