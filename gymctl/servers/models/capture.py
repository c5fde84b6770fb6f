"""Model calls on record: what was asked, what was answered, when, and what went wrong (CONTRACT 15.1).

A layer that is there only when calls are recorded. It stands inside the error border, where a failure is
still an exception, and lets an answer's last bytes go only when the call's line is on disk.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gymctl.contract.captures import CALL_ID_HEADER, CAPTURE_SEGMENT, CaptureFiles
from gymctl.contract.responses import JsonObject
from gymctl.servers.models.capture_files import append, mark_incomplete
from gymctl.servers.models.streams import Work
from gymctl.servers.stack.client import InnerServerError
from gymctl.servers.stack.prefix import PREFIX_KEY
from gymctl.servers.stack.unwinding import to_the_end
from gymctl.servers.stack.wire import dumps, loads
from gymctl.transport import TransportError

logger = logging.getLogger("gymctl.server")

DIALECTS = {"/v1/responses": "responses", "/v1/chat/completions": "chat", "/v1/messages": "messages"}
OVERFLOW = "context_length_exceeded"
_SESSION_HEADER = b"x-session-id"
_BY_STATUS = {401: "auth", 403: "auth", 404: "not_found", 408: "timeout", 429: "rate_limit", 504: "timeout"}


@dataclass(slots=True)
class Notes:
    """What only the handler knows of its call."""

    response: JsonObject | None = None
    """What a stream replays, before it is cut into events."""
    error: BaseException | None = None
    """Why there is nothing to replay."""
    facts: dict[str, Any] = field(default_factory=dict)


_NOTES: ContextVar[Notes | None] = ContextVar("gymctl_model_call", default=None)


def watched(work: Work) -> Work:
    """The work behind a stream, whose result goes on record; `work` itself when nothing is recorded."""
    notes = _NOTES.get()
    return work if notes is None else _noted(work, notes)


async def _noted(work: Work, notes: Notes) -> JsonObject:
    try:
        notes.response = await work
    except BaseException as error:
        notes.error = error
        raise
    return notes.response


def answered_here(reason: str, *, upstream_status: int | None = None) -> None:
    """For model servers: the answer to this call is their own, not the upstream's. upstream_status: of the
    refusal that led to it; None: the upstream was not asked."""
    notes = _NOTES.get()
    if notes is None:
        return
    notes.facts |= {
        "upstream_attempted": upstream_status is not None,
        "response_source": "local",
        "upstream_status_code": upstream_status,
        "local_response_reason": reason,
    }


Finished = Callable[["Call"], None]


class CallCapture:
    """The layer. folder: of the recorded calls, None for none. tokens: what to do with calls whose path asks
    for their tokens."""

    def __init__(self, app: ASGIApp, model: str, folder: Path | None, tokens: Finished | None = None) -> None:
        self._app = app
        self._model = model
        self._folder = folder
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        prefix = scope.get(PREFIX_KEY)
        dialect = DIALECTS.get(scope["path"]) if prefix is not None and scope["method"] == "POST" else None
        if prefix is None or dialect is None:
            return await self._app(scope, receive, send)
        call = Call(scope, prefix.split("/")[2], dialect, self._model, send)
        finish: list[Finished] = []
        if self._tokens is not None and prefix.endswith(f"/{CAPTURE_SEGMENT}"):
            finish.append(self._tokens)
        if self._folder is not None:
            finish.append(_Recorder(self._folder))
        if not finish:
            return await self._app(scope, receive, send)
        call.finish = finish
        token = _NOTES.set(call.notes)
        try:
            await self._app(scope, call.reading(receive), call.sending)
        except BaseException as error:
            call.failed(error)
            await to_the_end(call.finished())
            raise
        finally:
            _NOTES.reset(token)


class Call:
    """One model call on its way through the server."""

    def __init__(self, scope: Scope, rollout: str, dialect: str, model: str, send: Send) -> None:
        self.rollout = rollout
        self.dialect = dialect
        self.model = model
        self.id = uuid.uuid4().hex
        self.notes = Notes()
        self.finish: list[Finished] = []
        self.status: int | None = None
        self.request = b""
        self.session = next((v.decode("latin-1") for k, v in scope["headers"] if k == _SESSION_HEADER), None)
        self.started_at = time.time()
        self.completed_at = self.started_at
        self.first_seconds: float | None = None
        self.seconds = 0.0
        self._began = time.perf_counter()
        self._send = send
        self._is_stream = False
        self._parts: list[bytes] = []
        self._is_finished = False

    def reading(self, receive: Receive) -> Receive:
        async def reading() -> Message:
            message = await receive()
            if message["type"] == "http.request":
                self.request += message.get("body", b"")
            return message

        return reading

    async def sending(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [*message.get("headers", ()), (CALL_ID_HEADER.encode(), self.id.encode())]
            self._is_stream = any(
                name == b"content-type" and value.startswith(b"text/event-stream") for name, value in headers
            )
            await self._send({**message, "headers": headers})
            return
        body = message.get("body", b"")
        if self.first_seconds is None and body:
            self.first_seconds = time.perf_counter() - self._began
        self._parts.append(body)
        if not message.get("more_body"):
            await to_the_end(self.finished())
        await self._send(message)

    def failed(self, error: BaseException) -> None:
        """The error border answers in our place."""
        self.notes.error = self.notes.error or error
        if self.status is None and isinstance(error, Exception):
            self.status = 500

    async def finished(self) -> None:
        """Put the call on record, with everything that will be known of it. Once; never raises."""
        if self._is_finished:
            return
        self._is_finished = True
        self.completed_at = time.time()
        self.seconds = time.perf_counter() - self._began
        await asyncio.to_thread(self._finish_now)

    def _finish_now(self) -> None:
        for finish in self.finish:
            try:
                finish(self)
            except Exception:
                logger.warning("a model call of rollout %s is not on record", self.rollout, exc_info=True)

    @property
    def body(self) -> bytes:
        """What was sent so far."""
        return b"".join(self._parts)

    def response(self) -> JsonObject | None:
        """The answer as an object; None when there is none, or none that can be read."""
        if self._is_stream or self.notes.response is not None:
            return self.notes.response
        return _object(self.body)

    def line(self) -> JsonObject:
        """What goes on record."""
        response, request = self.response(), _object(self.request)
        line: JsonObject = {
            "model_call_id": self.id,
            "dialect": self.dialect,
            "model_ref": {"type": "responses_api_models", "name": self.model},
            "started_at": self.started_at,
            "completed_at": self.completed_at,
            "latency_ms": self.seconds * 1000,
            "latency_ttft_ms": self._first_milliseconds(),
            "status_code": self.status,
            "error_category": self._category(response),
            "request": request,
            "response": response,
        }
        if self.session is not None:
            line["client_session_id"] = self.session
        if request is None and self.request:
            line["request_raw"] = self.request.decode("utf-8", "replace")
        if response is None and self._parts:
            line["response_raw"] = self.body.decode("utf-8", "replace")
        return {**line, **self._execution()}

    def _first_milliseconds(self) -> float | None:
        """Of a stream; for a plain answer the first byte says nothing that the last does not."""
        return None if self.first_seconds is None or not self._is_stream else self.first_seconds * 1000

    def _execution(self) -> JsonObject:
        error = self.notes.error
        if isinstance(error, InnerServerError):
            known = {"upstream_attempted": True, "upstream_status_code": error.answer.status}
        elif isinstance(error, TransportError):
            known = {"upstream_attempted": True}
        elif self.status == 422:
            known = {"upstream_attempted": False, "response_source": "local"}
            known["local_response_reason"] = "invalid_request"
        elif error is None and self.status is not None and self.status < 400:
            known = {"upstream_attempted": True, "response_source": "upstream"}
        else:
            known = {}
        return known | {key: value for key, value in self.notes.facts.items() if value is not None}

    def _category(self, response: JsonObject | None) -> str | None:
        if self.notes.facts.get("local_response_reason") == OVERFLOW:
            return OVERFLOW
        if self.notes.error is not None:
            return _category_of(self.notes.error)
        if self.status is not None and self.status >= 400:
            return by_status(self.status)
        if self._is_stream and response is not None and response.get("status") in ("incomplete", "failed"):
            return "incomplete" if response["status"] == "incomplete" else "upstream_error"
        if response is None:
            return "stream_truncated" if self._is_stream else "capture_parse_error"
        return None


def by_status(status: int) -> str:
    default = "upstream_error" if status >= 500 else "client_error"
    return _BY_STATUS.get(status, default)


def _category_of(error: BaseException) -> str:
    """The upstream's own status says more than the 500 that it becomes."""
    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    if isinstance(error, InnerServerError):
        return by_status(error.answer.status)
    if isinstance(error, HTTPException):
        return by_status(error.status_code)
    if isinstance(error, TimeoutError) or getattr(error, "kind", None) == "transport_timeout":
        return "timeout"
    return "connection" if isinstance(error, TransportError) else "exception"


def _object(body: bytes) -> JsonObject | None:
    try:
        value = loads(body)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


class _Recorder:
    """Appends the line; where that fails, leaves the mark that one is missing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, call: Call) -> None:
        files = CaptureFiles.of(self._folder, call.rollout)
        if files is None:
            return
        try:
            append(files.calls, dumps(call.line()))
        except BaseException:
            mark_incomplete(files.calls_incomplete)
            raise
