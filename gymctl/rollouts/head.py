"""Ask a running head for its server table (`--no-serve`): a JSON string that holds YAML (CONTRACT 2.1)."""

from __future__ import annotations

import yaml

from gymctl.contract.servers import ServerTable
from gymctl.errors import PrerequisiteError, ServerError
from gymctl.transport import Transport, TransportError

_SECONDS = 30.0


async def server_table(transport: Transport, head_url: str) -> ServerTable:
    """The servers of the project whose head answers at `head_url`, at addresses that this side can dial."""
    url = f"{head_url}/global_config_dict_yaml"
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
        document = yaml.safe_load(answer.json())
        if not isinstance(document, dict):
            raise ValueError("no mapping inside")
        return ServerTable.from_document(document)
    except (ValueError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise ServerError(
            "the head's answer is not a configuration", where=url, details=[str(error)[:300]]
        ) from error
