"""`GET /gymctl/waiting`: whom a server waits for on behalf of the rollout that `x-gymctl-rollout` names.

    {"server": "policy_model"}      the oldest call that is open for it
    {"server": null}                none: the server works on it itself, or does not know it

Asked for the few slowest rollouts only, from server to server, by who shows how a run goes.
"""

from __future__ import annotations

import orjson

WAITING_PATH = "/gymctl/waiting"


def waits_for(body: bytes) -> str | None:
    """The server that an answer names; None also for what is no such answer."""
    try:
        told = orjson.loads(body)
    except ValueError:
        return None
    named = told.get("server") if isinstance(told, dict) else None
    return named if isinstance(named, str) else None
