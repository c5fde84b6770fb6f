"""Every server, benchmark and environment over the search roots, with its configs and what they need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from gymctl.config.checks.folders import is_server
from gymctl.config.families import Family, family_of
from gymctl.config.needs import code, requirements, settings
from gymctl.config.needs.need import Need, distinct
from gymctl.config.needs.requirements import is_met
from gymctl.config.problems import Problems
from gymctl.config.reading import include
from gymctl.config.reading.files import read
from gymctl.config.reading.roots import SearchRoots
from gymctl.config.reading.selectors import SelectorKind
from gymctl.config.tree import origins
from gymctl.config.tree.merge import merge
from gymctl.contract.servers import KINDS, ServerKind
from gymctl.errors import ConfigError, Place

ListedKind = ServerKind | Literal["benchmarks", "environments"]
LISTED: tuple[ListedKind, ...] = (*KINDS, "benchmarks", "environments")
ENTRYPOINT = "app.py"
IMAGE_PYTHON = (3, 13, 99)
"""Of all images: 3.13, its latest release."""


@dataclass(frozen=True, slots=True)
class Flavour:
    """One config of a server, benchmark or environment."""

    name: str
    """What its selector takes: `mcqa`, `mcqa/hard`."""
    path: Path
    needs: tuple[Need, ...]
    """Of all servers that it starts."""


@dataclass(frozen=True, slots=True)
class Listed:
    """One folder of the catalogue."""

    kind: ListedKind
    name: str
    folder: Path
    family: Family | None
    """None for benchmarks and environments, which hold no code of a server."""
    needs: tuple[Need, ...]
    """Of its code and packages, whichever config starts it."""
    flavours: tuple[Flavour, ...]

    @property
    def all_needs(self) -> tuple[Need, ...]:
        return distinct([*self.needs, *(need for flavour in self.flavours for need in flavour.needs)])

    def is_in_some(self, kind: str) -> bool:
        """Whether only some of its configs have needs of this kind."""
        with_it = [flavour for flavour in self.flavours if any(need.kind == kind for need in flavour.needs)]
        of_all = any(need.kind == kind for need in self.needs) or len(with_it) == len(self.flavours)
        return bool(with_it) and not of_all


@dataclass
class Catalogue:
    """Looks through search roots; a name of a higher root hides the same one below."""

    roots: SearchRoots
    cwd: Path = field(default_factory=Path.cwd)
    """Config files below it are named as its user would type them."""
    python: tuple[int, ...] = IMAGE_PYTHON
    """What servers run on."""
    _codes: dict[Path, code.Code] = field(default_factory=dict)
    _folders: dict[tuple[Path, str], tuple[Need, ...]] = field(default_factory=dict)

    def listed(self, kinds: tuple[ListedKind, ...] = LISTED) -> Iterator[Listed]:
        for kind in kinds:
            seen: set[str] = set()
            for folder in self._folders_of(kind):
                if folder.name not in seen:
                    seen.add(folder.name)
                    listed = self._listed(kind, folder)
                    if listed is not None:
                        yield listed

    def _folders_of(self, kind: ListedKind) -> Iterator[Path]:
        for root in self.roots.folders:
            yield from sorted(path for path in (root / kind).glob("*/") if path.name[0] not in "._")

    def _listed(self, kind: ListedKind, folder: Path) -> Listed | None:
        is_code = kind in KINDS
        if is_code and not is_server(folder):
            return None
        configs = list(self._configs(kind, folder, has_configs_folder=is_code))
        flavours = tuple(flavour for flavour, _ in configs)
        if not is_code:
            return Listed(kind, folder.name, folder, None, (), flavours) if flavours else None
        blocks = [
            block
            for _, document in configs
            for path, block in settings.blocks(document)
            if path[1:] == (kind, folder.name)
        ]
        entrypoints = sorted({ENTRYPOINT, *(str(block.get("entrypoint") or ENTRYPOINT) for block in blocks)})
        own = [need for name in entrypoints for need in self.of_folder(folder, name)]
        told = set.intersection(*(set(block) for block in blocks)) if blocks else set[str]()
        own = [need for need in own if need.kind not in ("key", "judge") or need.what not in told]
        return Listed(kind, folder.name, folder, family_of(folder), distinct(own), flavours)

    def of_folder(self, folder: Path, entrypoint: str) -> tuple[Need, ...]:
        """What the code and the packages of a server folder need."""
        key = folder, entrypoint
        if key not in self._folders:
            root = folder.parent.parent
            reader = self._codes.setdefault(root, code.Code(root))
            found = [*requirements.needs(folder), *reader.needs(folder, entrypoint)]
            self._folders[key] = distinct(
                need for need in found if need.kind != "python" or not is_met(need.what, self.python)
            )
        return self._folders[key]

    def _configs(
        self, kind: str, folder: Path, *, has_configs_folder: bool
    ) -> Iterator[tuple[Flavour, Mapping[str, Any]]]:
        selector = SelectorKind("", kind, has_configs_folder=has_configs_folder)
        pattern = "configs/*.yaml" if has_configs_folder else "**/*.yaml"
        for path in sorted(folder.glob(pattern)):
            document, tree = self._document(path)
            if not any(settings.blocks(document)):
                continue
            name = selector.value(path.relative_to(folder.parent))
            needs = [*settings.needs(document, _finder(tree, path)), *self._of_others(document, kind, folder)]
            yield Flavour(name, path, distinct(needs)), document

    def _document(self, path: Path) -> tuple[Mapping[str, Any], Mapping[Any, Any]]:
        """A config with all that it includes, directives and references as they stand; empty: it is none."""
        try:
            layer = read(path, str(path))
        except ConfigError:
            return {}, {}
        if not any(settings.blocks(layer.values)) and "config_paths" not in layer.values:
            return {}, {}
        included = include.walk([str(path)], self.roots, self.cwd, Problems(), "list")
        values, tree = merge(included.layers)
        return values, tree.tree

    def _of_others(self, document: Mapping[str, Any], kind: str, folder: Path) -> Iterator[Need]:
        """What the code of the other servers needs that a config starts."""
        for (_, server_kind, implementation), block in settings.blocks(document):
            place = self.roots.find(f"{server_kind}/{implementation}")
            if place is not None and (server_kind, implementation) != (kind, folder.name):
                needs = self.of_folder(place, str(block.get("entrypoint") or ENTRYPOINT))
                yield from (
                    need for need in needs if need.kind not in ("key", "judge") or need.what not in block
                )


def _finder(tree: Mapping[Any, Any], path: Path) -> settings.Find:
    def find(where: origins.Path) -> Place:
        """Of an empty mapping, which has no place of its own: what is around it."""
        steps = (where[:length] for length in range(len(where), 0, -1))
        found = (origins.first(origins.at(dict(tree), step)) for step in steps)
        origin = next((one for one in found if one is not None and one.line is not None), None)
        if origin is None:
            return Place.at(str(path), 1, 1)
        return Place.at(origin.source, origin.line or 1, origin.column or 1)

    return find
