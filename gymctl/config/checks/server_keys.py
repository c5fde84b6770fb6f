"""Keys and values of server blocks against what the servers' own classes declare, before anything starts.

A server on gymctl's SDK that declares its fields takes no key beside them: one that it does not know is a
mistake, and so is a value that its class would refuse inside the container. Servers on another SDK are not
held to that; what looks wrong there is told by `notices`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from gymctl.config.checks import environments
from gymctl.config.checks.block_keys import generic_block
from gymctl.config.checks.wording import Details, rules
from gymctl.config.model import Origin, ServerBlock
from gymctl.config.names import suggestion
from gymctl.config.problems import Problems
from gymctl.config.reading.quoting import quote_hint
from gymctl.config.server_classes.foreign_bases import WITHOUT_EFFECT
from gymctl.config.server_classes.server_class import ServerClass, ServerClasses
from gymctl.config.tree.masking import is_secret
from gymctl.config.tree.origins import Origins, Path, children, dotted
from gymctl.contract.servers import KINDS
from gymctl.errors import ConfigError

_WANTS_TEXT = frozenset({"string_type", "literal_error", "path_type"})


def check(
    blocks: Iterable[ServerBlock], origins: Origins, classes: ServerClasses, problems: Problems
) -> None:
    """Report each key that a block's class does not know, and each value that it would refuse."""
    for block in blocks:
        if block.is_generated:
            continue
        described = classes.of(block)
        allowed = known_keys(block, described)
        for key in block.settings:
            if allowed is not None and key not in allowed:
                problems.add(_unknown(block, (key,), allowed, origins), *block.path, key)
        for inside, items in _refused(block, described):
            if not _is_unset(items):
                problems.add(_wrong(block, inside, items, described, origins), *block.path, *inside)
        if described.family != "gymctl" or described.model is None:
            for inside, name in _names_of_references(block.settings, ()):
                problems.add(_no_name(block, inside, name, origins), *block.path, *inside)
        for key in sorted(WITHOUT_EFFECT.get(block.kind, frozenset()) - described.keys):
            if block.settings.get(key) and described.family == "gymctl":
                place = origins.where(*block.path, key)
                problems.warn(
                    f"`{block.name}.{key}` has no effect: {block.implementation} does not read it ({place})"
                )


def unset(
    blocks: Iterable[ServerBlock], origins: Origins, classes: ServerClasses
) -> Iterator[tuple[str, ConfigError]]:
    """By server: fields that a block's class needs and that hold nothing: such a server cannot start.

    Not a mistake yet: `openai_api_key: ${oc.env:JUDGE_KEY,null}` is how a configuration says so itself.
    """
    for block in blocks:
        for inside, items in _refused(block, classes.of(block)):
            if _is_unset(items):
                place = origins.where(*block.path, *inside) or origins.where(*block.path)
                what = f"`{block.name}`: `{dotted(inside)}` is required and not set"
                yield block.name, ConfigError(what, where=place)


def _names_of_references(value: object, path: Path) -> Iterator[tuple[Path, object]]:
    """The `name` of every `{type: …, name: …}` that is no text; the field may be called anything."""
    if isinstance(value, dict) and value.get("type") in KINDS and "name" in value:
        if not isinstance(value["name"], str):
            yield (*path, "name"), value["name"]
        return
    for key, child in children(value):
        yield from _names_of_references(child, (*path, key))


def _no_name(block: ServerBlock, inside: Path, name: object, origins: Origins) -> ConfigError:
    path = (*block.path, *inside)
    return ConfigError(
        f"`{block.name}`: `{dotted(inside)}` must be text, got {_shown(name)}",
        where=origins.where(*path),
        hint=None if name is None else quote_hint(path, name, origins.find(*path)),
    )


def known_keys(block: ServerBlock, described: ServerClass) -> frozenset[str] | None:
    """The keys that a block may hold; None when any key may be meant."""
    if described.family == "gymctl" and described.is_closed:
        if described.fields.extra == "forbid":
            return described.keys
        generic = generic_block(block.kind).model_fields
        return described.keys | set(generic) | WITHOUT_EFFECT.get(block.kind, frozenset())
    if block.kind == "environment_servers" and block.implementation in environments.ALLOWED:
        return frozenset(environments.ALLOWED[block.implementation])
    return None


def _unknown(block: ServerBlock, inside: Path, allowed: Iterable[str], origins: Origins) -> ConfigError:
    path = (*block.path, *inside)
    return ConfigError(
        f"`{block.name}`: {block.implementation} does not know `{dotted(inside)}`",
        where=origins.where(*path),
        hint=suggestion(str(inside[-1]), allowed, noun="allowed"),
    )


def _refused(block: ServerBlock, described: ServerClass) -> Iterator[tuple[Path, list[Details]]]:
    """What the class would refuse, by place in the block; keys of the block itself are not among it."""
    if described.family != "gymctl" or described.model is None:
        return
    try:
        described.model.model_validate(dict(block.settings))
    except ValidationError as error:
        grouped: dict[Path, list[Details]] = {}
        for item in error.errors(include_url=False):
            if item["type"] != "extra_forbidden" or len(item["loc"]) > 1:
                grouped.setdefault(_inside(block.settings, item), []).append(item)
        yield from grouped.items()


def _is_unset(items: list[Details]) -> bool:
    return items[0]["type"] == "missing" or items[0]["input"] is None


def _inside(settings: Mapping[str, Any], item: Details) -> Path:
    """Pydantic's location without the names of union members, which are no keys."""
    path: list[str | int] = []
    value: Any = settings
    for step in item["loc"]:
        inner = _below(value, step)
        if inner is not None:
            path.append(step)
            value = inner[0]
    return (*path, item["loc"][-1]) if item["type"] == "missing" else tuple(path)


def _below(value: Any, step: str | int) -> tuple[Any] | None:
    """What a mapping or list holds at `step`; None when it is no key of it."""
    if isinstance(value, list) and isinstance(step, int) and step < len(value):
        return (value[step],)
    if isinstance(value, Mapping):
        # Keys that are numbers in YAML reach pydantic's message as they are, those of JSON as text.
        return next(((inner,) for key, inner in value.items() if key == step or str(key) == step), None)
    return None


def _wrong(
    block: ServerBlock,
    inside: Path,
    items: list[Details],
    described: ServerClass,
    origins: Origins,
) -> ConfigError:
    if items[0]["type"] == "extra_forbidden":
        return _unknown(block, inside, _keys_at(described.model, inside[:-1]), origins)
    path = (*block.path, *inside)
    value = items[0]["input"]
    is_hidden = any(is_secret(step) for step in inside)
    found = "" if is_hidden else f", got {_shown(value)}"
    origin = origins.find(*path)
    return ConfigError(
        f"`{block.name}`: `{dotted(inside)}` {rules(items)}{found}",
        where=origins.where(*block.path) if origin is None else origin.place,
        hint=_hint(items, value, origin, path, is_hidden=is_hidden),
    )


def _hint(
    items: list[Details], value: Any, origin: Origin | None, path: Path, *, is_hidden: bool
) -> str | None:
    kinds = {item["type"] for item in items}
    if not isinstance(value, str):
        if kinds & _WANTS_TEXT:
            return quote_hint(path, value, origin, is_hidden=is_hidden)
        return None
    choices = re.findall(r"'([^']*)'", str(items[0].get("ctx", {}).get("expected", "")))
    return suggestion(value, choices, noun="allowed") if choices and not is_hidden else None


def _shown(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value!r:.80}"


def _keys_at(model: Any, path: Path) -> list[str]:
    """The keys of a class inside the block's class."""
    for step in path:
        if isinstance(step, int):
            continue
        fields = {field.alias: field.annotation for field in model.model_fields.values()}
        model = next(
            (
                kind
                for kind in (fields.get(str(step)), *get_args(fields.get(str(step))))
                if isinstance(kind, type) and issubclass(kind, BaseModel)
            ),
            None,
        )
        if model is None:
            return []
    return [field.alias for field in model.model_fields.values()]
