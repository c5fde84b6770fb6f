"""The model endpoint behind a model server: asking it, asking again, giving up (CONTRACT 13.2).

An error status that asking again cannot help raises InnerServerError, which the error border turns into 500
with the upstream's body. A key or a quota that the upstream refuses for good is remembered: further calls
fail at once, with the same body, and do not reach the upstream.
"""

from __future__ import annotations

import asyncio
import email.utils
import logging
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from gymctl.servers.client import InnerServerError
from gymctl.servers.wire import loads
from gymctl.transport import Answer, Transport, TransportError

logger = logging.getLogger("gymctl.server")

RETRIED = frozenset({404, 408, 429, 500, 502, 503, 504, 520})
PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0
"""A Retry-After above this is cut: the caller holds a rollout open meanwhile."""

_QUOTA = frozenset({"budget_exceeded", "insufficient_quota"})
_KEY = frozenset({"invalid_api_key", "invalid_api_token", "authentication_error"})


class Upstream:
    """One OpenAI-style base URL with its key."""

    def __init__(
        self,
        transport: Transport,
        base_url: str,
        *,
        api_key: str = "",
        headers: Mapping[str, str] | None = None,
        max_attempts: int = 3,
        unreachable_seconds: float = 60.0,
        max_concurrent: int | None = None,
    ) -> None:
        """max_attempts: HTTP tries of one call in total. max_concurrent: calls in flight; None is no limit.
        unreachable_seconds: how long a refused connection is tried again before the call fails."""
        self.base_url = base_url.rstrip("/")
        self._transport = transport
        self._key = api_key
        self._headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._headers |= headers or {}
        self._max_attempts = max_attempts
        self._unreachable_seconds = unreachable_seconds
        self._slots = asyncio.Semaphore(max_concurrent) if max_concurrent else None
        self._refused_for_good: Answer | None = None

    async def post(
        self, path: str, body: bytes, *, accepted: Collection[int] = (), attempts: int | None = None
    ) -> Answer:
        """The answer: a success, or one of the error statuses in `accepted`, which are not asked for again.

        Raises InnerServerError for any other final status, TransportError when no answer came.
        """
        if self._slots is None:
            return await self._until_final(path, body, accepted, attempts or self._max_attempts)
        async with self._slots:
            return await self._until_final(path, body, accepted, attempts or self._max_attempts)

    async def _until_final(self, path: str, body: bytes, accepted: Collection[int], attempts: int) -> Answer:
        for left in range(max(attempts, 1) - 1, -1, -1):
            if self._refused_for_good is not None:
                raise InnerServerError(self._refused_for_good)
            try:
                answer = await self._transport.call(
                    "POST",
                    self.base_url + path,
                    body,
                    headers=self._headers,
                    retry_seconds=self._unreachable_seconds,
                )
            except TransportError as error:
                if error.kind != "transport_peer_drop" or not left:
                    raise
                logger.warning("%s; asking again", error)
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            if answer.status < 400 or answer.status in accepted:
                return answer
            answer = self._without_key(answer)
            if is_refused_for_good(answer):
                self._refused_for_good = answer
            elif answer.status in RETRIED and left:
                await asyncio.sleep(pause(answer.header("retry-after")))
                continue
            raise InnerServerError(answer)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _without_key(self, answer: Answer) -> Answer:
        """Error bodies go into answers and logs; some upstreams repeat the key in them."""
        key = self._key.encode()
        if len(key) < 4 or key not in answer.body:
            return answer
        return replace(answer, body=answer.body.replace(key, b"****"))


def pause(retry_after: str | None, now: float | None = None) -> float:
    """Seconds until the next try: what Retry-After asks (seconds or a date), at least 0.5, at most 30."""
    wanted = 0.0
    if retry_after:
        try:
            wanted = float(retry_after)
        except ValueError:
            wanted = _seconds_until(retry_after, time.time() if now is None else now)
    if wanted != wanted:  # NaN
        wanted = 0.0
    return min(max(wanted, PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)


def _seconds_until(date: str, now: float) -> float:
    try:
        return email.utils.parsedate_to_datetime(date).timestamp() - now
    except ValueError:
        return 0.0


def is_refused_for_good(answer: Answer) -> bool:
    """The key is wrong or the money is spent: no further call of this process can succeed."""
    words = set(_error_words(answer))
    if answer.status == 429:
        return bool(words & _QUOTA)
    if answer.status in (401, 403):
        text = answer.body.decode("utf-8", "replace").lower()
        return bool(words & _KEY) or "invalid api key" in text or "incorrect api key" in text
    return False


def _error_words(answer: Answer) -> Iterator[str]:
    try:
        body: Any = loads(answer.body)
    except ValueError:
        return
    error = body.get("error", body) if isinstance(body, dict) else None
    if isinstance(error, dict):
        yield from (str(error[key]) for key in ("code", "type") if error.get(key) is not None)
