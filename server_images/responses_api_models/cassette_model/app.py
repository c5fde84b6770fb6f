"""Model server that records the calls to another one, or plays them back: no model, no key, no network."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Literal

import nearest
from asked import Asked
from counting import Counting, OneWorker, of_server
from pydantic import Field, model_validator
from scrubbing import Scrubber
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from tape import Taken, Tape, key

from gymctl.contract.part import ServerPart
from gymctl.contract.responses import JsonObject
from gymctl.servers import ServerConfig, ServerRef, json_object
from gymctl.servers.models import sse
from gymctl.servers.models.server import Handler, ModelServer
from gymctl.servers.stack.prefix import PREFIX_KEY
from gymctl.transport import FAILED_CALL_HEADER, ROLLOUT, Answer

logger = logging.getLogger("gymctl.server")

MISSED = 422
"""No server asks again after it, and no client of a provider does."""
FIRST_FAILURE = 500
_NOT_HANDED_ON = frozenset(
    {"host", "content-length", "connection", "transfer-encoding", "accept-encoding", "cookie", "keep-alive"}
)
_COMMENTS = (sse.COMMENT, b'event: ping\ndata: {"type":"ping"}\n\n')
"""Signs of life while a stream is waited for; they tell how slow a model was, not what it said."""
MOCK_TEXT = "This request is not in the cassette."


class CassetteConfig(ServerConfig):
    mode: Literal["record", "replay"]
    file: str
    """Absolute; in containers it is mounted at its own place."""
    on_miss: Literal["fail", "live", "mock"] = "fail"
    """What a replay does with a request that was not recorded."""
    model_server: ServerRef | None = None
    """Who is recorded, or asked on a miss."""
    secrets: list[str] = Field(default_factory=list, repr=False)
    """Values that must not get into the file; gymctl fills them in."""

    @model_validator(mode="after")
    def _has_a_model(self) -> CassetteConfig:
        if self.model_server is None and (self.mode == "record" or self.on_miss == "live"):
            raise ValueError("`model_server` is needed: somebody has to answer what is not in the cassette")
        return self


class CassetteModel(ModelServer):
    has_session = False
    """The recorded server's own cookie is handed on."""
    config: CassetteConfig

    def __init__(self, part: ServerPart) -> None:
        super().__init__(part)
        self._is_recording = self.config.mode == "record"
        self._scrubber = Scrubber(self.config.secrets)
        self._counting: Counting = OneWorker()
        self._tape: Tape | None = None

    async def startup(self) -> None:
        self._counting = of_server(self.part.project, self.part.name, self.part.workers)
        path = Path(self.config.file)
        self._tape = await asyncio.to_thread(Tape, path, can_write=self._is_recording)
        logger.info("%s %s, which holds %d answers", self.config.mode, path, self._tape.count)

    async def shutdown(self) -> None:
        self._counting.close()
        if self._tape is not None:
            self._tape.close()

    async def responses(self, params: JsonObject) -> JsonObject:
        """What `on_miss: mock` answers, in every dialect."""
        part = {"type": "output_text", "text": MOCK_TEXT, "annotations": []}
        message = {"id": "msg_mock", "type": "message", "role": "assistant", "status": "completed"}
        return {
            "id": "resp_mock",
            "object": "response",
            "created_at": 0,
            "model": "mock",
            "metadata": {"mock": "true"},
            "output": [{**message, "content": [part]}],
            "status": "completed",
            "parallel_tool_calls": params.get("parallel_tool_calls", True),
            "tool_choice": params.get("tool_choice", "auto"),
            "tools": params.get("tools", []),
            "usage": None,
        }

    async def answer(self, request: Request, handler: Handler) -> Response:
        """From the tape, else from the model that is recorded; what a replay does not know is a miss."""
        assert self._tape is not None
        body = await json_object(request)
        rollout = ROLLOUT.get() or ""
        asked = Asked.of(self.part.name, request.url.path, body, self._scrubber.text)
        before = self._counting.next(key(asked.digest, rollout))
        taken, number = await asyncio.to_thread(self._look_up, self._tape, asked, rollout, before)
        if taken is not None:
            return _response(taken)
        if self._is_recording:
            return await self._live(request, body, asked, (rollout, number))
        if self.config.on_miss == "live":
            return await self._live(request, body, asked, None)
        missed = await asyncio.to_thread(nearest.told, self._tape, asked, rollout)
        if self.config.on_miss == "mock":
            logger.warning("mocked: %s", missed)
            return await super().answer(request, handler)
        logger.error("%s", missed)
        raise HTTPException(MISSED, f"cassette miss: {missed}")

    def _look_up(self, tape: Tape, asked: Asked, rollout: str, before: int) -> tuple[Taken | None, int]:
        """The answer that is due when the same was asked `before` times, or the number to record one under.

        A recorder takes what an earlier session of the same rollout recorded: a recording that was killed
        goes on. A failure is asked again. In a replay, answers start over after the last one.
        """
        known = tape.recorded(asked.digest, rollout)
        if self._is_recording:
            if before >= len(known):
                return None, before - len(known) + (known[-1].number + 1 if known else 0)
            taken = tape.answer(known[before].place)
            return (None if taken.status >= FIRST_FAILURE else taken), known[before].number
        known = known or tape.stand_in(asked.digest, rollout)
        return (tape.answer(known[before % len(known)].place) if known else None), 0

    async def _live(
        self, request: Request, body: JsonObject, asked: Asked, record: tuple[str, int] | None
    ) -> Response:
        """Ask the model. record: the rollout and the number to write the answer under."""
        raw = await request.body()

        async def work() -> Taken:
            taken = await self._asked_live(request, raw)
            if record is not None:
                await asyncio.to_thread(self._append, asked, *record, taken)
            return taken

        if not body.get("stream"):
            return _response(await work())
        return await sse.replayed(_stream(work), _frames, failed=_plain)

    async def _asked_live(self, request: Request, raw: bytes) -> Taken:
        assert self.config.model_server is not None
        path = request.scope.get(PREFIX_KEY, "") + request.url.path
        headers = {name: value for name, value in request.headers.items() if name not in _NOT_HANDED_ON}
        answer = await self.client.call(
            self.config.model_server, path, raw, headers=headers, cookies=request.cookies
        )
        return _taken(answer)

    def _append(self, asked: Asked, rollout: str, number: int, taken: Taken) -> None:
        assert self._tape is not None
        text = self._scrubber.text(taken.body.decode("utf-8", "replace"))
        kept = Taken(taken.status, taken.media_type, text.encode(), taken.failed_call)
        self._tape.append(asked, rollout, number, kept)


class _NoStream(Exception):
    """A stream was asked for, and something else came: an error, before any event."""

    def __init__(self, taken: Taken) -> None:
        super().__init__(taken.status)
        self.taken = taken


async def _stream(work: Callable[[], Awaitable[Taken]]) -> Taken:
    taken = await work()
    if not taken.is_stream:
        raise _NoStream(taken)
    return taken


def _frames(done: asyncio.Future[Taken]) -> Iterable[bytes]:
    error = sse.failure(done)
    if error is None:
        return [done.result().body]
    body = error.taken.body.decode("utf-8", "replace") if isinstance(error, _NoStream) else repr(error)
    return [sse.event({"error": {"message": body, "type": "server_error", "code": "server_error"}}, "error")]


def _plain(error: BaseException) -> Response:
    if isinstance(error, _NoStream):
        return _response(error.taken)
    raise error


def _taken(answer: Answer) -> Taken:
    media_type = answer.header("content-type") or "application/json"
    body = answer.body
    if media_type.startswith(sse.MEDIA_TYPE):
        for comment in _COMMENTS:
            body = body.replace(comment, b"")
    return Taken(answer.status, media_type, body, answer.header(FAILED_CALL_HEADER))


def _response(taken: Taken) -> Response:
    headers = {} if taken.failed_call is None else {FAILED_CALL_HEADER: taken.failed_call}
    if taken.is_stream:
        headers["cache-control"] = "no-cache"
    return Response(taken.body, taken.status, headers, taken.media_type)


app = CassetteModel.app()
