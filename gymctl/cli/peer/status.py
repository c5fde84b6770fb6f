"""`gym env status`: the servers that the head knows, each asked whether it answers (CONTRACT 12.3)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gymctl.cli import head_address
from gymctl.cli.output import Console
from gymctl.cli.peer.flags import parse
from gymctl.counts import counted
from gymctl.errors import UsageError

HEAD_SECONDS = 5.0
SERVER_SECONDS = 2.0
_NOBODY = "No NeMo Gym servers found running."


def status(command: str, arguments: list[str]) -> str:
    """The text for stdout; that no head answers is a warning."""
    known, tokens = parse(command, arguments, switches=("--json",))
    if known.help:
        return "usage: gym env status [--json] [+head_server.host=HOST] [+head_server.port=PORT]"
    for token in tokens:
        key = token.lstrip("+").partition("=")[0]
        if key.partition(".")[0] not in head_address.KEYS:
            raise UsageError(f"`gym env status` has no setting `{key}`", where=token)
    import asyncio

    head = head_url(tokens, known.search_dir)
    rows = asyncio.run(_asked(head))
    if rows is None:
        Console().insist(f"warning: no head answers at {head}")
    return json.dumps(rows or [], indent=2) if known.json else _text(rows or [])


def head_url(tokens: list[str], search_dir: list[str]) -> str:
    """Where the head is: by the command line and env.yaml, else that of the only project of this folder, else
    the default. Raises ConfigError."""
    from gymctl.config.sources import Selection
    from gymctl.contract.servers import HEAD_PORT
    from gymctl.runtime import attach

    said = head_address.said(Selection(overrides=tuple(tokens), search_dir=tuple(search_dir)))
    if said is not None:
        return said
    projects = attach.projects()
    return projects[0].head_url if len(projects) == 1 else f"http://127.0.0.1:{HEAD_PORT}"


async def _asked(head: str) -> list[dict[str, Any]] | None:
    """Every server with `status` and `uptime_seconds`; None when no head answers."""
    import asyncio
    import time

    from gymctl.transport import Transport, TransportError

    async with Transport() as transport:
        try:
            answer = await transport.call(
                "GET", f"{head}/server_instances", timeout=HEAD_SECONDS, retry_seconds=0
            )
            listed = [] if answer.is_error else answer.json()
        except (TransportError, ValueError):
            return None
        rows = [row for row in listed if isinstance(row, dict)] if isinstance(listed, list) else []
        states = await asyncio.gather(*(_state(transport, row) for row in rows))
    now = time.time()
    return [
        {**row, "status": state, "uptime_seconds": _uptime(row, now)}
        for row, state in zip(rows, states, strict=True)
    ]


async def _state(transport: Any, row: Mapping[str, Any]) -> str:
    """success: any HTTP answer."""
    from gymctl.transport import TransportError

    try:
        await transport.call("GET", f"{row.get('url')}/", timeout=SERVER_SECONDS, retry_seconds=0)
    except TransportError as error:
        return "timeout" if error.kind == "transport_timeout" else "connection_error"
    return "success"


def _uptime(row: Mapping[str, Any], now: float) -> float | None:
    start = row.get("start_time")
    return round(now - start, 3) if isinstance(start, int | float) else None


def _text(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return _NOBODY
    lines = []
    for number, row in enumerate(rows, start=1):
        mark = "✓" if row["status"] == "success" else "✗"
        name, kind, implementation = (row.get(key) for key in ("process_name", "server_type", "name"))
        lines.append(f"[{number}] {mark} {name} ({kind}/{implementation})  {row.get('url')}")
    healthy = sum(row["status"] == "success" for row in rows)
    counts = f"{healthy} healthy, {len(rows) - healthy} unhealthy"
    return "\n".join([*lines, "", f"{counted(len(rows), 'server')} found ({counts})"])
