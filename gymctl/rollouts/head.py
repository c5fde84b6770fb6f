"""Ask a running head for its server table (`--no-serve`): a JSON string that holds YAML (CONTRACT 2.1)."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import yaml

from gymctl.contract.servers import ServerTable
from gymctl.errors import PrerequisiteError, ServerError
from gymctl.transport import Transport, TransportError

_SECONDS = 30.0
_PATH = "/global_config_dict_yaml"
_HERE = ("127.0.0.1", "localhost", "::1", "0.0.0.0")


async def server_table(transport: Transport, head_url: str) -> ServerTable:
    """The servers of the project whose head answers at `head_url`, at addresses that this side can dial."""
    found = await document(transport, head_url)
    try:
        table = ServerTable.from_document(found)
    except (ValueError, TypeError, AttributeError) as error:
        raise _no_configuration(f"{head_url}{_PATH}", error) from error
    return seen_from_here(table, str(urlsplit(head_url).hostname))


def seen_from_here(table: ServerTable, head_host: str) -> ServerTable:
    """A head on another machine may say `127.0.0.1` of servers that are there, beside it."""
    if head_host in _HERE:
        return table
    servers = {
        name: entry.model_copy(update={"address": entry.address.model_copy(update={"host": head_host})})
        if entry.address.host in _HERE
        else entry
        for name, entry in table.servers.items()
    }
    return ServerTable(servers=servers)


async def document(transport: Transport, head_url: str) -> dict[str, Any]:
    """The configuration that a head serves. Raises PrerequisiteError when nobody answers."""
    url = f"{head_url}{_PATH}"
    try:
        answer = await transport.call("GET", url, timeout=_SECONDS, retry_seconds=0)
    except TransportError as error:
        raise PrerequisiteError(
            "no running project answers",
            where=head_url,
            hint="start one: gymctl up …",
            details=[error.detail],
        ) from error
    try:
        if answer.is_error:
            raise ValueError(f"status {answer.status}")
        found = yaml.safe_load(answer.json())
        if not isinstance(found, dict):
            raise ValueError("no mapping inside")
    except (ValueError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise _no_configuration(url, error) from error
    return found


def _no_configuration(url: str, error: Exception) -> ServerError:
    return ServerError("the head's answer is not a configuration", where=url, details=[str(error)[:300]])
