"""Stand-ins for heavy packages that a client imports at its top and does not use here (torch, transformers).

The finder stands behind the normal ones: an installed package is used, only what would be an ImportError is
replaced, and only where it was allowed. The client itself is not altered.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any


def allow(*names: str) -> None:
    """Let these top-level packages be stood in for where they are not installed."""
    _finder.allowed.update(names)
    if _finder not in sys.meta_path:
        sys.meta_path.append(_finder)


def used() -> list[str]:
    """The packages that were stood in for."""
    return sorted(_finder.used)


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


class _Class(type):
    """Of the stand-in classes: every attribute is another one, and `X | Y` and `X[...]` are types."""

    def __getattr__(cls, name: str) -> Any:
        if _is_special(name):
            raise AttributeError(name)
        setattr(cls, name, value := _Class(name, (_Instance,), {}))
        return value

    def __or__(cls, other: object) -> type:
        return object

    def __ror__(cls, other: object) -> type:
        return object

    def __getitem__(cls, item: object) -> type:
        return cls


class _Instance:
    def __init__(self, *arguments: object, **options: object) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if _is_special(name):
            raise AttributeError(name)
        return _Instance()

    def __call__(self, *arguments: Any, **options: object) -> Any:
        """As a decorator it gives the function back."""
        is_decorator = len(arguments) == 1 and not options and callable(arguments[0])
        return arguments[0] if is_decorator else _Instance()

    def __bool__(self) -> bool:
        return False

    def __iter__(self) -> Iterator[object]:
        return iter(())

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> bool:
        return False


class _Module(types.ModuleType):
    __path__: list[str] = []  # noqa: RUF012 - what makes a module a package
    __version__ = "0.0.0"

    def __getattr__(self, name: str) -> Any:
        if _is_special(name):
            raise AttributeError(name)
        setattr(self, name, value := _Class(name, (_Instance,), {}))
        return value


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self) -> None:
        self.allowed: set[str] = set()
        self.used: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] not in self.allowed:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        self.used.add(spec.name.partition(".")[0])
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


_finder = _Finder()
