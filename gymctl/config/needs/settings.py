"""What the blocks of a config say: other models, sandbox providers, values that nobody gives."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gymctl.config.needs.code import is_key
from gymctl.config.needs.need import Need
from gymctl.config.policy import POLICY, VALUES
from gymctl.config.tree.origins import MISSING, Path, children
from gymctl.contract.servers import KINDS
from gymctl.errors import Place

Find = Callable[[Path], Place]
"""Where the value at a path is written."""

METADATA = "default_metadata"
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?:\.[^${}:]*)?\}")
_VARIABLE = re.compile(r"\$\{oc\.env:([A-Za-z_][A-Za-z0-9_]*)\}")


def blocks(document: Mapping[Any, Any]) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Every server block of a document that may still hold directives, with its path."""
    for name, instance in document.items():
        if not isinstance(instance, Mapping):
            continue
        for kind in KINDS:
            level = instance.get(kind)
            for implementation, block in level.items() if isinstance(level, Mapping) else ():
                if isinstance(block, Mapping):
                    yield (name, kind, implementation), block


def needs(document: Mapping[Any, Any], find: Find) -> Iterator[Need]:
    """Of all servers that a config starts."""
    for path, block in blocks(document):
        yield from of_block(path, block, document, find)


def of_block(path: Path, block: Mapping[str, Any], document: Mapping[Any, Any], find: Find) -> Iterator[Need]:
    for place, value in below(block, path):
        key = place[-1]
        if _is_other_model(key, value):
            yield Need("judge", f"{key}: {value['name']}", find((*place, "name")))
        if key == "sandbox_provider" and value:
            yield Need("sandbox", _provider(value, document), find(place))
            continue
        if key == "sandbox_host" and isinstance(value, str):
            yield Need("sandbox", "a service at `sandbox_host`", find(place))
        if isinstance(value, str) and not (key == "name" and value == MISSING):  # `--agent-type` fills it
            yield from _open(key, value, document, find(place))


def below(value: object, path: Path) -> Iterator[tuple[Path, Any]]:
    """Every value below, mappings and lists as well; datasets belong to an evaluation, not to a server."""
    for step, child in children(value):
        if step != "datasets":
            yield (*path, step), child
            yield from below(child, (*path, step))


def _is_other_model(key: object, value: object) -> bool:
    match value:
        case {"type": "responses_api_models", "name": str(name)}:
            return key != "model_server" or name not in (POLICY, MISSING)
    return False


def provider(value: object, document: Mapping[Any, Any]) -> str | None:
    """The sandbox provider that a block names or holds (`docker`, `opensandbox`); None: nobody defines it."""
    held = document.get(_named(value)) if isinstance(value, str) else value
    if not isinstance(held, Mapping):
        return None
    return next((str(name) for name in held if name != METADATA), None)


def _named(value: str) -> str:
    reference = _REFERENCE.fullmatch(value)
    return value if reference is None else reference[1]


def _provider(value: object, document: Mapping[Any, Any]) -> str:
    name = provider(value, document)
    if name is not None:
        return f"provider {name}"
    return f"a provider `{_named(value)}`" if isinstance(value, str) else "a provider"


def _open(key: object, value: str, document: Mapping[Any, Any], place: Place) -> Iterator[Need]:
    """Values that nobody gives: `???`, a key that no file defines, a variable without a default."""
    if value == MISSING:
        yield Need("key" if is_key(str(key)) else "setting", str(key), place)
    names = [name for name in _REFERENCE.findall(value) if name not in document]
    for name in (*names, *_VARIABLE.findall(value)):
        if name not in VALUES:
            yield Need("key" if is_key(name) else "setting", name, place)
