"""What a handler refuses by raising: an explicit HTTP error, or a body that does not fit (CONTRACT 3.4)."""

from __future__ import annotations

import logging
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from gymctl.servers.stack.wire import InvalidBody, Json, dumps, loads

logger = logging.getLogger("gymctl.server")

_LOGGED_BYTES = 4096
_LOGGED_ERRORS = 20
_GRANTED = ("cookies", "headers")


async def answer_refused(request: Request, error: Exception) -> Response:
    """An explicit HTTP error, an unknown path among them (CONTRACT 3.4)."""
    assert isinstance(error, HTTPException)
    return Json({"detail": error.detail}, status_code=error.status_code, headers=error.headers)


async def answer_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, InvalidBody)
    errors = [_without_exceptions(item) for item in error.errors]
    body = await request.body()
    logger.warning(
        "422 %s %s: %s; body: %.*r",
        request.method,
        request.url.path,
        [
            {key: item[key] for key in ("type", "loc", "msg") if key in item}
            for item in errors[:_LOGGED_ERRORS]
        ],
        _LOGGED_BYTES,
        _loggable(body)[:_LOGGED_BYTES],
    )
    return Json({"detail": errors}, status_code=422)


def _loggable(body: bytes) -> bytes:
    """The body without the cookies and headers that a grant of tools hands on: who reads the log must not
    be able to use another's session."""
    if not any(b'"%s"' % key.encode() in body for key in _GRANTED):
        return body
    try:
        return dumps(_masked(loads(body)))
    except (ValueError, RecursionError):
        return b"%d bytes that are not readable as JSON" % len(body)


def _masked(value: Any, is_secret: bool = False) -> Any:
    if isinstance(value, dict):
        return {key: _masked(entry, is_secret or key in _GRANTED) for key, entry in value.items()}
    if isinstance(value, list):
        return [_masked(entry, is_secret) for entry in value]
    return "****" if is_secret and value is not None else value


def _without_exceptions(item: dict[str, Any]) -> dict[str, Any]:
    """Pydantic puts the exception of a failed validator into `ctx`; JSON takes its text."""
    context = item.get("ctx")
    if not isinstance(context, dict):
        return item
    texts = {key: str(value) if isinstance(value, Exception) else value for key, value in context.items()}
    return {**item, "ctx": texts}
