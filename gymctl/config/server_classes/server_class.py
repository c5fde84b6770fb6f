"""What a server's block may hold, told from the text of its app.py: the fields of its config class.

    app.py      class Weather(ResourcesServer):        ──▶  config: WeatherConfig
                    config: WeatherConfig                       │ fields, bases up to the SDK's own
                app = Weather.app()                             ▼
                                                            ServerClass(fields, is_closed, family)

A class that does more than declare fields (unknown base, `extra="allow"`, `__init__`, `mode="before"`) is
open: it may take any key, so nothing is refused on its behalf.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from gymctl.config.model import ServerBlock
from gymctl.config.server_classes.field_classes import FieldClass, FieldClasses, replica
from gymctl.config.server_classes.python_modules import Found, Module, Modules, Outside
from gymctl.config.server_classes.ray import ray_enabled_of
from gymctl.config.server_classes.styles import Style, style_of
from gymctl.paths import PACKAGE

GIVEN = frozenset({"name"})
"""Fields that every server is given and no block holds."""

Family = Literal["gymctl", "nemo_gym", "unknown"]


@dataclass(frozen=True)
class ServerClass:
    """The config class of one server folder."""

    family: Family = "unknown"
    """Whose SDK the class is built on."""
    fields: FieldClass = field(default_factory=lambda: FieldClass("", is_open=True))
    style: Style | None = None
    """How rollouts go on it; None where the text does not say, and for models and environment servers."""
    ray_enabled: bool | None = None
    """What the class or a base of it declares; None where the text does not say."""
    folders: frozenset[Path] = frozenset()
    """Where the author's classes that make it up are written."""

    @property
    def is_closed(self) -> bool:
        """Are the fields known to be all that the class reads?"""
        return not self.fields.is_open

    @property
    def keys(self) -> frozenset[str]:
        """The fields' names as a block writes them; `name` comes from the instance id."""
        return frozenset(item.key for item in self.fields.fields.values() if item.key) - GIVEN

    @cached_property
    def model(self) -> Any:
        """A pydantic class with the same fields, types and limits (no validators); None when it is open."""
        return replica(self.fields, without=GIVEN) if self.is_closed else None


class ServerClasses:
    """The classes of server folders, each read once; files that several share are parsed once.

    roots: where folders of other servers may lie, which a class takes its bases from.
    """

    def __init__(self, roots: Sequence[Path] = ()) -> None:
        self._roots = tuple(roots)
        self._parsed: dict[Path, Module | None] = {}
        self._read: dict[tuple[Path, str], ServerClass] = {}

    def of(self, block: ServerBlock) -> ServerClass:
        if not block.folder.is_absolute():
            return ServerClass()  # a stand-in, which has no folder
        key = (block.folder, block.entrypoint)
        if key not in self._read:
            self._read[key] = read(*key, self._parsed, self._roots)
        return self._read[key]


def read(
    folder: Path,
    entrypoint: str = "app.py",
    parsed: dict[Path, Module | None] | None = None,
    roots: Sequence[Path] = (),
) -> ServerClass:
    """Read the class of a server folder. Nothing is imported; what cannot be told is open."""
    modules = Modules(folder, parsed, roots)
    module = modules.parse(folder / entrypoint)
    if module is None:
        return ServerClass()
    server = _server_class(modules, module)
    if server is None:
        return ServerClass()
    return _Reader(modules).of_server(Found(module, server), module)


class _Reader:
    def __init__(self, modules: Modules) -> None:
        self._modules = modules
        self._classes = FieldClasses(modules)

    def of_server(self, server: Found, entry: Module) -> ServerClass:
        lineage = list(self._lineage(server, set()))
        family = _family(lineage)
        style = style_of([(item.node, _is_ours(item.module)) for item in lineage if isinstance(item, Found)])
        uses_ray = ray_enabled_of(item.node for item in lineage if isinstance(item, Found))
        config = next((found for found in map(self._config_of, lineage) if found is not None), None)
        if config is None:
            return ServerClass(family, style=style, ray_enabled=uses_ray)
        fields = self._classes.read(config)
        own = [item for item in lineage if isinstance(item, Found) and not _is_ours(item.module)]
        if any(_decides_itself(item) for item in own) or _reads_its_block(entry):
            fields = fields.opened()
        return ServerClass(
            family, fields, style, uses_ray, frozenset(item.module.path.parent for item in own)
        )

    def _lineage(self, item: Found | Outside, seen: set[int]) -> Iterator[Found | Outside]:
        """The class and its bases, the nearest first."""
        yield item
        if isinstance(item, Outside) or not isinstance(item.node, ast.ClassDef) or id(item.node) in seen:
            return
        seen.add(id(item.node))
        for base in item.node.bases:
            name = base.value if isinstance(base, ast.Subscript) else base
            meaning = self._modules.meaning(item.module, name)
            if meaning is not None:
                yield from self._lineage(meaning, seen)

    def _config_of(self, item: Found | Outside) -> Found | Outside | None:
        """What a class says its config is: `config: C`, and in the SDK `needs = C` for all that do not."""
        if isinstance(item, Outside) or not isinstance(item.node, ast.ClassDef):
            return None
        for statement in item.node.body:
            match statement:
                case ast.AnnAssign(target=ast.Name(id="config"), annotation=annotation):
                    meaning = self._modules.meaning(item.module, annotation)
                    if isinstance(meaning, Found) or not _is_ours(item.module):
                        return meaning
                case ast.AnnAssign(target=ast.Name(id="needs"), value=ast.expr() as value):
                    return self._modules.meaning(item.module, value)
        return None


def _server_class(modules: Modules, module: Module) -> ast.ClassDef | None:
    """The class of `app = X.app()`, of `X.run_webserver()`, else the last one with a `config`."""
    classes = {node.name: node for node in module.body if isinstance(node, ast.ClassDef)}
    chosen: ast.ClassDef | None = None
    for node in classes.values():
        if any(_declares(statement, "config") for statement in node.body):
            chosen = node
    for statement in module.body:
        if isinstance(statement, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for call in ast.walk(statement):
            match call:
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="app" | "run_webserver")):
                    meaning = modules.meaning(module, ast.Name(name))
                    if name in classes:
                        chosen = classes[name]
                    elif isinstance(meaning, Found) and isinstance(meaning.node, ast.ClassDef):
                        return None  # defined elsewhere: its own file would have to be the entrypoint
    return chosen


def _declares(statement: ast.stmt, name: str) -> bool:
    return (
        isinstance(statement, ast.AnnAssign)
        and isinstance(statement.target, ast.Name)
        and statement.target.id == name
    )


def _is_ours(module: Module) -> bool:
    return module.path.is_relative_to(PACKAGE)


def _family(lineage: list[Found | Outside]) -> Family:
    if any(isinstance(item, Found) and _is_ours(item.module) for item in lineage):
        return "gymctl"
    if any(isinstance(item, Outside) and item.dotted.startswith("nemo_gym.") for item in lineage):
        return "nemo_gym"
    return "unknown"


def _decides_itself(item: Found) -> bool:
    """Does the author's class choose its config in code?"""
    return isinstance(item.node, ast.ClassDef) and any(
        isinstance(statement, ast.FunctionDef) and statement.name == "config_class"
        for statement in item.node.body
    )


def _reads_its_block(module: Module) -> bool:
    """`part.settings[…]` in the entrypoint: keys that no class declares."""
    return any(
        isinstance(node, ast.Attribute) and node.attr == "settings"
        for statement in module.body
        for node in ast.walk(statement)
    )
