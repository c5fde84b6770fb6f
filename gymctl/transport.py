"""The one HTTP function: who is called, and what is resent.

Every call between servers, and from the host to a server, goes through `Transport.call`. It knows three
rules; `connections` below it sends one request.

- A request is sent again only when it cannot have been acted on (the connection was never made), or when
  the receiver recognises it by its `Idempotency-Key`. A repeat must not run a side effect twice, so the
  receiver is asked first: its process must have remembered keys since before the request was sent. A caller
  that gives up on such a request takes it back with `DELETE`.
- Statuses are answers. Only a broken transport raises, as a TransportError that names its kind.
- The rollout in whose name we call travels along as `x-gymctl-rollout`, for log lines on the other side.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

from gymctl.connections import (
    Answer,
    Connections,
    Route,
    TransportError,
    TransportKind,
    origin_of,
    shown,
)
from gymctl.contract.part import Pool
from gymctl.contract.pools import divided
from gymctl.deferred import StreamLost, Streams, places

__all__ = ["Answer", "Route", "Transport", "TransportError", "TransportKind", "cookie_header"]

logger = logging.getLogger("gymctl.transport")

ROLLOUT: ContextVar[str | None] = ContextVar("gymctl_rollout", default=None)
"""The rollout this task works on: taken from the URL or a header by servers, set per attempt on the host."""

ROLLOUT_HEADER = "x-gymctl-rollout"
KEY_HEADER = "idempotency-key"
MEMORY_HEADER = "x-gymctl-remembers"
"""On liveness answers: for how many seconds this process has remembered idempotency keys."""
ASKING_SECONDS = 3.0
"""How long a receiver whose connection broke is asked whether it is still there."""
TAKING_BACK_SECONDS = 2.0
FAILED_CALL_HEADER = "x-gymctl-failed-call"
"""On an error of ours: host and path of the call between servers that it comes from."""
TAKEN_BACK_HEADER = "x-gymctl-taken-back"
"""On the answer to a repeat that came too late: its work was cancelled, and only another key runs it anew."""
RETRY_SECONDS = 0.5
TOLD_EVERY = 20
"""Attempts between two log lines of a call that does not get through."""


@dataclass(slots=True)
class _Call:
    """What was asked for, and how far it went."""

    method: str
    url: str
    body: bytes | Path | None
    headers: dict[str, str]
    key: str | None
    route: Route | None
    is_plain: bool = False
    """It was sent, and its answer comes on its own connection."""


def cookie_header(cookies: Mapping[str, str]) -> str:
    return "; ".join([f"{name}={value}" for name, value in cookies.items()])


class Transport:
    """An HTTP client for one process. Use it as an async context manager."""

    def __init__(
        self, pool: Pool | None = None, *, workers: int = 1, names: Mapping[str, str] | None = None
    ) -> None:
        """`pool` is the budget of one server's worker group; each worker takes its share (CONTRACT 2.6).
        `names`: by `http://host:port`, who is called there, for log lines; may be filled later.
        Raises PoolTooSmall."""
        self._pool = pool or Pool()
        self._shares = divided(self._pool, workers)
        self._names = {} if names is None else names
        self._silent: set[str] = set()
        """Who could not be reached when last called: told once, not once for every call that waits."""
        self._connections = Connections(self._pool, self._shares)
        self._streams: Streams | None = None
        self._taking_back: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Transport:
        self._streams = Streams(await self._connections.open(), *places(self._shares))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._streams is not None:
            await self._streams.close()
            self._streams = None
        if self._taking_back:
            await asyncio.wait(self._taking_back, timeout=TAKING_BACK_SECONDS)
        await self._connections.close()

    async def call(
        self,
        method: str,
        url: str,
        body: bytes | Path | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        cookies: Mapping[str, str] | None = None,
        key: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the TransportError must say that it was this limit
        retry_seconds: float | None = None,
        route: Route | None = None,
    ) -> Answer:
        """Send and read the whole answer.

        body: bytes, or a file that is sent without being read into memory.
        key: makes a repeat safe at a receiver that remembers keys; without one, nothing that may have arrived
        is resent.
        timeout: seconds for the whole call, retries included. retry_seconds: how long a connection that
        cannot be made is tried again; None is for ever, 0 not at all. route: of calls that leave the project.
        """
        call = _Call(method, url, body, self._headers(body, headers, cookies, key), key, route)
        try:
            async with asyncio.timeout(timeout):
                return await self._until_answered(call, retry_seconds)
        except TimeoutError as error:
            self._take_back(call)
            raise TransportError("transport_timeout", url, f"no answer within {timeout} s") from error
        except asyncio.CancelledError:
            self._take_back(call)
            raise

    def _take_back(self, call: _Call) -> None:
        """Tell the receiver that nobody will ask again; otherwise it goes on for a while in case we do."""
        if call.key is None or not call.is_plain or not self._connections.is_open:
            return
        task = asyncio.get_running_loop().create_task(self._delete(call.url, {KEY_HEADER: call.key}))
        self._taking_back.add(task)
        task.add_done_callback(self._taking_back.discard)

    async def _delete(self, url: str, headers: dict[str, str]) -> None:
        with suppress(TransportError, TimeoutError):
            async with asyncio.timeout(TAKING_BACK_SECONDS):
                await self._connections.once("DELETE", url, None, headers)

    def _headers(
        self,
        body: bytes | Path | None,
        headers: Mapping[str, str] | None,
        cookies: Mapping[str, str] | None,
        key: str | None,
    ) -> dict[str, str]:
        sent = {name.lower(): value for name, value in headers.items()} if headers else {}
        if body is not None and "content-type" not in sent:
            sent["content-type"] = "application/json"
        if cookies:
            sent["cookie"] = cookie_header(cookies)
        if key is not None:
            sent[KEY_HEADER] = key
        rollout = ROLLOUT.get()
        # A path may hold what no header can.
        if rollout is not None and rollout.isprintable() and ROLLOUT_HEADER not in sent:
            sent[ROLLOUT_HEADER] = rollout
        return sent

    async def _until_answered(self, call: _Call, retry_seconds: float | None) -> Answer:
        method, url = call.method, call.url
        clock = asyncio.get_running_loop()
        give_up = None if retry_seconds is None else clock.time() + retry_seconds
        arrived: float | None = None  # when the first request was sent that may have been acted on
        for attempt in itertools.count(1):
            sent = clock.time()
            try:
                answer = await self._sent(call)
            except TransportError as error:
                if self._pool.tells_every_failure:
                    logger.warning("%s %s: attempt %d failed", method, error.url, attempt, exc_info=error)
                if error.is_hopeless or (give_up is not None and clock.time() >= give_up):
                    raise
                if error.kind == "transport_peer_drop":
                    arrived = arrived or sent
                    if not (call.key is not None and await self._is_remembered(url, arrived)):
                        raise
                self._tell(method, url, attempt, error)
            else:
                if self._silent:
                    self._silent.discard(origin_of(url))
                return answer
            await asyncio.sleep(RETRY_SECONDS)
        raise AssertionError("count() does not end")

    async def _sent(self, call: _Call) -> Answer:
        """One request; to a server of ours that many calls wait for, the answer may come on a stream."""

        async def send(more: Mapping[str, str]) -> Answer:
            call.is_plain = not more
            headers = {**call.headers, **more} if more else call.headers
            return await self._connections.once(call.method, call.url, call.body, headers, call.route)

        origin = origin_of(call.url)
        is_ours = call.route is None and (call.key is not None or origin in self._names)
        if not is_ours or call.method != "POST" or self._streams is None:
            return await send({})
        try:
            said = await self._streams.call(origin, send)
        except StreamLost as error:
            raise TransportError("transport_peer_drop", call.url, str(error)) from error
        if isinstance(said, Answer):
            return said
        return Answer(said.status, said.headers, said.body, shown(call.url), said.reason)

    async def answers_later(self, url: str) -> bool:
        """Whether calls to this server can wait without a connection each."""
        return self._streams is not None and await self._streams.is_offered(origin_of(url))

    def _tell(self, method: str, url: str, attempt: int, error: TransportError) -> None:
        """A call that has to wait: at once for the first one to this server, then every ten seconds."""
        origin = origin_of(url)
        if origin in self._silent and attempt % TOLD_EVERY:
            return
        self._silent.add(origin)
        name = self._names.get(origin)
        who = origin if name is None else f"{name} ({origin})"
        times = "once" if attempt == 1 else f"{attempt} times"
        logger.warning(
            "%s cannot be reached, tried %s: %s %s: %s", who, times, method, urlsplit(url).path, error.detail
        )

    async def _is_remembered(self, url: str, since: float) -> bool:
        """Whether the process at `url` has remembered keys for longer than `since`: it is no foreign server,
        not one of several workers, and was not started again meanwhile."""
        clock = asyncio.get_running_loop()
        with suppress(TimeoutError):
            async with asyncio.timeout(ASKING_SECONDS):
                while True:
                    try:
                        answer = await self._connections.once("GET", f"{origin_of(url)}/livez", None, {})
                    except TransportError:
                        await asyncio.sleep(RETRY_SECONDS)
                        continue
                    seconds = answer.header(MEMORY_HEADER)
                    return seconds is not None and float(seconds) > clock.time() - since
        return False
