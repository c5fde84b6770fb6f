"""A name on the command line -> a config file (CONTRACT 1.7): `--benchmark gsm8k`."""

from __future__ import annotations

import filecmp
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gymctl.config.names import suggestion
from gymctl.config.reading.roots import SearchRoots
from gymctl.errors import UsageError


@dataclass(frozen=True)
class SelectorKind:
    """How one flag turns names into paths."""

    flag: str
    folder: str
    has_configs_folder: bool

    def paths(self, value: str) -> list[str]:
        """The implied paths, in the order in which they are tried."""
        name, _, flavor = value.partition("/")
        if self.has_configs_folder:
            return [f"{self.folder}/{name}/configs/{flavor or name}.yaml"]
        if not flavor:
            return [f"{self.folder}/{name}/config.yaml"]
        return [f"{self.folder}/{name}/{flavor}/config.yaml", f"{self.folder}/{name}/{flavor}.yaml"]

    def known(self, roots: SearchRoots) -> Iterator[str]:
        """Every value of the flag that would be found, for suggestions."""
        for root in roots.folders:
            base = root / self.folder
            pattern = "*/configs/*.yaml" if self.has_configs_folder else "*/**/*.yaml"
            for path in base.glob(pattern):
                yield self.value(path.relative_to(base))

    def value(self, path: Path) -> str:
        """How the flag names the file at `path`, which is relative to `folder`."""
        name = path.parts[0]
        if self.has_configs_folder:
            return name if path.stem == name else f"{name}/{path.stem}"
        inner = path.with_suffix("").parts[1:]
        inner = inner[:-1] if inner[-1] == "config" else inner
        return "/".join((name, *inner))


BENCHMARK = SelectorKind("--benchmark", "benchmarks", has_configs_folder=False)
ENVIRONMENT = SelectorKind("--environment", "environments", has_configs_folder=False)
RESOURCES_SERVER = SelectorKind("--resources-server", "resources_servers", has_configs_folder=True)
MODEL_TYPE = SelectorKind("--model-type", "responses_api_models", has_configs_folder=True)
AGENT_TYPE = SelectorKind("--agent-type", "responses_api_agents", has_configs_folder=True)


def resolve(kind: SelectorKind, value: str, roots: SearchRoots) -> tuple[Path, str | None]:
    """The file of the highest root, and a warning when lower roots hold one too. Unknown: UsageError."""
    implied = kind.paths(value)
    is_plain = all(part not in ("", ".", "..") for part in value.split("/"))
    for path in implied if is_plain else ():
        found = roots.find_all(path)
        if not found:
            continue
        shadowed = [str(place) for place in found[1:] if not _is_copy(found[0], place, kind)]
        if not shadowed:
            return found[0], None
        return found[0], f"{kind.flag} {value}: {found[0]} is used and hides {', '.join(shadowed)}"
    raise UsageError(
        f"unknown value for {kind.flag}: `{value}` (no {' and no '.join(implied)})",
        where=f"{kind.flag} {value}",
        hint=_of_another_kind(kind, value, roots) or suggestion(value, kind.known(roots)),
        details=["searched:", *(f"  {root / kind.folder}" for root in roots.folders)],
    )


def _of_another_kind(kind: SelectorKind, value: str, roots: SearchRoots) -> str | None:
    """A plain word means a benchmark; a server that someone writes is none yet."""
    others = (ENVIRONMENT, RESOURCES_SERVER) if kind is BENCHMARK and "/" not in value else ()
    for other in others:
        if any(roots.find_all(path) for path in other.paths(value)):
            return f"there is one in {other.folder}: {other.flag} {value}"
    return None


def _is_copy(found: Path, other: Path, kind: SelectorKind) -> bool:
    """Whether the folder of `other` has all files of that of `found`, with the same bytes: a benchmark from
    elsewhere brings the built-in servers that it was made with."""
    if found.resolve() == other.resolve():
        return True
    if found.name != other.name or not filecmp.cmp(found, other, shallow=False):
        return False
    folder, there = found.parent, other.parent
    if kind.has_configs_folder:
        folder, there = folder.parent, there.parent
    files = (file.relative_to(folder) for file in folder.rglob("*") if file.is_file())
    return all(
        (there / file).is_file() and filecmp.cmp(folder / file, there / file, shallow=False) for file in files
    )
