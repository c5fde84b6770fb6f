"""What the `${…}` of a document lead to.

Plain references (`${a.b}`, `${.b}`, `http://${host}/v1`) and variables (`${oc.env:HOME}`) are followed here,
in microseconds, and OmegaConf is not even imported. Everything else is asked of OmegaConf, on a pruned tree;
its answers are what ours are tested against.
"""

from __future__ import annotations

import copy
import os
import re
from dataclasses import dataclass
from typing import Any, Literal

from gymctl.config.tree.origins import MISSING, Path
from gymctl.config.tree.pruned import tree_for
from gymctl.errors import ConfigInterpolationError

_REFERENCE = re.compile(r"\$\{(\.*)([A-Za-z_]\w*(?:\.\w+)*)\}", re.ASCII)
_VARIABLE = re.compile(
    r"\$\{oc\.env:(?!(?:NULL|NAN|INF|TRUE|FALSE)[,}])([A-Z_][A-Z0-9_]*)(?:,(true|false|null))?\}", re.ASCII
)
_DEFAULTS = {"true": "True", "false": "False", "null": None}
"""What OmegaConf makes of these as the default of a variable: text, but for null."""
_NO_KEY = re.compile(r"Interpolation key '(.+?)' not found")
_NO_VARIABLE = re.compile(r"Environment variable '(.+?)' not found")

_LONGEST_TEXT = 20_000_000
"""References to texts are expanded; a nest of them could otherwise fill the memory."""


@dataclass(frozen=True)
class Found:
    """A scalar, or a mapping or list of the document (not resolved) with its place in it.

    `at` is None where OmegaConf gave the answer; a mapping or list is then one of its own.
    """

    value: Any
    at: Path | None

    def raw(self) -> Any:
        """A mapping or list with its own `${…}` kept; the answer itself when it is a scalar."""
        return self._converted(resolve=False)

    def resolved(self) -> Any:
        """An answer of OmegaConf as plain values. ConfigInterpolationError, or RecursionError in a circle."""
        return self._converted(resolve=True)

    def _converted(self, *, resolve: bool) -> Any:
        if self.at is not None or is_scalar(self.value):
            return copy.deepcopy(self.value)
        from omegaconf import OmegaConf
        from omegaconf.errors import OmegaConfBaseException

        try:
            return OmegaConf.to_container(self.value, resolve=resolve)
        except OmegaConfBaseException as error:
            line = _first_line(error)
            if "RecursionError" in line:
                raise RecursionError(line) from error
            raise ConfigInterpolationError(f"the configuration cannot be resolved: {line}") from error


class Unresolved(Exception):
    """Nothing stands behind a `${…}`. `name`: the key or variable that is not there, else what went wrong."""

    def __init__(self, kind: Literal["mandatory", "key", "variable", "other"], name: str) -> None:
        super().__init__(name)
        self.kind = kind
        self.name = name


class Circle(Unresolved):
    """Values that need each other, in order."""

    def __init__(self, paths: tuple[Path, ...]) -> None:
        super().__init__("other", "it leads back to itself")
        self.paths = paths


class _TooHard(Exception):
    """A question for OmegaConf."""


class Lookup:
    """Answers for one document, which must not change meanwhile."""

    def __init__(self, document: dict[Any, Any]) -> None:
        self._document = document
        self._open: dict[Path, None] = {}
        self._asked: dict[Path | str, Found | Unresolved] = {}
        self._texts: dict[Path, str] = {}
        self._whole: Any = None

    def find(self, path: Path, text: str) -> Found:
        """What the value `text` at `path` leads to. Raises Unresolved."""
        try:
            return self._find(path, text)
        except _TooHard:
            return self._ask(path, text)

    def _find(self, path: Path, text: str) -> Found:
        if path in self._open:
            trail = tuple(self._open)
            raise Circle(trail[trail.index(path) :])
        if variable := _VARIABLE.fullmatch(text):
            return self._variable(*variable.groups())
        if not is_plain(text):
            return self._ask(path, text)
        self._open[path] = None
        try:
            if reference := _REFERENCE.fullmatch(text):
                return self._follow(path, *reference.groups())
            if path not in self._texts:
                self._texts[path] = self._joined(path, text)
            return Found(self._texts[path], None)
        finally:
            del self._open[path]

    def _joined(self, path: Path, text: str) -> str:
        pieces: list[str] = []
        end = length = 0
        for match in _REFERENCE.finditer(text):
            pieces += (text[end : match.start()], self._text(path, match))
            end = match.end()
            length += len(pieces[-1])
            if length > _LONGEST_TEXT:
                raise Unresolved("other", f"it expands to more than {_LONGEST_TEXT} characters")
        return "".join([*pieces, text[end:]])

    def _variable(self, name: str, default: str | None) -> Found:
        value = os.environ.get(name)
        if value is None and default is None:
            raise Unresolved("variable", name)
        return Found(_DEFAULTS[default] if value is None and default else value, None)

    def _text(self, path: Path, reference: re.Match[str]) -> str:
        value = self._follow(path, *reference.groups()).value
        if isinstance(value, (dict, list)):
            raise _TooHard
        return str(value)

    def _follow(self, path: Path, dots: str, key: str) -> Found:
        if len(dots) > len(path):
            raise _TooHard  # above the top
        place: Path = path[: len(path) - len(dots)] if dots else ()
        node: Any = self._document
        for step in place:
            node = node[step]
        for step in key.split("."):
            if isinstance(node, str) and "${" in node:
                node, place = self._container(self._find(place, node))
            if not isinstance(node, dict):
                raise _TooHard
            if step not in node:
                raise Unresolved("key", key)
            node, place = node[step], (*place, step)
        if isinstance(node, str) and node == MISSING:
            raise Unresolved("mandatory", key)
        found = self._find(place, node) if isinstance(node, str) and "${" in node else Found(node, place)
        if not is_scalar(found.value):
            _, place = self._container(found)
            if path[: len(place)] == place:
                raise _TooHard  # a value cannot be what it is a part of
        return found

    def _container(self, found: Found) -> tuple[Any, Path]:
        if found.at is None:
            raise _TooHard
        return found.value, found.at

    def _ask(self, path: Path, text: str) -> Found:
        if path not in self._asked:
            try:
                self._asked[path] = self._ask_omegaconf(path, text)
            except Unresolved as error:
                self._asked[path] = error
        answer = self._asked[path]
        if isinstance(answer, Unresolved):
            raise answer
        return answer

    def _ask_omegaconf(self, path: Path, text: str) -> Found:
        from omegaconf import OmegaConf
        from omegaconf.errors import (
            InterpolationToMissingValueError,
            MissingMandatoryValue,
            OmegaConfBaseException,
        )

        tree = tree_for(self._document, path, text)
        if tree is self._document:
            self._whole = self._whole or OmegaConf.create(tree)
        node: Any = self._whole if tree is self._document else OmegaConf.create(tree)
        try:
            for step in path:
                node = node[step]
        except (InterpolationToMissingValueError, MissingMandatoryValue) as error:
            raise Unresolved("mandatory", _first_line(error)) from error
        except (OmegaConfBaseException, RecursionError) as error:
            line = _first_line(error)
            if "RecursionError" in line or isinstance(error, RecursionError):
                raise Circle((path,)) from error
            if variable := _NO_VARIABLE.search(line):
                raise Unresolved("variable", variable[1]) from error
            if absent := _NO_KEY.search(line):
                raise Unresolved("key", absent[1]) from error
            raise Unresolved("other", line) from error
        return Found(node, None)


def is_plain(text: str) -> bool:
    """Nothing but a variable, or text and plain references, so that the grammar holds no surprise."""
    if _VARIABLE.fullmatch(text):
        return True
    rest = _REFERENCE.sub("", text)
    return "$" not in rest and "\\" not in rest


def is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, (str, int, float, bytes))


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
