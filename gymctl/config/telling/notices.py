"""What is allowed and looks like a slip: told by `gymctl config check`, an error for nobody.

Keys that a foreign server's class does not declare, settings called almost like a key that means something,
and values that YAML 1.1 reads otherwise than most people.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gymctl.config.checks import near_keys, slips
from gymctl.config.checks.block_keys import generic_block
from gymctl.config.checks.global_keys import NAMES, GlobalKeys
from gymctl.config.model import Config
from gymctl.config.names import suggestion
from gymctl.config.reading.quoting import surprise
from gymctl.config.server_classes.server_class import ServerClasses
from gymctl.config.tree.masking import is_secret
from gymctl.config.tree.origins import Path, dotted, leaves, place_of
from gymctl.contract.servers import KINDS

_HEAD = ("host", "port", "masked")


def of(config: Config) -> list[str]:
    """One line for each thing to look at, with its place. Reads the servers' files, as `check` may."""
    classes = ServerClasses(config.search_roots)
    return [
        *_foreign_keys(config, classes),
        *_near_settings(config),
        *_head_keys(config),
        *_near_kinds(config),
        *_surprises(config, classes),
    ]


def _foreign_keys(config: Config, classes: ServerClasses) -> Iterator[str]:
    for block in config.servers.values():
        declared = near_keys.known(block, classes.of(block))
        for key in block.settings if declared else ():
            if key not in declared:
                yield near_keys.undeclared(block, key, declared, _place(config, (*block.path, key)))


def _near_settings(config: Config) -> Iterator[str]:
    def place(key: str) -> str:
        return _place(config, (key,)).strip(" ()")

    return slips.near_settings(config.document, config.servers, lambda: _texts(config), place)


def _head_keys(config: Config) -> Iterator[str]:
    """What the head does not know."""
    head = config.document.get("head_server")
    for key in head if isinstance(head, Mapping) else ():
        if key not in _HEAD:
            near = suggestion(str(key), _HEAD, noun="allowed")
            yield f"`head_server.{key}` means nothing{_place(config, ('head_server', key))}; {near}"


def _near_kinds(config: Config) -> Iterator[str]:
    """`resource_servers:` makes a block of settings, not a server."""
    for name, block in config.document.items():
        if not isinstance(block, Mapping) or name in config.servers or name in NAMES:
            continue
        for key in block:
            near = difflib.get_close_matches(str(key), KINDS, n=1, cutoff=slips.NEAR)
            if near and key not in KINDS:
                meant = f"{_place(config, (name, key))}; did you mean `{near[0]}`?"
                yield f"`{name}` starts no server: `{key}` is no server type{meant}"


def _surprises(config: Config, classes: ServerClasses) -> Iterator[str]:
    for path, value in leaves(config.document):
        origin = config.origins.get(dotted(path))
        if origin is None or origin.raw is None or isinstance(value, str):
            continue
        meaning = surprise(origin.raw, value)
        if meaning is None or _is_meant(origin.raw, value, _declared(config, path, classes)):
            continue
        shown = "" if is_secret(path[-1]) else f" `{origin.raw}` is {meaning} to YAML"
        yield f"`{dotted(path)}`:{shown} ({origin}); put quotes around it if text is meant"


def _declared(config: Config, path: Path, classes: ServerClasses) -> str:
    """The annotation of the field that a value lands in; empty when nothing declares it."""
    if len(path) == 1:
        field = GlobalKeys.model_fields.get(str(path[0]))
        return "" if field is None else str(field.annotation)
    block = config.servers.get(str(path[0]))
    if block is None or len(path) < 4:
        return ""
    fields = classes.of(block).fields.fields.values()
    declared = next((item.annotation for item in fields if item.key == path[3]), None)
    generic = generic_block(block.kind).model_fields.get(str(path[3]))
    return declared or ("" if generic is None else str(generic.annotation))


def _is_meant(raw: str, value: Any, annotation: str) -> bool:
    """Does the field take such a value: `no` a boolean, `1_000` a number? `0012` stays doubtful."""
    if isinstance(value, bool):
        return re.search(r"\bbool\b|StrictBool", annotation) is not None
    is_number = re.search(r"\b(int|float|\w*Int|\w*Float)\b", annotation) is not None
    return is_number and "_" in raw and ":" not in raw and not raw.lstrip("+-").startswith("0")


def _texts(config: Config) -> Iterable[str]:
    for writes in config.writers.values():
        yield from (write.said for write in writes if isinstance(write.said, str) and "${" in write.said)


def _place(config: Config, path: Path) -> str:
    """` (file:line)` of a value or of the first one below it."""
    place = place_of(config.origins, dotted(path))
    return "" if place is None else f" ({place})"
