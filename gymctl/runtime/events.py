"""What the engine says while a project runs: deaths and memory kills, as they happen."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import docker.errors
import requests.exceptions

from gymctl.compose.render import PROJECT_LABEL, SERVER_LABEL
from gymctl.engine import Engine

RECONNECT_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Event:
    action: str
    """die, oom"""
    container: str
    server: str
    exit_code: int | None


async def follow(engine: Engine, project: str, since: int) -> AsyncGenerator[Event]:
    """Events from `since` on (seconds), without end: an engine that went away is asked again."""
    while True:
        began = int(time.time())
        async with contextlib.aclosing(_stream(engine, project, since)) as stream:
            async for row in stream:
                yield _event(row)
        since = began
        await asyncio.sleep(RECONNECT_SECONDS)


async def _stream(engine: Engine, project: str, since: int) -> AsyncGenerator[dict[str, Any]]:
    """One connection, read by a thread: docker-py blocks."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
    filters = {"type": "container", "event": ["die", "oom"], "label": f"{PROJECT_LABEL}={project}"}
    try:
        rows = await asyncio.to_thread(engine.api.api.events, since=since, filters=filters, decode=True)
    except (docker.errors.DockerException, requests.exceptions.RequestException):
        return

    def read() -> None:
        # The loop may be closed by the time the last event arrives; nobody waits for it then.
        with contextlib.suppress(RuntimeError):
            try:
                for row in rows:
                    loop.call_soon_threadsafe(queue.put_nowait, row)
            finally:
                loop.call_soon_threadsafe(queue.put_nowait, None)

    threading.Thread(target=read, name=f"events of {project}", daemon=True).start()
    try:
        while (row := await queue.get()) is not None:
            yield row
    finally:
        rows.close()


def _event(row: dict[str, Any]) -> Event:
    actor = row.get("Actor", {})
    attributes = actor.get("Attributes", {})
    code = attributes.get("exitCode")
    return Event(
        action=str(row.get("Action", "")),
        container=str(actor.get("ID", "")),
        server=str(attributes.get(SERVER_LABEL, "")),
        exit_code=int(code) if code is not None and str(code).lstrip("-").isdigit() else None,
    )
