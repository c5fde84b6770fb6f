"""`gym env …`: servers and their configuration."""

from __future__ import annotations

from gymctl.cli.peer.flags import parse, selectors
from gymctl.errors import UsageError


def start(command: str, arguments: list[str]) -> list[str]:
    known, tokens = parse(command, arguments)
    return ["up", "--help"] if known.help else ["up", *selectors(known), *tokens]


def resolve(command: str, arguments: list[str]) -> list[str]:
    known, tokens = parse(command, arguments)
    return ["config", "show", *(["--help"] if known.help else [*selectors(known), *tokens])]


def schema(command: str, arguments: list[str]) -> list[str]:
    known, tokens = parse(command, arguments)
    if known.help:
        return ["dataset", "schema", "--help"]
    if len(known.resources_server) != 1 or tokens:
        raise UsageError("`gym env schema` needs one --resources-server", where="--resources-server")
    roots = [part for folder in known.search_dir for part in ("--search-dir", folder)]
    return ["dataset", "schema", *known.resources_server, *roots]
