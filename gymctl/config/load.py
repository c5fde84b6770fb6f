"""Files, env.yaml and flags -> one frozen `Config` (CONTRACT 1.11): the steps, in order."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from gymctl.config import (
    building,
    datasets,
    directives,
    environments,
    folders,
    globals,
    include,
    instances,
    interpolation,
    overrides,
    ports,
    project,
    references,
    relays,
    renames,
    selectors,
)
from gymctl.config.directives import Directive
from gymctl.config.files import Layer, display, read
from gymctl.config.instances import UNKNOWN_PORT, Instance
from gymctl.config.masking import secrets_of
from gymctl.config.merge import merge
from gymctl.config.model import Config, ServerBlock
from gymctl.config.origins import Origins
from gymctl.config.origins import Path as KeyPath
from gymctl.config.overrides import Override
from gymctl.config.roots import SearchRoots
from gymctl.config.writers import Writers
from gymctl.errors import UsageError

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
    model_type: str | None = None
    agent_type: str | None = None
    model: str | None = None
    model_url: str | None = field(default=None, repr=False)
    model_api_key: str | None = field(default=None, repr=False)
    project: str | None = None


def load(
    selection: Selection, *, cwd: Path | None = None, environ: Mapping[str, str] | None = None
) -> Config:
    """Read, merge, resolve and check everything. Servers without an explicit port have port -1 (see `ports`).

    `environ` is asked for search roots; `${oc.env:X}` always means the environment of this process. Raises
    ConfigError (or UsageError for the command line itself); nothing is started, written or bound.
    """
    _refuse_unsupported(selection)
    cwd = (cwd or Path.cwd()).resolve()
    roots = SearchRoots.of(cwd, os.environ if environ is None else environ, selection.search_dir)
    warnings: list[str] = []

    settings_given, raw_paths = _command_line(selection)
    env_file = _env_file(roots, cwd)
    entries, where = _entries(selection, raw_paths, env_file, roots, warnings.append)
    included = include.walk(entries, roots, cwd, warnings.append, where)
    layers = [*included.layers, *([env_file[0]] if env_file else [])]
    ids = {str(key) for layer in layers for key in layer.values}
    top = overrides.layer(overrides.with_dotted_ids(settings_given, ids))
    merged, origins = merge([*layers, top])
    merged["config_paths"] = list(included.entries)
    moved, followed = (), {}
    if any(directives.are_in(layer.values) for layer in (*layers, top)):
        merged, origins, moved, followed = _directed(merged, origins)
    document = interpolation.resolve(merged, origins)

    settings = globals.settings(document, origins)
    found = instances.find(document, globals.RESERVED, origins, warnings.append)
    instances.refuse_empty(found, len(included.files))
    found = relays.add(document, found, warnings.append)
    references.check(found, origins)
    environments.check(found, origins, warnings.append)
    head_host, head_port = _fill(document, found, cwd, origins)

    return Config(
        project=project.project_name(
            project.display_name(included.selected), cwd, included.selected, selection.project
        ),
        servers={instance.name: _block(instance, roots, origins) for instance in found},
        head_host=head_host,
        head_port=head_port,
        document=document,
        settings=settings,
        datasets=datasets.find(found, roots, origins),
        files=(*included.files, *([env_file[1]] if env_file else [])),
        search_roots=roots.folders,
        origins=origins.flat(document),
        writers=Writers([*layers, top], document, moved, followed),
        secrets=secrets_of(document),
        warnings=tuple(warnings),
    )


def _refuse_unsupported(selection: Selection) -> None:
    if selection.agent_type is not None:
        raise UsageError(
            "--agent-type is not supported yet",
            where="--agent-type",
            hint="name a config that uses this agent",
        )


def _command_line(selection: Selection) -> tuple[list[Override], list[str] | None]:
    """What flags and tokens set, and the paths of all `+config_paths=[…]` tokens (none replaces another)."""
    flags = {
        "--model-url": ("policy_base_url", selection.model_url),
        "--model-api-key": ("policy_api_key", selection.model_api_key),
        "--model": ("policy_model_name", selection.model),
    }
    given = [Override.flag(flag, key, value) for flag, (key, value) in flags.items() if value is not None]
    parsed = [*given, *overrides.parse(selection.overrides)]
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


def _directed(
    merged: DictConfig, origins: Origins
) -> tuple[DictConfig, Origins, tuple[Directive, ...], dict[KeyPath, Directive]]:
    """The tree after directives, with environment servers following the agents that these moved."""
    frozen = cast(dict[Any, Any], OmegaConf.to_container(merged, resolve=False))
    applied = building.apply(frozen, origins.tree)
    followed = renames.follow(applied, frozen)
    return OmegaConf.create(applied.document), Origins(applied.tree), applied.directives, followed


def _fill(document: dict[str, Any], found: list[Instance], cwd: Path, origins: Origins) -> tuple[str, int]:
    """Hosts, ports, head address and defaults, written into the document (CONTRACT 1.13)."""
    host = ports.default_host(document, origins)
    head_host, head_port = ports.head_address(document, host, origins)
    ports.refuse_clashes(found, head_port, origins)
    for instance in found:
        block = instance.settings
        block["host"] = block.get("host") or host
        block["port"] = ports.as_port(block.get("port")) or UNKNOWN_PORT
    globals.fill_skip_verification(
        document, [instance.settings for instance in found if instance.kind == "responses_api_agents"]
    )
    globals.fill_folders(document, cwd, origins)
    head = document.get("head_server") or {}
    document["head_server"] = {**head, "host": head_host, "port": head_port}
    return head_host, head_port


def _block(instance: Instance, roots: SearchRoots, origins: Origins) -> ServerBlock:
    settings = instance.settings
    return ServerBlock(
        name=instance.name,
        kind=instance.kind,
        implementation=instance.implementation,
        entrypoint=settings["entrypoint"],
        folder=folders.find(instance, roots, origins),
        settings=settings,
        calls=references.of(instance),
        host=settings["host"],
        port=settings["port"],
        is_port_explicit=settings["port"] != UNKNOWN_PORT,
        workers=settings.get("num_workers") or 1,
        is_generated=instance.is_generated,
    )
