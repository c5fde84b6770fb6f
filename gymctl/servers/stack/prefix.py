"""`/ng-rollout/<id>/…`: the rollout a call belongs to, taken off the path before routing (CONTRACT 3.3)."""

from __future__ import annotations

import re
from enum import Enum

from starlette.types import ASGIApp, Receive, Scope, Send

from gymctl.contract.captures import CAPTURE_SEGMENT
from gymctl.transport import ROLLOUT, ROLLOUT_HEADER

_ROLLOUT_HEADER = ROLLOUT_HEADER.encode()
_MARK = "/ng-rollout/"
PREFIX_KEY = "gymctl.prefix"
"""Scope key of the prefix that was taken off, decoded; an agent puts it before its model calls."""


class PrefixRule(Enum):
    """Which paths may carry the prefix, by kind of server; group 1 is the prefix, 2 the id, 3 the rest."""

    NONE = None
    ANY_PATH = re.compile(rf"({_MARK}([A-Za-z0-9][A-Za-z0-9._-]*))(/.*)", re.DOTALL)
    ANY_PATH_AND_CAPTURE = re.compile(rf"({_MARK}([^/]+)(?:/{CAPTURE_SEGMENT})?)(/.*)", re.DOTALL)
    RESPONSES_ONLY = re.compile(rf"({_MARK}([^/]+)(?:/{CAPTURE_SEGMENT})?)(/v1/responses)")


class RolloutPrefix:
    """Strips the prefix and notes the rollout for log lines and for the calls made on its behalf."""

    def __init__(self, app: ASGIApp, rule: PrefixRule) -> None:
        self._app = app
        self._pattern = rule.value

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        rollout = self._strip(scope) or _from_header(scope)
        if rollout is not None:
            # The server runs each request in a task of its own: nothing to reset.
            ROLLOUT.set(rollout)
        return await self._app(scope, receive, send)

    def _strip(self, scope: Scope) -> str | None:
        path: str = scope["path"]
        if self._pattern is None or not path.startswith(_MARK):
            return None
        match = self._pattern.fullmatch(path)
        if match is None:
            return None
        scope[PREFIX_KEY], rollout, scope["path"] = match.groups()
        scope["raw_path"] = scope["path"].encode()
        return rollout


def _from_header(scope: Scope) -> str | None:
    for name, value in scope["headers"]:
        if name == _ROLLOUT_HEADER:
            return value.decode("latin-1")
    return None
