"""JSON Schema of the three-level form, for editors: what a config file may hold, with the servers found here.

A file is often only part of a configuration, so nothing is required of it, and wherever a value may stand,
`???`, `${…}` and the directives may too. Blocks are closed only where gymctl would refuse an unknown key.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gymctl.config.checks import folders
from gymctl.config.checks.block_keys import AgentBlock, GenericBlock
from gymctl.config.checks.global_keys import GlobalKeys
from gymctl.config.reading.roots import SearchRoots
from gymctl.config.server_classes.field_classes import replica
from gymctl.config.server_classes.foreign_bases import WITHOUT_EFFECT
from gymctl.config.server_classes.server_class import GIVEN, ServerClass, read
from gymctl.contract.evaluation import EvaluationSettings
from gymctl.contract.servers import KINDS, ServerKind

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_EXPRESSION = {"$ref": "#/$defs/expression"}
_NOTES = ("description", "default", "deprecated", "examples")
"""What stays on the value itself when its type becomes one of several."""

Schema = dict[str, Any]


def schema(roots: SearchRoots) -> Schema:
    """The schema for files that are read with these search roots."""
    definitions: Schema = {
        "expression": {
            "description": "A reference `${…}`, or `???` for a value that has to be set elsewhere.",
            "type": "string",
            "pattern": r"\$\{|^\?\?\?$",
        }
    }
    for key, model in (("block", GenericBlock), ("agent_block", AgentBlock)):
        _define(definitions, key, model.model_json_schema(ref_template=f"#/$defs/{key}.{{model}}"))
    for kind in KINDS:
        implementations = {}
        for name, folder in _servers(roots, kind):
            implementations[name] = _value(_server(definitions, kind, name, read(folder)))
        definitions[kind] = _level_two(implementations)
    definitions["instance"] = {
        "type": "object",
        "properties": {**{kind: _value(_ref(kind)) for kind in KINDS}, **_directives()},
    }
    return {
        "$schema": DIALECT,
        "title": "Configuration of gymctl and NeMo Gym",
        "type": "object",
        "properties": _top_level(definitions),
        "additionalProperties": {
            "if": {"type": "object", "anyOf": [{"required": [kind]} for kind in KINDS]},
            "then": _ref("instance"),
        },
        "$defs": definitions,
    }


def _servers(roots: SearchRoots, kind: ServerKind) -> Iterator[tuple[str, Path]]:
    """Server folders by name; the first root that holds one wins."""
    found: dict[str, Path] = {}
    for root in roots.folders:
        for folder in sorted((root / kind).glob("*/")):
            if folders.is_server(folder) and (folder / "app.py").is_file():
                found.setdefault(folder.name, folder)
    yield from sorted(found.items())


def _server(definitions: Schema, kind: ServerKind, name: str, described: ServerClass) -> Schema:
    """Define one server's block; its own fields first."""
    key = f"{kind}.{name}"
    own = replica(described.fields, without=GIVEN)
    _define(definitions, key, own.model_json_schema(ref_template=f"#/$defs/{key}.{{model}}"))
    block = definitions[key]
    is_ours = described.family == "gymctl" and described.is_closed
    generic: Schema = definitions["agent_block" if kind == "responses_api_agents" else "block"]["properties"]
    properties: Schema = block.setdefault("properties", {})
    if described.fields.extra == "forbid" and is_ours:
        properties |= {each: generic[each] for each in properties if each in generic}
    else:
        unread = {each: {"deprecated": True} for each in sorted(WITHOUT_EFFECT.get(kind, ())) if is_ours}
        properties |= {**{each: value for each, value in unread.items() if each not in properties}, **generic}
    block["properties"] = {**properties, **_directives()}
    block["additionalProperties"] = not is_ours
    return _ref(key)


def _level_two(implementations: Schema) -> Schema:
    """One implementation with its block; beside a directive there may be others."""
    return {
        "type": "object",
        "properties": {**implementations, **_directives()},
        "additionalProperties": _value(_ref("block")),
        "anyOf": [{"maxProperties": 1}, *({"required": [name]} for name in _directives())],
    }


def _top_level(definitions: Schema) -> Schema:
    properties: Schema = {}
    for key, model in (("evaluation", EvaluationSettings), ("global", GlobalKeys)):
        _define(definitions, key, model.model_json_schema(ref_template=f"#/$defs/{key}.{{model}}"))
        properties |= definitions.pop(key)["properties"]
    return {name: _or_null(property) for name, property in properties.items()}


def _or_null(made: Schema) -> Schema:
    """Null is as if a top-level key were not there."""
    kinds = made.get("anyOf")
    null = {"type": "null"}
    return made if kinds is None or null in kinds else {**made, "anyOf": [*kinds, null]}


def _define(definitions: Schema, key: str, made: Schema) -> None:
    """Put a class and the classes in it among the definitions, fit for parts of a configuration."""
    for name, inner in made.pop("$defs", {}).items():
        definitions[f"{key}.{name}"] = _relaxed(inner)
    definitions[key] = _relaxed(made)


def _relaxed(made: Schema) -> Schema:
    """Without titles and demands; values inside may be expressions."""
    kept = {name: value for name, value in made.items() if name not in ("title", "required")}
    if "properties" in kept:
        kept["properties"] = {name: _value(value) for name, value in kept["properties"].items()}
        if kept.get("additionalProperties") is False:
            kept["properties"] |= _directives()
    for name in ("items", "additionalProperties"):
        if isinstance(kept.get(name), dict):
            kept[name] = _value(kept[name])
    if "anyOf" in kept:
        kept["anyOf"] = [_relaxed(member) for member in kept["anyOf"]]
    return kept


def _value(made: Schema) -> Schema:
    """The schema of a place where a value stands."""
    relaxed = _relaxed(made)
    notes = {name: relaxed.pop(name) for name in _NOTES if name in relaxed}
    if not relaxed or relaxed == {"type": "string"}:
        return {**relaxed, **notes}
    if list(relaxed) == ["anyOf"]:
        members = relaxed["anyOf"]
        takes_text = {"type": "string"} in members or {} in members
        return {"anyOf": members if takes_text else [*members, _EXPRESSION], **notes}
    return {"anyOf": [relaxed, _EXPRESSION], **notes}


def _directives() -> Schema:
    return {
        "_inherit_from": {
            "type": "string",
            "description": "Take a block from there, which removes it there.",
        },
        "_copy": {"type": "string", "description": "Take a copy of a block."},
        "_delete_key": {"type": "string", "description": "Leave out these keys of it, separated by commas."},
    }


def _ref(key: str) -> Schema:
    return {"$ref": f"#/$defs/{key}"}
