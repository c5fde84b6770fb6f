"""Files, env.yaml and flags -> one frozen `Config` (CONTRACT 1.11): the steps, in order."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gymctl.config import ports, project, sources
from gymctl.config.checks import (
    datasets,
    environments,
    evaluation,
    folders,
    globals,
    instances,
    near_keys,
    pairing,
    ray,
    references,
    relays,
    server_keys,
    styles,
)
from gymctl.config.checks.global_keys import RESERVED
from gymctl.config.checks.instances import UNKNOWN_PORT, Instance
from gymctl.config.families import family_of
from gymctl.config.model import Config, GlobalSettings, Origin, ServerBlock
from gymctl.config.problems import Problems
from gymctl.config.reading import text
from gymctl.config.reading.roots import SearchRoots
from gymctl.config.server_classes.server_class import ServerClasses
from gymctl.config.shaping import cassettes, elsewhere, standins
from gymctl.config.shaping.shape import Shaped, shape
from gymctl.config.shaping.writers import Writers
from gymctl.config.sources import Selection, Sources
from gymctl.config.tree import interpolation
from gymctl.config.tree.masking import redact, secrets_of
from gymctl.config.tree.origins import Origins
from gymctl.contract.servers import HEAD_PORT, ServerKind
from gymctl.errors import ConfigError


def load(
    selection: Selection, *, cwd: Path | None = None, environ: Mapping[str, str] | None = None
) -> Config:
    """Read, merge, resolve and check everything. Servers without an explicit port have port -1 (see `ports`).

    `environ` is asked for search roots; `${oc.env:X}` always means the environment of this process. Raises
    ConfigError (ConfigErrors for several) or, for the command line itself, UsageError; nothing is started,
    written or bound.
    """
    problems = Problems()
    config = examine(selection, problems, cwd=cwd, environ=environ)
    problems.stop()
    return config


def examine(
    selection: Selection,
    problems: Problems,
    *,
    cwd: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Config:
    """As `load`, but what is wrong with a document that could be resolved is only reported to `problems`.

    When it then holds errors, the Config is there to be looked at, not to be started.
    """
    cwd = (cwd or Path.cwd()).resolve()
    environ = os.environ if environ is None else environ
    try:
        return _examined(
            selection, SearchRoots.of(cwd, environ, selection.search_dir), cwd, environ, problems
        )
    except RecursionError as error:
        # Each file is checked on its own; directives and interpolations can still pile deep values up.
        raise ConfigError("the configuration is nested too deeply") from error


def _examined(
    selection: Selection, roots: SearchRoots, cwd: Path, environ: Mapping[str, str], problems: Problems
) -> Config:
    read = sources.read_all(selection, roots, cwd, problems)
    problems.stop()
    document, shaped = _resolved(read, selection, cwd, environ, problems)
    origins = shaped.origins

    settings = globals.settings(document, origins, problems)
    problems.extend(evaluation.problems(document, _origins_of(document, evaluation.KEYS, origins)))
    found = instances.find(document, RESERVED, origins, problems)
    instances.refuse_empty(found, len(read.included.files), problems)
    found = relays.add(document, found, problems)
    pairing.check_models(found, document, origins, environ, problems)
    others = instances.elsewhere(document, RESERVED)
    away: dict[str, ServerKind] = {name: address.kind for name, address in others.items()}
    references.check(found, {**away, **instances.names(document, found, problems)}, origins, problems)
    environments.check(found, origins, problems)
    head_host, head_port = _fill(document, found, cwd, origins, problems)
    names = {instance.name for instance in found}
    for slip in sources.slips_typed(read.top, document, names, shaped.layers):
        problems.warn(slip)
    declared = datasets.find(found, roots, origins, problems)
    classes = ServerClasses(roots.folders)
    servers = ray.told(dict(_blocks(found, away, roots, origins, selection, settings, problems)), classes)
    if selection.ray:
        settings = ray.asked_for(settings, servers.values(), problems)
    globals.check_pools(settings.pool, servers.values(), origins, problems)
    server_keys.check(servers.values(), origins, classes, problems)
    near_keys.check(servers.values(), origins, classes, problems)
    styles.check(servers, document, origins, environ, classes, problems)
    selected = read.included.selected
    secrets = secrets_of(document)
    return Config(
        project=project.project_name(project.display_name(selected), cwd, selected, selection.project),
        servers=servers,
        head_host=head_host,
        head_port=head_port,
        document=document,
        settings=settings,
        datasets=declared,
        files=read.files,
        search_roots=roots.folders,
        origins=origins.flat(document),
        writers=Writers(shaped.layers, document, shaped.changes),
        secrets=secrets,
        warnings=tuple(redact(warning, secrets) for warning in problems.warnings),
        unstartable=tuple(server_keys.unset(servers.values(), origins, classes)),
        includes=read.included.below,
        elsewhere=others,
    )


def _resolved(
    read: Sources, selection: Selection, cwd: Path, environ: Mapping[str, str], problems: Problems
) -> tuple[dict[str, Any], Shaped]:
    """One document without directives and references, and how it came about."""
    with problems.noted():
        shaped = shape(
            read.layers,
            read.top,
            read.included.entries,
            agent_type=selection.agent_type,
            environ=environ,
            problems=problems,
        )
        written: Mapping[Any, Any] = {}
        if selection.policy_at is not None:
            written = elsewhere.insert(shaped.merged, shaped.origins.tree, selection.policy_at)
        elif read.cassette is not None:
            written = cassettes.insert(shaped.merged, shaped.origins.tree, read.cassette)
        changes = replace(shaped.changes, written={**shaped.changes.written, **written})
        shaped = replace(shaped, changes=changes)
        globals.fill_defaults(shaped.merged, cwd)
        document = interpolation.resolve(shaped.merged, shaped.origins, problems)
    standins.fold(document, shaped.origins.tree)
    if not text.check(document, shaped.origins, problems):
        problems.stop()  # what cannot be written cannot be shown by a later error either
    return document, shaped


def _origins_of(document: Mapping[str, Any], keys: Iterable[str], origins: Origins) -> Mapping[str, Origin]:
    return origins.flat({key: document[key] for key in keys if key in document})


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
    if head_host in ("0.0.0.0", "::"):
        problems.warn(
            f"the head is published at {ports.LOOPBACK} only, not at {head_host}; for other machines give an "
            f"address of this one: ++default_host=ADDRESS ({origins.where('head_server', 'host')})"
        )
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
    found: list[Instance],
    away: Mapping[str, ServerKind],
    roots: SearchRoots,
    origins: Origins,
    selection: Selection,
    settings: GlobalSettings,
    problems: Problems,
) -> Iterator[tuple[str, ServerBlock]]:
    known: dict[str, ServerKind] = {**away, **instances.kinds(found)}
    for instance in found:
        has_folder = selection.needs_model or instance.implementation != standins.DUMMY
        with problems.collected(*instance.path):
            theirs = settings.nemo_gym_relays
            folder = folders.find(instance, roots, origins, nemo_gym_relays=theirs) if has_folder else Path()
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
        family=family_of(folder, settings["entrypoint"]),
    )
