"""Files, env.yaml and flags -> one frozen `Config` (CONTRACT 1.11): the steps, in order."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gymctl.config import ports, project
from gymctl.config.checks import (
    datasets,
    environments,
    evaluation,
    folders,
    globals,
    instances,
    pairing,
    references,
    relays,
    server_keys,
    slips,
)
from gymctl.config.checks.global_keys import RESERVED
from gymctl.config.checks.instances import UNKNOWN_PORT, Instance
from gymctl.config.model import Config, Origin, ServerBlock
from gymctl.config.problems import Problems
from gymctl.config.reading import include, overrides, selectors, text
from gymctl.config.reading.files import display, read
from gymctl.config.reading.overrides import Override
from gymctl.config.reading.roots import SearchRoots
from gymctl.config.server_classes.server_class import ServerClasses
from gymctl.config.shaping import standins
from gymctl.config.shaping.shape import shape
from gymctl.config.shaping.writers import Writers
from gymctl.config.tree import interpolation
from gymctl.config.tree.layers import Layer
from gymctl.config.tree.masking import secrets_of
from gymctl.config.tree.merge import merge
from gymctl.config.tree.origins import Origins, leaves
from gymctl.contract.servers import HEAD_PORT, ServerKind
from gymctl.errors import ConfigError

ENV_FILE = "env.yaml"


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
    model_url: str | None = field(default=None, repr=False)
    model_api_key: str | None = field(default=None, repr=False)
    project: str | None = None
    allow_unsupported_pairing: bool = False
    needs_model: bool = True
    """False for commands that only look: where no model is chosen, a placeholder stands in for it."""


def load(
    selection: Selection,
    *,
    cwd: Path | None = None,
    environ: Mapping[str, str] | None = None,
    problems: Problems | None = None,
) -> Config:
    """Read, merge, resolve and check everything. Servers without an explicit port have port -1 (see `ports`).

    `environ` is asked for search roots; `${oc.env:X}` always means the environment of this process. Raises
    ConfigError (ConfigErrors for several) or, for the command line itself, UsageError; nothing is started,
    written or bound. Afterwards `problems`, when given, holds what was found, also after an error.
    """
    problems = Problems() if problems is None else problems
    try:
        return _load(selection, cwd, environ, problems)
    except RecursionError as error:
        # Each file is checked on its own; directives and interpolations can still pile deep values up.
        raise ConfigError("the configuration is nested too deeply") from error


def _load(
    selection: Selection, cwd: Path | None, environ: Mapping[str, str] | None, problems: Problems
) -> Config:
    cwd = (cwd or Path.cwd()).resolve()
    environ = os.environ if environ is None else environ
    roots = SearchRoots.of(cwd, environ, selection.search_dir)

    sources = _read(selection, roots, cwd, problems)
    problems.stop()
    with problems.noted():
        shaped = shape(
            sources.layers,
            sources.top,
            sources.included.entries,
            agent_type=selection.agent_type,
            environ=environ,
            problems=problems,
        )
        origins = shaped.origins
        globals.fill_defaults(shaped.merged, cwd)
        document = interpolation.resolve(shaped.merged, origins, problems)
    standins.fold(document, origins.tree)
    if not text.check(document, origins, problems):
        problems.stop()  # what cannot be written cannot be shown by a later error either

    settings = globals.settings(document, origins, problems)
    problems.extend(evaluation.problems(document, _origins_of(document, evaluation.KEYS, origins)))
    found = instances.find(document, RESERVED, origins, problems)
    instances.refuse_empty(found, len(sources.included.files), problems)
    found = relays.add(document, found, problems)
    pairing.check_models(found, document, origins, environ, problems)
    references.check(found, instances.names(document, found, problems), origins, problems)
    environments.check(found, origins, problems)
    head_host, head_port = _fill(document, found, cwd, origins, problems)
    for slip in _slips(sources.top, document, found, shaped.layers):
        problems.warn(slip)
    declared = datasets.find(found, roots, origins, problems)
    servers = dict(_blocks(found, roots, origins, selection, problems))
    classes = ServerClasses()
    server_keys.check(servers.values(), origins, classes, problems)
    problems.stop()
    return Config(
        project=project.project_name(
            project.display_name(sources.included.selected), cwd, sources.included.selected, selection.project
        ),
        servers=servers,
        head_host=head_host,
        head_port=head_port,
        document=document,
        settings=settings,
        datasets=declared,
        files=sources.files,
        search_roots=roots.folders,
        origins=origins.flat(document),
        writers=Writers(shaped.layers, document, shaped.changes),
        secrets=secrets_of(document),
        warnings=tuple(problems.warnings),
        unstartable=tuple(server_keys.unset(servers.values(), origins, classes)),
        includes=sources.included.below,
    )


def _origins_of(document: Mapping[str, Any], keys: Iterable[str], origins: Origins) -> Mapping[str, Origin]:
    return origins.flat({key: document[key] for key in keys if key in document})


def bare(
    selection: Selection, *, cwd: Path | None = None, environ: Mapping[str, str] | None = None
) -> tuple[dict[str, Any], Mapping[str, Origin]]:
    """What env.yaml and the command line say about an evaluation whose servers a running head knows."""
    problems = Problems()
    cwd = (cwd or Path.cwd()).resolve()
    roots = SearchRoots.of(cwd, os.environ if environ is None else environ, selection.search_dir)
    env_file = _env_file(roots, cwd)
    top = overrides.layer(_command_line(selection, cwd, problems)[0])
    problems.stop()
    merged, origins = merge([*([env_file[0]] if env_file else []), top])
    document = interpolation.resolved(merged, evaluation.KEYS, origins)
    return document, origins.flat(document)


@dataclass(frozen=True)
class _Sources:
    """All that was read: files and env.yaml, lowest rank first, and on top the command line."""

    included: include.Included
    layers: tuple[Layer, ...]
    top: Layer
    files: tuple[Path, ...]


def _read(selection: Selection, roots: SearchRoots, cwd: Path, problems: Problems) -> _Sources:
    settings_given: list[Override] = []
    raw_paths: list[str] | None = None
    env_file: tuple[Layer, Path] | None = None
    with problems.collected():
        settings_given, raw_paths = _command_line(selection, cwd, problems)
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
    stand_in = standins.layer((*layers, top)) if _is_model_open(selection) else None
    if stand_in is not None:
        layers.insert(0, stand_in)
        problems.warn(standins.told(stand_in))
    return _Sources(included, tuple(layers), top, files)


def _is_model_open(selection: Selection) -> bool:
    chosen = (selection.model_type, selection.model, selection.model_url, selection.model_api_key)
    return not selection.needs_model and all(value is None for value in chosen)


def _command_line(
    selection: Selection, cwd: Path, problems: Problems
) -> tuple[list[Override], list[str] | None]:
    """What flags and tokens set, and the paths of all `+config_paths=[…]` tokens (none replaces another)."""
    flags = {
        "--model-url": ("policy_base_url", selection.model_url),
        "--model-api-key": ("policy_api_key", selection.model_api_key),
        "--model": ("policy_model_name", selection.model),
    }
    given = [Override.flag(flag, key, value) for flag, (key, value) in flags.items() if value is not None]
    given += [Override.file(token, cwd) for token in selection.set_file]
    if selection.allow_unsupported_pairing:
        given.append(Override("--allow-unsupported-pairing", (pairing.WAIVER,), True, must_be_new=True))
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
            if warning:
                warn(warning)
    entries += raw_paths or []
    if entries or raw_paths is not None:
        return entries, "command line"
    if env_file is None:
        return [], "command line"
    return include.entries_of(env_file[0]), env_file[0].name


def _slips(
    top: Layer, document: Mapping[str, Any], found: list[Instance], layers: Iterable[Layer]
) -> Iterator[str]:
    """Of what was typed just now, every command tells; of what stands in files, `config check` does."""
    typed = {key: document[key] for key in top.values if key in document}
    servers = {instance.name for instance in found}

    def texts() -> Iterator[str]:
        return (value for layer in layers for _, value in leaves(layer.values) if isinstance(value, str))

    def place(key: str) -> str:
        return Origins(top.origins).where(key) or top.name

    return slips.near_settings(typed, servers, texts, place)


def _fill(
    document: dict[str, Any], found: list[Instance], cwd: Path, origins: Origins, problems: Problems
) -> tuple[str, int]:
    """Hosts, ports, head address and defaults, written into the document (CONTRACT 1.13)."""
    host = ports.LOOPBACK
    with problems.collected("default_host"):
        host = ports.default_host(document, origins)
    head_host, head_port = host, HEAD_PORT
    with problems.collected("head_server"):
        head_host, head_port = ports.head_address(document, host, origins)
    ports.refuse_clashes(found, head_port, origins, problems)
    for instance in found:
        block = instance.settings
        block["host"] = block.get("host") or host
        block["port"] = ports.as_port(block.get("port")) or UNKNOWN_PORT
    globals.fill_skip_verification(
        document, [instance.settings for instance in found if instance.kind == "responses_api_agents"]
    )
    globals.fill_folders(document, cwd, origins, problems)
    head = document.get("head_server")
    document["head_server"] = {
        **(head if isinstance(head, dict) else {}),
        "host": head_host,
        "port": head_port,
    }
    return head_host, head_port


def _blocks(
    found: list[Instance], roots: SearchRoots, origins: Origins, selection: Selection, problems: Problems
) -> Iterator[tuple[str, ServerBlock]]:
    known = instances.kinds(found)
    for instance in found:
        has_folder = selection.needs_model or instance.implementation != standins.DUMMY
        with problems.collected(*instance.path):
            folder = folders.find(instance, roots, origins) if has_folder else Path()
            yield instance.name, _block(instance, folder, known)


def _block(instance: Instance, folder: Path, known: Mapping[str, ServerKind]) -> ServerBlock:
    settings = instance.settings
    return ServerBlock(
        name=instance.name,
        kind=instance.kind,
        implementation=instance.implementation,
        entrypoint=settings["entrypoint"],
        folder=folder,
        settings=settings,
        calls=references.of(instance, known),
        host=settings["host"],
        port=settings["port"],
        is_port_explicit=settings["port"] != UNKNOWN_PORT,
        workers=settings.get("num_workers") or 1,
        is_generated=instance.is_generated,
    )
