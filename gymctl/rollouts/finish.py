"""After the last rollout: one `/aggregate_metrics` call per environment server, and the aggregate file."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import orjson

from gymctl.contract.rollout import ENVIRONMENT_SERVER
from gymctl.contract.servers import ServerTable
from gymctl.errors import ServerError
from gymctl.rollouts.metric_input import MetricInput
from gymctl.transport import Transport, TransportError

_MINUTES = 600.0


async def aggregate_metrics(
    transport: Transport,
    table: ServerTable,
    found: MetricInput,
    agents: Mapping[str, Collection[str]],
    instead: Mapping[str, str] | None = None,
) -> list[dict[str, Any]]:
    """Ask each environment server for the metrics of its rows: the entries of the aggregate file.

    `agents` maps the run's environment servers to the agents of their rows; `instead`, to a server that is
    asked in its place. Raises ServerError.
    """
    entries: list[dict[str, Any]] = []
    for server, body in await asyncio.to_thread(lambda: list(found.bodies())):
        asked = server if instead is None else instead.get(server, server)
        if asked not in table:
            raise ServerError(
                f"no server is called `{asked}`, where rollouts of this run were made",
                hint="start the project that made them, or one with a server of that name",
            )
        answer = await _ask(transport, table[asked].url, asked, body)
        entries.append(_entry(_label(server, agents), server, answer))
    return entries


def document(entries: list[dict[str, Any]]) -> bytes:
    """The text of `x_aggregate_metrics.json`."""
    try:
        return orjson.dumps(entries, option=orjson.OPT_INDENT_2) + b"\n"
    except (TypeError, orjson.JSONEncodeError):
        return json.dumps(entries, indent=2).encode() + b"\n"


async def _ask(transport: Transport, url: str, server: str, body: Path) -> dict[str, Any]:
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
