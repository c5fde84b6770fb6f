"""Where a handler's failure becomes an answer (CONTRACT 3.4), and where a caller that left ends the work.

The body is read before the handler runs, so that afterwards only one thing can still arrive: the news that
the caller has gone. A request that is answered quickly never pays for listening to it; after `PATIENCE` a
single small task does, and cancels the handler when the news comes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from types import TracebackType
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gymctl.contract.retry_after import RETRY_AFTER
from gymctl.servers.stack.client import InnerServerError
from gymctl.servers.stack.idempotency import TakenBack
from gymctl.servers.stack.wire import dumps
from gymctl.transport import FAILED_CALL_HEADER, TAKEN_BACK_HEADER, TransportError

logger = logging.getLogger("gymctl.server")

_LAYERS = (
    "/starlette/",
    *(f"/servers/stack/{layer}.py" for layer in ("border", "routing", "idempotency", "unwinding")),
)

PATIENCE = 0.05
"""Seconds a request may run before we start to watch whether its caller is still there."""


class ErrorBorder:
    def __init__(self, app: ASGIApp, server: str, model: str | None = None) -> None:
        """server: `<Class>___<instance id>`, as it is named in error bodies. model: the instance id of a
        model server, which answers for whatever is behind it."""
        self._app = app
        self._server = server
        self._model = model

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        body = await read_body(receive)
        if body is None:
            return None
        answer = _Sender(send)
        caller = _Caller(receive, answer)
        try:
            await self._app(scope, _Replay(body, receive), answer)
        except asyncio.CancelledError:
            # Also when the server stops: nobody above waits for this, and the caller may still listen.
            cause = "499: the caller left" if caller.is_gone else "request cancelled"
            logger.warning("%s %s: %s", scope["method"], scope["path"], cause)
            await answer.fail("Request was cancelled")
        except Exception as error:  # noqa: BLE001 - the border: every failure becomes an answer
            await self._answer_error(answer, scope, _only(error))
        except (SystemExit, BaseExceptionGroup):  # code that a handler runs may call exit(); the server stays
            logger.exception("%s %s failed", scope["method"], scope["path"])
            await answer.fail("An unknown error occurred")
        finally:
            caller.forget()

    async def _answer_error(self, answer: _Sender, scope: Scope, error: Exception) -> None:
        text = told(error, scope, self._server)
        await answer.fail(
            text,
            {
                FAILED_CALL_HEADER: failed_call(error, self._model),
                RETRY_AFTER: retry_after(error),
                TAKEN_BACK_HEADER: "1" if isinstance(error, TakenBack) else None,
            },
        )


def told(error: BaseException, scope: Scope, server: str) -> str:
    """What a caller is told of a handler's failure (CONTRACT 3.4); the log is told more."""
    if isinstance(error, InnerServerError):
        logger.error("%s %s: %s: %.2000r", scope["method"], scope["path"], error, error.answer.body)
        return f"Hit an exception in {server} calling an inner server: {error.answer.body!r}"
    if isinstance(error, TakenBack):  # of an evaluation that was killed; no fault of this server
        logger.warning("%s %s: %s", scope["method"], scope["path"], error)
        return repr(error)
    trace = (type(error), error, _own_frames(error.__traceback__))
    logger.error("%s %s failed", scope["method"], scope["path"], exc_info=trace)
    return repr(error)


def failed_call(error: BaseException, model: str | None = None) -> str | None:
    """`<host>/<path> <status or transport kind>` of the call that failed, the innermost one that is known:
    the collector reads from it whether the model, the verifier or something else is to blame. A model server
    puts its own id before its upstream's host. Never a query or credentials."""
    if isinstance(error, InnerServerError):
        known = error.answer.header(FAILED_CALL_HEADER)
        if known is not None:
            return known
        url, result = urlsplit(error.answer.url), str(error.answer.status)
    elif isinstance(error, TransportError):
        url, result = urlsplit(error.url), error.kind
    else:
        return None
    place = f"{url.netloc.rpartition('@')[2]}{url.path}"
    return f"{model}/{place} {result}" if model is not None else f"{place} {result}"


def retry_after(error: BaseException) -> str | None:
    """How long the refused one should wait, as the server that refused has said: handed on to our caller."""
    text = error.answer.header(RETRY_AFTER) if isinstance(error, InnerServerError) else None
    return text if text is not None and text.isascii() and text.isprintable() else None


def failure_headers(error: BaseException) -> dict[str, str]:
    """Both, for an answer that holds a failure and has no status to say so."""
    found = {FAILED_CALL_HEADER: failed_call(error), RETRY_AFTER: retry_after(error)}
    return {
        name: text.encode("ascii", "replace").decode() for name, text in found.items() if text is not None
    }


def _only(error: Exception) -> Exception:
    """The one error inside a TaskGroup's group says more than the group."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _own_frames(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from the handler on; the layers that every request passes tell nothing."""
    own = trace
    while own is not None and any(name in own.tb_frame.f_code.co_filename for name in _LAYERS):
        own = own.tb_next
    return own or trace


async def read_body(receive: Receive) -> bytes | None:
    """The whole body; None when the caller left before it was complete."""
    message = await receive()
    if message["type"] != "http.request":
        return None
    if not message.get("more_body"):
        return message.get("body", b"")
    parts = [message.get("body", b"")]
    while message.get("more_body"):
        message = await receive()
        if message["type"] != "http.request":
            return None
        parts.append(message.get("body", b""))
    return b"".join(parts)


class _Replay:
    """`receive` for the handler: the body that was read, then whatever the connection says."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()
        message: Message = {"type": "http.request", "body": self._body, "more_body": False}
        self._body = None
        return message


class _Sender:
    """`send` that knows whether an answer has begun."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._has_begun = False
        self.is_complete = False

    async def __call__(self, message: Message) -> None:
        self._has_begun = True
        self.is_complete = message["type"] == "http.response.body" and not message.get("more_body")
        await self._send(message)

    async def fail(self, text: str, told: Mapping[str, str | None] | None = None) -> None:
        """500 with a JSON string, and headers; nothing when another answer is already on its way."""
        if self._has_begun:
            return
        body = dumps(text)
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        for name, value in (told or {}).items():
            if value is not None:
                headers.append((name.encode(), value.encode("ascii", "replace")))
        await self._send({"type": "http.response.start", "status": 500, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})


class _Caller:
    """Cancels the current task when the caller goes away; watching begins after `PATIENCE`."""

    def __init__(self, receive: Receive, answer: _Sender) -> None:
        self.is_gone = False
        self._receive = receive
        self._answer = answer
        self._loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        self._handler = task
        self._watch: asyncio.Task[None] | None = None
        self._timer = self._loop.call_later(PATIENCE, self._begin)

    def _begin(self) -> None:
        self._watch = self._loop.create_task(self._listen())

    async def _listen(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if self._answer.is_complete:  # the server says "disconnect" after a complete answer, too
            return
        self.is_gone = True
        self._handler.cancel()

    def forget(self) -> None:
        self._timer.cancel()
        if self._watch is not None:
            self._watch.cancel()
        if self.is_gone:
            self._handler.uncancel()
