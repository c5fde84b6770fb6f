"""What agents do with a model server: ask it, with the conversation so far."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from gymctl.servers.agents.server import Turn
from gymctl.servers.stack.client import ServerClient, ServerRef, checked


async def ask(
    client: ServerClient, model: ServerRef, params: Mapping[str, Any], turn: Turn
) -> dict[str, Any]:
    """The model's Response; its cookies stay with the turn. Raises when it is an error, or no Response."""
    started_at = 0.0 if turn.observed is None else time.time()
    answer = checked(
        await client.call(model, f"{turn.prefix}/v1/responses", params, cookies=turn.model_cookies)
    )
    turn.model_cookies.update(answer.cookies)
    response = answer.json()
    if not isinstance(response, dict) or not isinstance(response.get("output"), list):
        raise ValueError(f"the model server's answer is not a Response: {answer.body[:500]!r}")
    if turn.observed is not None:
        turn.observed.asked(model, params, started_at, answer, response)
    return response


def conversation_of(params: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The input as items; a new list."""
    given = params["input"]
    return [{"role": "user", "content": given}] if isinstance(given, str) else list(given)
