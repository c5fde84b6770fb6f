"""`{type: …, name: …}` in a server block: which server calls which (CONTRACT 1.2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from gymctl.config.checks.instances import Instance
from gymctl.config.model import Reference
from gymctl.config.names import close, did_you_mean
from gymctl.config.problems import Problems
from gymctl.config.tree.origins import Origins, Path, children, dotted
from gymctl.contract.servers import KINDS, ServerKind
from gymctl.errors import ServerRefNotFoundError


def of(instance: Instance, known: Mapping[str, ServerKind]) -> tuple[Reference, ...]:
    """The references of a block to `known` servers. Nested ones are called too: under their dotted path."""
    found = (reference for _, reference in _walk(instance.settings, (), instance.kind))
    return tuple(reference for reference in found if known.get(reference.name) == reference.kind)


def agents_of(instance: Instance) -> set[str]:
    """Agents that an environment server fronts: `agent_server`, and any direct field with that type."""
    return {
        reference.name
        for path, reference in _walk(instance.settings, (), instance.kind)
        if len(path) == 1 and reference.kind == "responses_api_agents"
    }


def check(
    instances: Iterable[Instance], known: Mapping[str, ServerKind], origins: Origins, problems: Problems
) -> None:
    """Report every reference to a server that is not among `known`.

    Only a direct field is surely one. What looks like one further down is an error when it is nearly the name
    of a server, and else warned about: shipped configs list servers there that only some users start.
    """
    for instance in instances:
        for path, reference in _walk(instance.settings, (), instance.kind):
            if known.get(reference.name) == reference.kind:
                continue
            what = f"`{instance.name}` refers to a server that does not exist: {_described(reference, known)}"
            where = origins.where(*instance.path, *path, "name")
            if len(path) > 1 and not _near(reference, known):
                problems.warn(f"{what} ({where})")
                continue
            error = ServerRefNotFoundError(
                what,
                where=where,
                hint=_hint(reference, known),
            )
            problems.add(error, *instance.path, *path, "name")


def _described(ref: Reference, known: Mapping[str, ServerKind]) -> str:
    text = f"`{ref.field}` = {{type: {ref.kind}, name: {ref.name}}}"
    other = known.get(ref.name)
    return f"{text}, but `{ref.name}` is one of {other}" if other else text


def _hint(ref: Reference, known: Mapping[str, ServerKind]) -> str:
    candidates = sorted(name for name, kind in known.items() if kind == ref.kind)
    if near := did_you_mean(_near(ref, known)):
        return near
    if candidates:
        return f"{ref.kind} in this configuration: {', '.join(candidates)}"
    if ref.kind == "responses_api_models":
        return "add a model server with --model-type NAME"
    return f"the configuration defines no {ref.kind}"


def _near(ref: Reference, known: Mapping[str, ServerKind]) -> list[str]:
    return close(ref.name, sorted(name for name, kind in known.items() if kind == ref.kind))


def _walk(value: object, path: Path, kind: ServerKind) -> Iterator[tuple[Path, Reference]]:
    for key, child in children(value):
        here = (*path, key)
        found = _read(child, here, kind)
        if found is not None:
            yield here, Reference(field=dotted(here), kind=found[0], name=found[1])
        else:
            yield from _walk(child, here, kind)


def _read(value: object, path: Path, kind: ServerKind) -> tuple[ServerKind, str] | None:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    block: dict[str, Any] = value
    if block.get("type") in KINDS:
        return cast(ServerKind, block["type"]), block["name"]
    if kind == "environment_servers" and path == ("agent_server",) and "type" not in block:
        return "responses_api_agents", block["name"]
    return None
