"""The vLLM endpoints behind the server: which one a session talks to, and one that moves.

A session keeps its endpoint, so that the endpoint's prefix cache keeps the session: the choice depends on
nothing but the session's id, and every worker process makes the same.
"""

from __future__ import annotations

import hashlib
import logging
import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from vllm_settings import VLLMModelConfig

from gymctl.errors import ServerError
from gymctl.servers.models.upstream import LONGEST_RECONNECT_SECONDS, PAUSE_SECONDS, Upstream
from gymctl.transport import Answer, Transport, TransportError, shown

logger = logging.getLogger("gymctl.server")


@dataclass(frozen=True)
class Replica:
    """One endpoint, by its OpenAI routes and by the ones that vLLM has beside them."""

    url: str
    openai: Upstream
    root: Upstream

    async def post(self, path: str, body: bytes, *, accepted: Collection[int] = ()) -> Answer:
        side = self.root if path == "/tokenize" else self.openai
        return await side.post(path, body, accepted=accepted)


def place_of(session_id: str, count: int) -> int:
    """The replica of a session: the first 8 bytes of the id's SHA-256, modulo the number of replicas."""
    return int.from_bytes(hashlib.sha256(session_id.encode()).digest()[:8], "big") % count


class Replicas:
    def __init__(
        self, transport: Transport, config: VLLMModelConfig, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._transport = transport
        self._config = config
        self._replicas = [self._replica(url) for url in config.urls]
        self._file = EndpointFile(config, clock) if config.endpoint_file else None

    async def post(
        self, session_id: str, path: str, body: bytes, *, accepted: Collection[int] = ()
    ) -> Answer:
        """Ask the session's endpoint. One that cannot be reached and has moved meanwhile is asked where it is
        now; the rest is `Upstream.post`'s."""
        while True:
            replica = self.of(session_id)
            try:
                return await replica.post(path, body, accepted=accepted)
            except TransportError as error:
                if self._file is None or error.kind != "transport_unreachable":
                    raise
                if self.of(session_id, is_urgent=True).url == replica.url:
                    raise

    @property
    def urls(self) -> list[tuple[str, str]]:
        """Setting and URL of each endpoint that calls go to now."""
        setting = "endpoint_file" if self._file is not None and self._file.is_published else "base_url"
        return [(setting, replica.url) for replica in self._replicas]

    def of(self, session_id: str, *, is_urgent: bool = False) -> Replica:
        """The endpoint of a session. Raises ServerError when the endpoint file has been gone for too long."""
        url = None if self._file is None else self._file.url(is_urgent=is_urgent)
        if url is not None and [url] != [replica.url for replica in self._replicas]:
            logger.info("`endpoint_file` names %s now; it was %s", shown(url), shown(self._replicas[0].url))
            self._replicas = [self._replica(url)]
        return self._replicas[place_of(session_id, len(self._replicas))]

    def _replica(self, url: str) -> Replica:
        url = url.rstrip("/")
        return Replica(url, self._upstream(url), self._upstream(url.removesuffix("/v1")))

    def _upstream(self, url: str) -> Upstream:
        config = self._config
        return Upstream(
            self._transport,
            url,
            api_key=config.api_key.get_secret_value(),
            headers=config.default_headers,
            max_attempts=config.max_http_attempts,
            unreachable_seconds=_patience(config),
            proxy=config.upstream_proxy,
            setting="endpoint_file" if config.endpoint_file else "base_url",
        )


def _patience(config: VLLMModelConfig) -> float:
    """How long it is tried to connect. With an endpoint file: as long as the retries take that are asked for,
    because an endpoint that moves does not come back at its old place."""
    if not config.endpoint_file:
        return config.upstream_unreachable_seconds
    retries = config.endpoint_connection_retries
    if retries is None:
        return math.inf
    pauses = (min(PAUSE_SECONDS * 2**n, LONGEST_RECONNECT_SECONDS) for n in range(retries))
    return sum(pauses)


class EndpointFile:
    """Reads the URL from the file again when the file has changed; looks at it every few seconds."""

    def __init__(self, config: VLLMModelConfig, clock: Callable[[], float]) -> None:
        self._path = Path(config.endpoint_file or "")
        self._grace = config.endpoint_stale_grace_s
        self._interval = config.endpoint_check_interval_s
        self._clock = clock
        self._looked_at: float | None = None
        self._state: tuple[int, int, int] | None = None
        self._gone_since: float | None = None
        self._url: str | None = None

    @property
    def is_published(self) -> bool:
        return self._url is not None

    def url(self, *, is_urgent: bool = False) -> str | None:
        """The URL that was last published, None while none was. is_urgent: look, whenever the last look was.

        Raises ServerError when none has been published for longer than the grace.
        """
        now = self._clock()
        if is_urgent or self._looked_at is None or now - self._looked_at >= self._interval:
            self._looked_at = now
            self._look(now)
        if self._gone_since is not None and now - self._gone_since > self._grace:
            raise ServerError(
                f"`endpoint_file` has named no endpoint for {now - self._gone_since:.0f} s",
                where=str(self._path),
                hint=f"`endpoint_stale_grace_s` is {self._grace:g}; is the serving job up?",
            )
        return self._url

    def _look(self, now: float) -> None:
        try:
            status = self._path.stat()
            state = (status.st_mtime_ns, status.st_size, status.st_ino)
            if state != self._state:
                text = self._path.read_text(encoding="utf-8").strip()
                self._state = state
                self._note(text, now)
        except FileNotFoundError:
            self._state = None
            self._note("", now)
        except (OSError, UnicodeDecodeError) as error:
            logger.warning("`endpoint_file` cannot be read just now: %s", error)

    def _note(self, url: str, now: float) -> None:
        if url:
            self._url, self._gone_since = url.rstrip("/"), None
        elif self._gone_since is None:
            self._gone_since = now
