"""Calls from one server to another, by instance id: bytes or JSON out, bytes back, cookies in hand."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from gymctl.contract.captures import CAPTURE_SEGMENT
from gymctl.contract.part import ServerPart
from gymctl.contract.servers import ServerKind
from gymctl.servers.stack.waits import Waits
from gymctl.servers.stack.wire import dumps
from gymctl.transport import ROLLOUT, Answer, Transport

_MARK = "/ng-rollout/"
_CAPTURABLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_MODEL_PATHS = frozenset({"/v1/responses", "/v1/chat/completions", "/v1/messages"})

MOST_SECONDS = 30
"""Between two questions to a server that is full, whatever it says."""
UNREACHABLE_SECONDS = 60.0
"""A server that refuses connections for so long fails the call: a rollout must not wait for ever."""

logger = logging.getLogger("gymctl.server")


class ServerRef(BaseModel):
    """A field of a server's block that names another server (CONTRACT 1.2)."""

    model_config = ConfigDict(frozen=True)

    type: ServerKind
    name: str


class InnerServerError(Exception):
    """A server we called answered with an error; answered in turn with 500 and the bytes of its body."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status, answer.url, answer.body)
        self.answer = answer

    def __str__(self) -> str:
        return status_text(self.answer)


def status_text(answer: Answer) -> str:
    """`500, message='Internal Server Error', url='http://…'`, the form that failure reasons have."""
    return f"{answer.status}, message={answer.reason!r}, url={answer.url!r}"


def checked(answer: Answer) -> Answer:
    """The answer, unless its status says that the call failed."""
    if answer.is_error:
        raise InnerServerError(answer)
    return answer


class ServerClient:
    """Knows the addresses of the servers that this one may call; resolved once, from the part file."""

    def __init__(self, part: ServerPart) -> None:
        self._urls = {name: address.url for name, address in part.servers.items()}
        self._kinds = {name: address.kind for name, address in part.servers.items()}
        self._marks_tokens = part.name in part.capture.token_agents
        self._is_observed = part.is_observed or self._marks_tokens
        names = {url: name for name, url in self._urls.items()}
        self.waits = Waits(names)
        self.transport = Transport(part.pool, workers=part.workers, names=names)

    def url(self, server: str | ServerRef, path: str = "") -> str:
        name = server if isinstance(server, str) else server.name
        try:
            return self._urls[name] + path
        except KeyError:
            known = ", ".join(sorted(self._urls)) or "none"
            raise LookupError(f"this server may not call `{name}` (known: {known})") from None

    async def call(
        self,
        server: str | ServerRef,
        path: str,
        body: Any = None,
        *,
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
        cookies: Mapping[str, str] | None = None,
        key: str | None = None,
    ) -> Answer:
        """Call `path` of a server. Bytes are sent as they are, anything else as JSON.

        The answer may take any time. Cookies go in explicitly and come back on it. `key` makes a repeat safe
        (see transport).
        """
        if self._is_observed:
            path = self._prefix(server, path) + path
        return await self.call_url(
            self.url(server, path), body, method=method, headers=headers, cookies=cookies, key=key
        )

    async def call_when_admitted(
        self,
        server: str | ServerRef,
        path: str,
        body: Any,
        *,
        cookies: Mapping[str, str] | None = None,
        key: str | None = None,
    ) -> Answer:
        """Like `call`; a server that is full (503 with `Retry-After`) is asked again when it says, for ever:
        a place that is free later is no failure, and the caller's own time limit ends the wait."""
        for attempt in itertools.count(1):
            # A key of its own each time: with the same one the refusal would be the answer for good.
            own = None if key is None else f"{key}-{attempt}"
            answer = await self.call(server, path, body, cookies=cookies, key=own)
            seconds = answer.header("retry-after") if answer.status == 503 else None
            if seconds is None or not seconds.isdecimal():
                return answer
            logger.info("%s is full: asking again in %s s (%.200r)", answer.url, seconds, answer.body)
            await asyncio.sleep(min(max(int(seconds), 1), MOST_SECONDS) * random.uniform(0.5, 1.5))
        raise AssertionError("count() does not end")

    def _prefix(self, server: str | ServerRef, path: str) -> str:
        """The rollout we work for, where the other side reads it from the path (CONTRACT 2.4)."""
        rollout = ROLLOUT.get()
        if rollout is None or _CAPTURABLE.fullmatch(rollout) is None or path.startswith(_MARK):
            return ""
        kind = self._kinds.get(server if isinstance(server, str) else server.name)
        if kind == "responses_api_models" and path in _MODEL_PATHS:
            return f"{_MARK}{rollout}/{CAPTURE_SEGMENT}" if self._marks_tokens else f"{_MARK}{rollout}"
        return f"{_MARK}{rollout}" if kind == "resources_servers" else ""

    async def call_url(
        self,
        url: str,
        body: Any = None,
        *,
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
        cookies: Mapping[str, str] | None = None,
        key: str | None = None,
    ) -> Answer:
        content = body if body is None or isinstance(body, bytes) else dumps(body)
        with self.waits.during(ROLLOUT.get(), url):
            return await self.transport.call(
                method,
                url,
                content,
                headers=headers,
                cookies=cookies,
                key=key,
                retry_seconds=UNREACHABLE_SECONDS,
            )
