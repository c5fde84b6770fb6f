"""The model endpoint behind a model server: asking it, asking again, giving up (CONTRACT 13.2).

    error status that another try may cure   up to `max_attempts` tries in total, further and further apart
    connection dropped before the answer     the same
    connection cannot be made                tried for `unreachable_seconds`, counted over all calls; then
                                             calls fail at once, and one at a time looks whether it is back
    key or quota refused for good            remembered: no further call of this process reaches the upstream

A final error status raises InnerServerError, which the error border turns into 500 with the upstream's body.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from gymctl.contract.retry_after import seconds
from gymctl.errors import ConfigError
from gymctl.servers.models import proxies
from gymctl.servers.models.breaker import PROBE_SECONDS, Breaker
from gymctl.servers.stack.client import InnerServerError
from gymctl.servers.stack.wire import loads
from gymctl.transport import Answer, Transport, TransportError

logger = logging.getLogger("gymctl.server")

RETRIED = frozenset({404, 408, 429, 500, 502, 503, 504, 520})
PAUSE_SECONDS = 0.5
"""Before the second try; each further pause is twice as long."""
SPREAD = 0.25
"""A pause is up to this share longer, so that calls refused together do not come back together."""
LONGEST_PAUSE_SECONDS = 30.0
"""A Retry-After above this is cut: the caller holds a rollout open meanwhile."""
LONGEST_RECONNECT_SECONDS = 5.0

_QUOTA = frozenset({"budget_exceeded", "insufficient_quota"})
_KEY = frozenset({"invalid_api_key", "invalid_api_token", "authentication_error"})
_SECRET_WORDS = ("auth", "key", "token", "secret", "cookie")
_KEY_PHRASES = ("invalid api key", "incorrect api key")


class Upstream:
    """One OpenAI-style base URL with its key."""

    def __init__(
        self,
        transport: Transport,
        base_url: str,
        *,
        api_key: str = "",
        key_header: str = "authorization",
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        max_attempts: int = 3,
        unreachable_seconds: float = 60.0,
        max_concurrent: int | None = None,
        proxy: str | None = None,
        setting: str = "base_url",
    ) -> None:
        """max_attempts: HTTP tries of one call in total. max_concurrent: calls in flight; None is no limit.
        unreachable_seconds: how long it is tried to connect before calls fail. query: added to every URL.
        proxy: see `proxies.route`. setting: the key of the config that holds the URL, for messages.
        key_header: where the key goes; bare in any other than `authorization`."""
        url, authorization = proxies.without_user_info(base_url)
        if authorization is not None and api_key and key_header == "authorization":
            raise ConfigError(
                f"`{setting}` holds a user name, and there is a key as well: both would be the same header",
                hint=f"take the user name out of `{setting}`, or leave the key empty",
            )
        self.base_url = url.rstrip("/")
        self._query = f"?{urlencode(query)}" if query else ""
        self._setting = setting
        self._transport = transport
        self._route = proxies.route(url, proxy)
        self._headers = {} if authorization is None else {"authorization": authorization}
        if api_key:
            self._headers[key_header] = f"Bearer {api_key}" if key_header == "authorization" else api_key
        self._headers |= headers or {}
        self._secrets = list(_secrets(self._headers))
        self._max_attempts = max_attempts
        self._unreachable_seconds = unreachable_seconds
        self._breaker = Breaker(unreachable_seconds)
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

    async def look(self, url: str, seconds: float) -> Answer:
        """One GET with the headers and on the way of the calls, whatever has become of those; the answer may
        be an error. Raises TransportError when none came within `seconds`."""
        answer = await self._transport.call(
            "GET", url, headers=self._headers, timeout=seconds, retry_seconds=0, route=self._route
        )
        return self._without_secrets(answer)

    async def _until_final(self, path: str, body: bytes, accepted: Collection[int], attempts: int) -> Answer:
        for attempt in range(1, max(attempts, 1) + 1):
            is_last = attempt >= attempts
            if self._refused_for_good is not None:
                raise InnerServerError(self._refused_for_good)
            try:
                answer = await self._connected(path, body)
            except TransportError as error:
                if error.kind == "transport_unreachable" or is_last:
                    raise
                logger.warning("%s; asking again", error)
                await asyncio.sleep(pause(None, attempt))
                continue
            if answer.status < 400:
                return answer
            answer = self._without_secrets(answer)
            if answer.status in accepted:
                return answer
            if is_refused_for_good(answer):
                self._refused_for_good = answer
            elif answer.status in RETRIED and not is_last:
                await asyncio.sleep(pause(answer.header("retry-after"), attempt))
                continue
            raise InnerServerError(answer)
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _connected(self, path: str, body: bytes) -> Answer:
        """One answer; a connection that cannot be made is tried until the breaker gives the upstream up."""
        breaker, reconnect, detail = self._breaker, PAUSE_SECONDS, ""
        while True:
            is_look = breaker.is_open
            if not breaker.admits():
                raise self._down(detail)
            try:
                return await self._once(path, body, is_look)
            except TransportError as error:
                if error.kind != "transport_unreachable" or error.is_hopeless:
                    raise
                detail = error.detail
                if breaker.is_open:
                    raise self._down(detail) from error
            await asyncio.sleep(min(_spread(reconnect), breaker.seconds_left + 0.01))
            reconnect = min(reconnect * 2, LONGEST_RECONNECT_SECONDS)

    async def _once(self, path: str, body: bytes, is_look: bool) -> Answer:
        breaker = self._breaker
        url = f"{self.base_url}{path}{self._query}"
        try:
            answer = await self._transport.call(
                "POST", url, body, headers=self._headers, retry_seconds=0, route=self._route
            )
        except TransportError as error:
            if error.kind == "transport_peer_drop":
                breaker.reached()
            elif error.kind == "transport_unreachable" and not error.is_hopeless and breaker.missed():
                logger.warning("`%s`: %s; trying for %g s", self._setting, error, self._unreachable_seconds)
            raise
        finally:
            if is_look:
                breaker.left()
        if breaker.reached():
            logger.info("`%s`: %s answers again", self._setting, self.base_url)
        return answer

    def _down(self, detail: str = "") -> TransportError:
        text = (
            f"the upstream of `{self._setting}` has not been reachable for {self._unreachable_seconds:g} s; "
            f"calls fail at once until it is back, which is looked for every {PROBE_SECONDS:g} s"
        )
        return TransportError(
            "transport_unreachable", self.base_url, f"{text} ({detail})" if detail else text
        )

    def _without_secrets(self, answer: Answer) -> Answer:
        """Error bodies go into answers and logs; some upstreams repeat the key in them."""
        body = answer.body
        for secret in self._secrets:
            body = body.replace(secret, b"****")
        return answer if body is answer.body else replace(answer, body=body)


def _secrets(headers: Mapping[str, str]) -> Iterator[bytes]:
    """What the headers hold that nobody else may read, without a scheme such as `Bearer` before it."""
    for name, value in headers.items():
        secret = value.rpartition(" ")[2]
        if len(secret) >= 4 and any(word in name.lower() for word in _SECRET_WORDS):
            yield secret.encode()


def pause(retry_after: str | None, attempt: int = 1, now: float | None = None) -> float:
    """Seconds until the next try: what Retry-After asks (seconds or a date), at least 0.5 doubled with each
    try, at most 30, and then up to a quarter more."""
    wanted = seconds(retry_after, now)
    backoff = PAUSE_SECONDS * 2 ** min(attempt - 1, 10)
    return _spread(min(max(wanted, backoff), LONGEST_PAUSE_SECONDS))


def _spread(seconds: float) -> float:
    return seconds * random.uniform(1.0, 1.0 + SPREAD)


def is_refused_for_good(answer: Answer) -> bool:
    """The key is wrong or the money is spent: no further call of this process can succeed."""
    words = set(_error_words(answer))
    if answer.status == 429:
        return bool(words & _QUOTA)
    if answer.status in (401, 403):
        text = answer.body.decode("utf-8", "replace").lower()
        return bool(words & _KEY) or any(phrase in text for phrase in _KEY_PHRASES)
    return False


def _error_words(answer: Answer) -> Iterator[str]:
    try:
        body: Any = loads(answer.body)
    except ValueError:
        return
    error = body.get("error", body) if isinstance(body, dict) else None
    if isinstance(error, dict):
        yield from (str(error[key]) for key in ("code", "type") if error.get(key) is not None)
