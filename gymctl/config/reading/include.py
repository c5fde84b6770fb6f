"""`config_paths`: which files are read and in which order they win (CONTRACT 1.5).

A file beats everything it includes; a later sibling beats an earlier one and all that one included. Files are
*discovered* breadth first, which decides whose child a file is, and *merged* in post-order of that tree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gymctl.config.names import suggestion
from gymctl.config.problems import Problems
from gymctl.config.reading.files import display, read
from gymctl.config.reading.roots import SearchRoots, is_folder, is_special
from gymctl.config.tree.layers import Layer
from gymctl.config.tree.origins import Origins
from gymctl.errors import ConfigPathNotFoundError, MalformedConfigPathsError

REASONING_GYM = {
    "claude_code": "claude_code",
    "hermes": "hermes",
    "orchestrator": "langgraph_orchestrator",
    "parallel_thinking": "langgraph_parallel_thinking",
    "reflection": "langgraph_reflection",
    "rewoo": "langgraph_rewoo",
}
_AGENT_CONFIGS = {
    "stirrup_agent/configs/stirrup_gdpval.yaml": "stirrup_agent/configs/stirrup_agent.yaml",
    "tau2/configs/tau2_agent.yaml": "tau2/configs/tau2.yaml",
    "verifiers_agent/configs/acereason-math.yaml": "verifiers_agent/configs/verifiers_agent.yaml",
}
MOVED = {
    f"environments/reasoning_gym_{old}/config.yaml": f"environments/{new}_reasoning_gym/config.yaml"
    for old, new in REASONING_GYM.items()
} | {f"responses_api_agents/{old}": f"responses_api_agents/{new}" for old, new in _AGENT_CONFIGS.items()}
"""Paths of older configs, rewritten when the old file is gone."""


@dataclass
class _File:
    entry: str
    path: Path
    layer: Layer
    children: list[_File] = field(default_factory=list)
    named: list[_File] = field(default_factory=list)
    """All that it includes; those that stood in the list already are children of another file."""


@dataclass(frozen=True)
class Included:
    """What the walk found: layers in merge order, entries in discovery order (roots first)."""

    layers: tuple[Layer, ...]
    files: tuple[Path, ...]
    entries: tuple[str, ...]
    selected: tuple[Path, ...]
    """The roots alone: what the user named."""
    below: Mapping[str, frozenset[str]]
    """By the name of a layer: those that it includes, at any depth."""


def walk(entries: list[str], roots: SearchRoots, cwd: Path, problems: Problems, where: str) -> Included:
    """Read `entries` and everything they include. `where` says who listed the entries, for errors.

    A file that is not there or cannot be read is reported and left out.
    """
    listed: dict[str, _File | None] = {}
    top = [file for entry in entries if (file := _opened(entry, listed, roots, cwd, problems, where))]
    queue = list(top)
    for file in queue:  # grows while it is walked
        own: list[str] = []
        with problems.collected():
            own = entries_of(file.layer)
        for index, entry in enumerate(own):
            child = _opened(entry, listed, roots, cwd, problems, _line(file.layer, index))
            if child is not None:
                file.children.append(child)
                queue.append(child)
            if (known := listed.get(entry)) is not None:
                file.named.append(known)
    ordered = [file for root in top for file in _post_order(root)]
    return Included(
        layers=tuple(file.layer for file in ordered),
        files=tuple(file.path for file in ordered),
        entries=tuple(file.entry for file in queue),
        selected=tuple(file.path for file in top),
        below={file.layer.name: frozenset(_below(file)) for file in ordered},
    )


def entries_of(layer: Layer) -> list[str]:
    """The layer's own `config_paths`; MalformedConfigPathsError when it is not a list of strings."""
    if "config_paths" not in layer.values:
        return []
    return checked(layer.values["config_paths"], _line(layer))


def checked(value: object, where: str) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list):
        found = f"the string `{value}`" if isinstance(value, str) else f"`{value}`"
        raise MalformedConfigPathsError(
            f"`config_paths` must be a list of paths, got {found}",
            where=where,
            hint="write it as [a.yaml, b.yaml]",
        )
    for index, entry in enumerate(value):
        if not isinstance(entry, str) or not entry:
            raise MalformedConfigPathsError(
                f"`config_paths[{index}]` must be a path, got `{entry}`", where=where
            )
    return list(value)


def _line(layer: Layer, *path: int) -> str:
    return Origins(layer.origins).where("config_paths", *path) or layer.name


def _opened(
    entry: str,
    listed: dict[str, _File | None],
    roots: SearchRoots,
    cwd: Path,
    problems: Problems,
    where: str,
) -> _File | None:
    """The file of an entry that is new; None for one that is listed already or cannot be read."""
    if entry in listed:
        problems.warn(f"`{entry}` is included more than once; it keeps its first place ({where})")
        return None
    listed[entry] = None
    with problems.collected():
        found, path = _locate(entry, roots, problems.warn, where)
        listed[entry] = _File(found, path, read(path, display(path, cwd)))
    return listed[entry]


def _locate(entry: str, roots: SearchRoots, warn: Callable[[str], None], where: str) -> tuple[str, Path]:
    """The entry, renamed when it has moved, and its file."""
    path = roots.find(entry)
    if path is None and entry in MOVED and (moved := roots.find(MOVED[entry])) is not None:
        warn(f"`{entry}` has moved; use `{MOVED[entry]}`")
        return MOVED[entry], moved
    if path is None:
        places = roots.candidates(entry)
        beside = [
            other.name for place in places if is_folder(place.parent) for other in place.parent.glob("*.y*ml")
        ]
        special = next((place for place in places if is_special(place)), None)
        if special is not None:
            raise ConfigPathNotFoundError(f"`{special}` is a pipe or a device, no config file", where=where)
        hint = suggestion(Path(entry).name, beside) if beside else None
        if "," in entry:
            hint = "give one file per --config"
        raise ConfigPathNotFoundError(
            f"config file `{entry}` not found",
            where=where,
            details=["looked for:", *(f"  {place}" for place in places)],
            hint=hint,
        )
    return entry, path


def _post_order(file: _File) -> list[_File]:
    return [*(below for child in file.children for below in _post_order(child)), file]


def _below(file: _File) -> set[str]:
    """Names of the layers that `file` includes; circles end where they began."""
    seen: dict[str, _File] = {}
    queue = list(file.named)
    for other in queue:  # grows while it is walked
        if other.layer.name not in seen and other is not file:
            seen[other.layer.name] = other
            queue += other.named
    return set(seen)
