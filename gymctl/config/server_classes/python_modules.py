"""What a name in a Python file means, told from the text: parsed when asked, never imported.

Code of a server is the user's; reading a configuration must not run it, nor need what it imports.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gymctl.config.server_classes import newer_python
from gymctl.contract.servers import KINDS
from gymctl.paths import PACKAGE

_LONGEST_CHAIN = 20
"""Imports that follow each other; a circle ends there."""


@dataclass(frozen=True)
class Module:
    """One parsed file: its classes, its plain assignments, and what its imports bring."""

    path: Path
    body: tuple[ast.stmt, ...]
    definitions: dict[str, ast.ClassDef | ast.expr] = field(default_factory=dict)
    imports: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    """Local name -> dotted module, and the name in it (None: the module itself)."""


@dataclass(frozen=True)
class Found:
    """A definition whose text we have: a class, or the right side of `Name = …`."""

    module: Module
    node: ast.ClassDef | ast.expr


@dataclass(frozen=True)
class Outside:
    """A name of a package that is not read: `pydantic.Field`, `builtins.str`."""

    dotted: str


class Modules:
    """The files that a server's class may be spread over: its folder, its search root and others, gymctl."""

    def __init__(
        self, folder: Path, parsed: dict[Path, Module | None] | None = None, roots: Sequence[Path] = ()
    ) -> None:
        self._roots = (folder, folder.parent.parent)
        self._others = tuple(root for root in roots if root not in self._roots)
        self._parsed = {} if parsed is None else parsed

    def parse(self, path: Path) -> Module | None:
        """None for a file that cannot be read as Python."""
        if path not in self._parsed:
            try:
                tree = newer_python.parse(path.read_bytes())
            except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
                self._parsed[path] = None
            else:
                self._parsed[path] = _surveyed(path, tree)
        return self._parsed[path]

    def meaning(self, module: Module, expression: ast.expr) -> Found | Outside | None:
        """What `Name` or `module.Name` stands for; None when the text does not tell."""
        steps = _steps(expression)
        return None if steps is None else self._meaning(module, steps, _LONGEST_CHAIN)

    def _meaning(self, module: Module, steps: list[str], depth: int) -> Found | Outside | None:
        name, *rest = steps
        if depth == 0:
            return None
        if name in module.definitions:
            return None if rest else Found(module, module.definitions[name])
        if name in module.imports:
            dotted, wanted = module.imports[name]
            return self._imported(dotted, [*([] if wanted is None else [wanted]), *rest], depth - 1)
        if not rest and hasattr(builtins, name):
            return Outside(f"builtins.{name}")
        return None

    def _imported(self, dotted: str, steps: list[str], depth: int) -> Found | Outside | None:
        path = self._file(dotted)
        while path is not None and len(steps) > 1 and (inner := self._file(f"{dotted}.{steps[0]}")):
            dotted, path, steps = f"{dotted}.{steps[0]}", inner, steps[1:]
        if path is None:
            return Outside(".".join([dotted, *steps]))
        module = self.parse(path)
        return None if module is None or not steps else self._meaning(module, steps, depth)

    def _file(self, dotted: str) -> Path | None:
        first, *rest = dotted.split(".")
        if first == "nemo_gym":
            return None
        if first == "gymctl":
            return _module_file(PACKAGE.joinpath(*rest))
        roots = self._roots + (self._others if first in KINDS else ())  # of other roots only server folders
        places = (root.joinpath(first, *rest) for root in roots)
        return next((file for place in places if (file := _module_file(place)) is not None), None)


def _module_file(place: Path) -> Path | None:
    for file in (place.with_name(f"{place.name}.py"), place / "__init__.py"):
        if file.is_file():
            return file
    return None


def _surveyed(path: Path, tree: ast.Module) -> Module:
    module = Module(path, tuple(tree.body))
    for statement in tree.body:
        match statement:
            case ast.ClassDef(name=name):
                module.definitions[name] = statement
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                module.definitions[name] = value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                module.definitions[name] = value
    for statement in _imports(tree.body):
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                dotted = alias.name if alias.asname else alias.name.split(".")[0]
                module.imports[alias.asname or dotted] = (dotted, None)
        elif statement.module and not statement.level:
            for alias in statement.names:
                module.imports[alias.asname or alias.name] = (statement.module, alias.name)
    return module


def _imports(body: Iterable[ast.stmt]) -> Iterable[ast.Import | ast.ImportFrom]:
    """Those at the top, and those under `if TYPE_CHECKING:` or `try:`."""
    for statement in body:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            yield statement
        elif isinstance(statement, (ast.If, ast.Try)):
            yield from _imports(statement.body)


def _steps(expression: ast.expr) -> list[str] | None:
    """`a.b.C` -> `["a", "b", "C"]`; None for anything that is not a dotted name."""
    if isinstance(expression, ast.Name):
        return [expression.id]
    if isinstance(expression, ast.Attribute):
        before = _steps(expression.value)
        return None if before is None else [*before, expression.attr]
    return None
