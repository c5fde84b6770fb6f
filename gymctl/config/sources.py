"""What a command names, read: files in order, env.yaml, the command line on top (CONTRACT 1.4-1.7)."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gymctl.config.checks import evaluation, pairing, slips
from gymctl.config.model import Origin
from gymctl.config.problems import Problems
from gymctl.config.reading import include, overrides, selectors
from gymctl.config.reading.files import display, read
from gymctl.config.reading.overrides import Override
from gymctl.config.reading.roots import ENV_FILE, SearchRoots
from gymctl.config.shaping import cassettes, standins
from gymctl.config.shaping.cassettes import Cassette
from gymctl.config.tree import interpolation
from gymctl.config.tree.layers import Layer
from gymctl.config.tree.merge import merge
from gymctl.config.tree.origins import Origins, leaves


@dataclass(frozen=True)
class Selection:
    """What the command line names. `overrides` are the raw tokens, `+a.b=v` and `++a.b=v`."""

    config: tuple[str, ...] = ()
    benchmark: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    resources_server: tuple[str, ...] = ()
    search_dir: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    set_file: tuple[str, ...] = ()
    """`KEY=FILE` each."""
    model_type: str | None = None
    agent_type: str | None = None
    model: str | None = None
    """A name, or `record:FILE[:NAME]` or `replay:FILE` (see `shaping/cassettes.py`)."""
    on_miss: str | None = None
    model_url: str | None = field(default=None, repr=False)
    model_api_key: str | None = field(default=None, repr=False)
    policy_at: str | None = None
    """`[HOST:]PORT` (see `shaping/elsewhere.py`)."""
    project: str | None = None
    allow_unsupported_pairing: bool = False
    ray: bool = False
    """Servers get Ray containers of the project's own, also where the config names a cluster."""
    ray_workers: int | None = None
    start_anyway: bool = False
    packed: str | None = None
    """The one of `search_dir` that is a packed benchmark: it is meant to go before files of the same name."""
    needs_model: bool = True
    """False for commands that only look: where no model is chosen, a placeholder stands in for it."""
    is_placeholder_told: bool = True
    """False where it changes nothing for the user."""


@dataclass(frozen=True)
class Sources:
    """All that was read: files and env.yaml, lowest rank first, and on top the command line."""

    included: include.Included
    layers: tuple[Layer, ...]
    top: Layer
    files: tuple[Path, ...]
    cassette: Cassette | None = None


def read_all(selection: Selection, roots: SearchRoots, cwd: Path, problems: Problems) -> Sources:
    cassette = cassettes.spoken(selection.model, selection.on_miss, cwd, roots.find)
    settings_given: list[Override] = []
    raw_paths: list[str] | None = None
    env_file: tuple[Layer, Path] | None = None
    with problems.collected():
        settings_given, raw_paths = _command_line(selection, cassette, cwd, problems)
    with problems.collected():
        env_file = _env_file(roots, cwd)
    entries: list[str] = []
    where = "command line"
    with problems.collected():
        entries, where = _entries(selection, raw_paths, env_file, roots, problems.warn)
    included = include.walk(entries, roots, cwd, problems, where)
    layers = [*included.layers, *([env_file[0]] if env_file else [])]
    ids = {str(key) for layer in layers for key in layer.values}
    top = Layer("command line")
    with problems.collected():
        top = overrides.layer(overrides.with_dotted_ids(settings_given, ids))
    files = (*included.files, *([env_file[1]] if env_file else []))
    is_replay = cassette is not None and not cassette.asks_a_model
    stand_in = standins.layer((*layers, top)) if is_replay or _is_model_open(selection) else None
    if stand_in is not None:
        layers.insert(0, stand_in)
        if not is_replay and selection.is_placeholder_told:
            problems.warn(standins.told(stand_in))
    return Sources(included, tuple(layers), top, files, cassette)


def _is_model_open(selection: Selection) -> bool:
    chosen = (
        *(selection.model_type, selection.model, selection.model_url, selection.model_api_key),
        selection.policy_at,
    )
    return not selection.needs_model and all(value is None for value in chosen)


def _command_line(
    selection: Selection, cassette: Cassette | None, cwd: Path, problems: Problems
) -> tuple[list[Override], list[str] | None]:
    """What flags and tokens set, and the paths of all `+config_paths=[…]` tokens (none replaces another)."""
    flags = {
        "--model-url": ("policy_base_url", selection.model_url),
        "--model-api-key": ("policy_api_key", selection.model_api_key),
        "--model": ("policy_model_name", selection.model if cassette is None else cassette.model),
    }
    given = [Override.flag(flag, key, value) for flag, (key, value) in flags.items() if value is not None]
    given += [Override.file(token, cwd) for token in selection.set_file]
    if selection.allow_unsupported_pairing:
        given.append(Override("--allow-unsupported-pairing", (pairing.WAIVER,), True, must_be_new=True))
    if selection.start_anyway:
        given.append(Override("--start-anyway", ("start_anyway",), True, must_be_new=True))
    if selection.ray:
        given.append(Override("--ray", ("ray_head_node_address",), None, must_be_new=True))
    if selection.ray_workers is not None:
        given.append(Override("--ray-workers", ("ray_workers",), selection.ray_workers, must_be_new=True))
    parsed = [*given, *overrides.parse(selection.overrides, problems)]
    paths = [override for override in parsed if override.path == ("config_paths",)]
    others = [override for override in parsed if override.path != ("config_paths",)]
    if not paths:
        return others, None
    return others, [entry for token in paths for entry in include.checked(token.value, token.name)]


def _env_file(roots: SearchRoots, cwd: Path) -> tuple[Layer, Path] | None:
    path = roots.find(ENV_FILE)
    return None if path is None else (read(path, display(path, cwd)), path)


def _entries(
    selection: Selection,
    raw_paths: list[str] | None,
    env_file: tuple[Layer, Path] | None,
    roots: SearchRoots,
    warn: Callable[[str], None],
) -> tuple[list[str], str]:
    """In the fixed order of CONTRACT 1.7. env.yaml's own list counts when the command line names nothing."""
    entries = list(selection.config)
    named = (
        (selectors.BENCHMARK, selection.benchmark),
        (selectors.ENVIRONMENT, selection.environment),
        (selectors.RESOURCES_SERVER, selection.resources_server),
        (selectors.MODEL_TYPE, (selection.model_type,) if selection.model_type else ()),
        (selectors.AGENT_TYPE, (selection.agent_type,) if selection.agent_type else ()),
    )
    for kind, values in named:
        for value in values:
            path, warning = selectors.resolve(kind, value, roots)
            entries.append(str(path))
            if warning and not _is_packed(path, selection):
                warn(warning)
    entries += raw_paths or []
    if entries or raw_paths is not None:
        return entries, "command line"
    if env_file is None:
        return [], "command line"
    return include.entries_of(env_file[0]), env_file[0].name


def _is_packed(path: Path, selection: Selection) -> bool:
    return selection.packed is not None and path.is_relative_to(Path(selection.packed).resolve())


def slips_typed(
    top: Layer, document: Mapping[str, Any], servers: Collection[str], layers: Iterable[Layer]
) -> Iterator[str]:
    """Of what was typed just now, every command tells; of what stands in files, `config check` does."""
    typed = {key: document[key] for key in top.values if key in document}

    def texts() -> Iterator[str]:
        return (value for layer in layers for _, value in leaves(layer.values) if isinstance(value, str))

    def place(key: str) -> str:
        return Origins(top.origins).where(key) or top.name

    return slips.near_settings(typed, servers, texts, place)


@dataclass(frozen=True)
class Bare:
    """What env.yaml and the command line say about an evaluation whose servers a running head knows."""

    document: Mapping[str, Any]
    origins: Mapping[str, Origin]
    warnings: tuple[str, ...]


def bare(
    selection: Selection,
    *,
    keys: Iterable[str] = evaluation.KEYS,
    cwd: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Bare:
    """Read some top-level keys of env.yaml and the command line alone. Raises ConfigError, ConfigErrors for
    several."""
    problems = Problems()
    cwd = (cwd or Path.cwd()).resolve()
    roots = SearchRoots.of(cwd, os.environ if environ is None else environ, selection.search_dir)
    env_file = _env_file(roots, cwd)
    cassette = cassettes.spoken(selection.model, selection.on_miss, cwd, roots.find)
    top = overrides.layer(_command_line(selection, cassette, cwd, problems)[0])
    problems.stop()
    layers = [*([env_file[0]] if env_file else []), top]
    merged, origins = merge(layers)
    document = interpolation.resolved(merged, keys, origins)
    warnings = tuple(slips_typed(top, merged, (), layers))
    return Bare(document, origins.flat(document), warnings)
