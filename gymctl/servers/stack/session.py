"""The session cookie: `<Class>___<instance id>`, signed, sent again with every answer (CONTRACT 3.2).

    value = base64(json) "." timestamp "." signature        the format of Starlette's SessionMiddleware

Pure ASGI: one dictionary per request, one signature per answer. A cookie that is missing, forged or too old
starts a new session. The JSON of a session holds `session_id` and, on agents, `agent_session_id`.
"""

from __future__ import annotations

import json
import logging
import uuid
from base64 import b64decode, b64encode
from typing import Any

from itsdangerous import BadSignature, SignatureExpired, TimestampSigner
from starlette.types import ASGIApp, Message, Receive, Scope, Send

logger = logging.getLogger("gymctl.server")

MAX_AGE_SECONDS = 14 * 24 * 3600


class SessionCookie:
    """Reads and writes the value of one server's cookie."""

    def __init__(self, name: str, secret: str) -> None:
        self.name = name
        self._prefix = f"{name}=".encode("latin-1")
        # The key that TimestampSigner(secret) would derive again for each signature; cookies stay the same.
        self._signer = TimestampSigner(TimestampSigner(secret).derive_key(), key_derivation="none")
        self._attributes = f"; path=/; Max-Age={MAX_AGE_SECONDS}; httponly; samesite=lax".encode()

    def read(self, scope: Scope) -> dict[str, Any]:
        """The session that the request names, or a new one."""
        for key, line in scope["headers"]:
            if key == b"cookie" and self._prefix in line:
                for pair in line.split(b";"):
                    pair = pair.strip()
                    if pair.startswith(self._prefix):
                        session = self._opened(pair[len(self._prefix) :])
                        if session is not None:
                            return session
        return {"session_id": str(uuid.uuid4())}

    def _opened(self, value: bytes) -> dict[str, Any] | None:
        try:
            session = json.loads(b64decode(self._signer.unsign(value, max_age=MAX_AGE_SECONDS)))
        except SignatureExpired:
            return self._refused("is too old")
        except (BadSignature, ValueError):
            return self._refused("is not signed with this project's key")
        if not isinstance(session, dict) or not isinstance(session.get("session_id"), str):
            return self._refused("holds no session")
        return session

    def _refused(self, reason: str) -> None:
        """Never the value: a cookie in a log is a session for whoever reads it."""
        logger.warning("cookie %s %s; a new session is begun", self.name, reason)

    def value(self, session: dict[str, Any]) -> bytes:
        return self._signer.sign(b64encode(json.dumps(session).encode()))

    def header(self, session: dict[str, Any]) -> tuple[bytes, bytes]:
        return b"set-cookie", self._prefix + self.value(session) + self._attributes


class SessionMiddleware:
    """Puts the session into `scope["session"]` (Starlette's `request.session`) and sends it back signed."""

    def __init__(self, app: ASGIApp, cookie: SessionCookie) -> None:
        self._app = app
        self._cookie = cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        session = self._cookie.read(scope)
        scope["session"] = session

        async def signed(message: Message) -> None:
            if message["type"] == "http.response.start":
                # A new list: an answer that is sent a second time (idempotency) must not collect cookies.
                message["headers"] = [*message.get("headers", ()), self._cookie.header(session)]
            await send(message)

        return await self._app(scope, receive, signed)
