"""The version of the LiteLLM proxy (CONTRACT 13.1): too old is refused, not there yet is waited for.

too old, or no version told      the server ends with one line, at its start or when the proxy comes up
not reachable, or still starting calls wait for it as long as for any upstream; then they fail at once
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from gymctl.errors import ConfigError
from gymctl.servers.models.upstream import Upstream
from gymctl.transport import Answer, TransportError

logger = logging.getLogger("gymctl.server")

NEEDED = (1, 83, 0)
NEEDED_TEXT = "1.83.0"
LOOK_SECONDS = 5.0
PAUSE_SECONDS = 1.0
"""Between two looks at a proxy that is waited for."""
SETTING = "openai_base_url"
STARTING = frozenset({408, 429, 500, 502, 503, 504})
"""Statuses of a proxy, or of a gateway before it, that may soon answer better."""

_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?!\d)(.*)")
_BEFORE_THE_RELEASE = re.compile(r"[-._]?(a|b|c|rc|alpha|beta|pre|preview|dev|nightly)(?![a-z])")


class ProxyVersion:
    def __init__(self, upstream: Upstream, patience: float) -> None:
        """patience: seconds for which calls wait for a proxy that is not there, counted over all calls."""
        self._upstream = upstream
        self.url = f"{upstream.base_url.removesuffix('/v1')}/health/readiness/details"
        self._patience = patience
        self._is_decided = asyncio.Event()
        self._refusal: ConfigError | None = None
        self._missed_since = 0.0
        self._detail = "not looked at yet"

    @property
    def problem(self) -> str | None:
        """Why calls do not leave."""
        if self._refusal is not None:
            return self._refusal.what
        if self._is_decided.is_set():
            return None
        return f"the version of the LiteLLM proxy is not known: {self._detail}"

    @asynccontextmanager
    async def checked(self) -> AsyncIterator[None]:
        """For as long as the server runs. Raises ConfigError for a version that is refused: at the start, or
        out of the block when the proxy comes up later."""
        if await self._look():
            yield
            return
        self._missed_since = time.monotonic()
        logger.warning("`%s`: %s: %s; waiting for it", SETTING, self.url, self._detail)
        try:
            async with asyncio.TaskGroup() as group:
                watch = group.create_task(self._watch())
                yield
                watch.cancel()
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None

    async def known(self) -> None:
        """Return when the version is known to be good. Raises ConfigError when it is refused, TransportError
        when the proxy does not come."""
        if not self._is_decided.is_set():
            await self._decided()
        if self._refusal is not None:
            raise self._refusal

    async def _decided(self) -> None:
        try:
            async with asyncio.timeout(self._missed_since + self._patience - time.monotonic()):
                await self._is_decided.wait()
        except TimeoutError:
            text = (
                f"the proxy of `{SETTING}` has not told its version for {self._patience:g} s; "
                f"calls fail at once until it does ({self._detail})"
            )
            raise TransportError("transport_unreachable", self.url, text) from None

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(PAUSE_SECONDS)
            if await self._look():
                return

    async def _look(self) -> bool:
        """Whether the version is good; False when that is not known yet. Raises ConfigError if it is not."""
        try:
            answer = await self._upstream.look(self.url, LOOK_SECONDS)
        except TransportError as error:
            if error.is_hopeless:
                raise ConfigError(f"`{SETTING}`: {self.url}: {error.detail}") from error
            self._detail = error.detail
            return False
        if answer.status in STARTING:
            self._detail = f"HTTP {answer.status}"
            return False
        try:
            logger.info("`%s`: LiteLLM %s", SETTING, accepted(answer, self.url))
        except ConfigError as error:
            self._refusal = error
            raise
        finally:
            self._is_decided.set()
        return True


def accepted(answer: Answer, url: str) -> str:
    """The version that is told. Raises ConfigError when there is none, or when it is too old."""
    needed = f"LiteLLM {NEEDED_TEXT} or later is needed"
    if not 200 <= answer.status < 300:
        hint = "; is `openai_api_key` right?" if answer.status in (401, 403) else ""
        raise ConfigError(f"`{SETTING}`: {url} answers HTTP {answer.status} and no version; {needed}{hint}")
    version = _told(answer)
    if version is None:
        raise ConfigError(f"`{SETTING}`: {url} tells no `litellm_version`; {needed}")
    if not is_new_enough(version):
        raise ConfigError(f"`{SETTING}`: {url} tells version {version[:40]!r}; {needed}")
    return version


def _told(answer: Answer) -> str | None:
    try:
        body: Any = answer.json()
    except ValueError:
        return None
    version = body.get("litellm_version") if isinstance(body, dict) else None
    return version.strip() if isinstance(version, str) and version.strip() else None


def is_new_enough(version: str) -> bool:
    """Read as LiteLLM writes them: `1.83.0`, `v1.83.0-stable`, `1.84.0rc1`. What cannot be read is not."""
    read = _VERSION.fullmatch(version)
    if read is None:
        return False
    number = (int(read[1]), int(read[2]), int(read[3] or 0))
    return number > NEEDED or (number == NEEDED and not _BEFORE_THE_RELEASE.match(read[4].lower()))
