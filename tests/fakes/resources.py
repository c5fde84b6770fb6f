"""Resources servers of a test's own over HTTP, and what is sent to them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fakes.contract import cookies_of, sending
from fakes.exchanges import call, message, reply

from gymctl.servers import (
    ResourcesServer,
)
from gymctl.servers.inprocess import make_part, serving
from gymctl.servers.stack.app import assemble

PARAMS: dict[str, Any] = {"input": "Weather?"}
ROW: dict[str, Any] = {"responses_create_params": PARAMS}
SAID: dict[str, Any] = reply(call(), message("Oslo has snow at -4 degrees.")).body
EPISODE = {"rollout_id": "0-0"}


def typed(session_id: str, **data: Any) -> dict[str, Any]:
    return {
        "resources_session_id": session_id,
        "episode_id": EPISODE,
        "task_id": {"taskset": "w", "task_id": "0"},
        "task_data": data,
    }


def closing(session_id: str) -> dict[str, Any]:
    return {"resources_session_id": session_id, "episode_id": EPISODE}


@asynccontextmanager
async def served(
    server: type[ResourcesServer], neighbours: dict[str, str] | None = None, **settings: Any
) -> AsyncIterator[tuple[str, ResourcesServer]]:
    """A server of our own, and the object behind it."""
    made = server(make_part("mine", "resources_servers", "mine", settings, neighbours))
    async with serving(assemble(made)) as url:
        yield url, made


async def post(http: Any, url: str, body: Any, jar: Any = None, **headers: str) -> tuple[int, Any, Any]:
    """Status, JSON and cookies of the answer."""
    more = {name.replace("_", "-"): value for name, value in headers.items()}
    async with http.post(url, json=body, headers={**(sending(jar) if jar else {}), **more}) as answer:
        return answer.status, await answer.json(), cookies_of(answer)
