"""What a server of NeMo Gym's own is told: the whole configuration as text, as its library expects it (D13).

Beside its own block it finds the addresses of all servers, and the global keys. Secrets are masked but for
those of its block, of top-level entries that its block names (`sandbox_provider: daytona`), and of top-level
keys that its code spells out (`hf_token`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from gymctl.config.model import ServerBlock
from gymctl.config.tree.masking import mask
from gymctl.config.tree.writing import as_yaml
from gymctl.contract.servers import KINDS, Address
from gymctl.images.context import server_context

DEFAULTS: Mapping[str, Any] = {"dry_run": False, "disallowed_ports": []}
"""Keys that NeMo Gym's command fills in and its servers read without looking whether they are there."""

_HELPERS: Mapping[str, str] = {"mlflow_tracking_token": "gitlab_utils"}
"""Keys with a secret that a module of NeMo Gym reads for whoever imports it."""
_INTERPOLATION = re.compile(r"(\\*)\$\{")


def text(document: Mapping[str, Any], block: ServerBlock, bind: Address, secrets: Collection[str]) -> str:
    """The YAML text for one server; `document` is resolved, with addresses that the server can dial, and
    `bind` is where it listens. Pure but for the server's own code, which is searched for names of keys."""
    open_keys = {block.name, *_named(block.settings, document), *_spelled(block.folder, document)}
    told = {
        key: value if key in open_keys else mask({key: value}, secrets)[key]
        for key, value in {**DEFAULTS, **document}.items()
    }
    own = document[block.name]
    settings = {**own[block.kind][block.implementation], "host": bind.host, "port": bind.port}
    told[block.name] = {**own, block.kind: {**own[block.kind], block.implementation: settings}}
    return as_yaml(_escaped(told), width=1000)


def script_text(document: Mapping[str, Any], code: str, secrets: Collection[str]) -> str:
    """The YAML text for a prepare script: secrets are masked but for top-level keys that its code names, in
    whatever case (`get_hf_token`, `HF_TOKEN`)."""
    code = code.lower()
    document = {key: value for key, value in document.items() if key != "build"}
    names = [key for key in document if key.lower() in code or _HELPERS.get(key, key) in code]
    told = {
        key: value if key in names and isinstance(value, str) else mask({key: value}, secrets)[key]
        for key, value in {**DEFAULTS, **document}.items()
    }
    return as_yaml(_escaped(told), width=1000)


def _named(value: Any, document: Mapping[str, Any]) -> Iterator[str]:
    """Top-level entries that a block names, but for servers: what it knows of those are addresses."""
    if isinstance(value, Mapping):
        if "type" not in value or "name" not in value:
            for child in value.values():
                yield from _named(child, document)
    elif isinstance(value, list):
        for child in value:
            yield from _named(child, document)
    elif isinstance(value, str) and value in document and not _is_server(document[value]):
        yield value


def _is_server(entry: Any) -> bool:
    return isinstance(entry, Mapping) and any(kind in entry for kind in KINDS)


def _spelled(folder: Path, document: Mapping[str, Any]) -> Iterator[str]:
    """Top-level keys with a secret that the server's code spells as a text of its own; packages of a virtual
    environment that NeMo Gym made in the folder are not the server's code."""
    secret = [
        key for key, value in document.items() if isinstance(value, str) and mask({key: value})[key] != value
    ]
    if not secret or not folder.is_dir():
        return
    spelled = re.compile("|".join(rf"(?<=[\"\']){re.escape(key)}(?=[\"\'])" for key in secret))
    for place, file in server_context(folder).files.items():
        if place.endswith(".py"):
            yield from spelled.findall(file.read_text("utf-8", "replace"))


def _escaped(value: Any) -> Any:
    """OmegaConf reads the text again: `${` in a value is a text here, not a reference."""
    if isinstance(value, Mapping):
        return {key: _escaped(child) for key, child in value.items()}
    if isinstance(value, list):
        return [_escaped(child) for child in value]
    if isinstance(value, str) and "${" in value:
        return _INTERPOLATION.sub(lambda match: f"{match[1] * 2}\\${{", value)
    return value
