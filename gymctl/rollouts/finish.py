"""After the last rollout: one `/aggregate_metrics` call per environment server, and the aggregate file."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import orjson

from gymctl.contract.rollout import ENVIRONMENT_SERVER, OUTCOME, Row, rollout_key
from gymctl.contract.servers import ServerTable
from gymctl.errors import ServerError
from gymctl.rollouts.encoding import dumps
from gymctl.transport import Transport, TransportError

_STRIPPED = frozenset(
    {
        "response",
        "responses_create_params",
        "ng_agent_observations",
        "ng_model_call_capture",
        "ng_trajectory",
        OUTCOME,
    }
)
_KEPT_OF_RESPONSE = ("usage", "incomplete_details")
_MINUTES = 600.0

Lines = dict[str, list[tuple[tuple[int, int], bytes]]]


async def aggregate_metrics(
    transport: Transport,
    table: ServerTable,
    records: Iterable[Row],
    agents: Mapping[str, Collection[str]],
) -> list[dict[str, Any]]:
    """Ask each environment server for the metrics of its records: the entries of the aggregate file.

    `agents` maps the run's environment servers to the agents of their rows. Raises ServerError.
    """
    by_server = _stripped_by_server(records)
    return [
        _entry(_label(server, agents), server, await _ask(transport, table[server].url, server, lines))
        for server, lines in by_server.items()
    ]


def document(entries: list[dict[str, Any]]) -> bytes:
    """The text of `x_aggregate_metrics.json`."""
    try:
        return orjson.dumps(entries, option=orjson.OPT_INDENT_2) + b"\n"
    except (TypeError, orjson.JSONEncodeError):
        return json.dumps(entries, indent=2).encode() + b"\n"


def strip(record: Row) -> Row:
    """What aggregation needs of a record: everything but the conversation."""
    kept = {key: value for key, value in record.items() if key not in _STRIPPED}
    response = record.get("response")
    if isinstance(response, dict):
        parts = {key: response[key] for key in _KEPT_OF_RESPONSE if response.get(key) is not None}
        if parts:
            kept["response"] = parts
    return kept


def _stripped_by_server(records: Iterable[Row]) -> Lines:
    """Encoded at once: bytes take a fraction of the memory of the rows. Ordered by task, then rollout."""
    found: Lines = {}
    for record in records:
        lines = found.setdefault(str(record[ENVIRONMENT_SERVER]), [])
        lines.append((rollout_key(record), dumps(strip(record))))
    for lines in found.values():
        lines.sort(key=lambda item: item[0])
    return found


async def _ask(
    transport: Transport, url: str, server: str, lines: list[tuple[tuple[int, int], bytes]]
) -> dict[str, Any]:
    body = b'{"verify_responses":[' + b",".join(line for _, line in lines) + b"]}"
    try:
        answer = await transport.call(
            "POST", f"{url}/aggregate_metrics", body, timeout=_MINUTES, retry_seconds=10.0
        )
        value = None if answer.is_error else answer.json()
    except TransportError as error:
        raise _failed(server, url, error.detail) from error
    except ValueError as error:
        raise _failed(server, url, f"the answer is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise _failed(server, url, f"{answer.status} {answer.body[:300].decode('utf-8', 'replace')}")
    return value


def _failed(server: str, url: str, detail: str) -> ServerError:
    return ServerError(
        f"`{server}` could not compute the aggregate metrics",
        where=f"{url}/aggregate_metrics",
        details=[detail],
        hint="the rollouts are complete in their file",
    )


def _label(server: str, agents: Mapping[str, Collection[str]]) -> str:
    """The agent's name when it means exactly one of the run's servers, else the server id."""
    own = agents.get(server, ())
    if len(own) != 1:
        return server
    (agent,) = own
    is_shared = any(agent in others for name, others in agents.items() if name != server)
    return server if is_shared else agent


def _entry(label: str, server: str, answer: Mapping[str, Any]) -> dict[str, Any]:
    entry: dict[str, Any] = {"agent_ref": {"name": label}, ENVIRONMENT_SERVER: server}
    for key in ("agent_metrics", "key_metrics"):
        entry[key] = answer.get(key, {})
    for key in ("group_level_metrics", "repeat_level_metrics"):
        entry[key] = answer.get(key, [])
    if answer.get("perf_summary") is not None:
        entry["perf_summary"] = answer["perf_summary"]
    return entry
