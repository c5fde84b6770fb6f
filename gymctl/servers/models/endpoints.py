"""Whether the upstreams of a model server answer, asked from where it runs (CONTRACT 14.3)."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Collection, Mapping
from typing import Any

import aiohttp

from gymctl.contract.part import EndpointState
from gymctl.servers.models import proxies
from gymctl.transport import Transport, TransportError

logger = logging.getLogger("gymctl.server")

PROBE_SECONDS = 4.0
"""Below the 5 s within which the head wants to hear from us."""
GATEWAY_STATUSES = frozenset({502, 503, 504})
"""A gateway answers, the model behind it does not yet: still starting."""


def endpoints(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(key, URL) of every upstream that a block names: keys ending in `base_url`, a string or a list.

    Empty ones are skipped, a URL named twice counts once.
    """
    found: dict[str, str] = {}
    for key, value in settings.items():
        if key.endswith("base_url"):
            for url in [value] if isinstance(value, str) else value or ():
                if isinstance(url, str) and url:
                    found.setdefault(url, key)
    return [(key, url) for url, key in found.items()]


class Probe:
    """Asks endpoints whether they answer. A name that does not resolve at the first try is given up."""

    def __init__(
        self, transport: Transport, targets: Collection[tuple[str, str]], proxy: str | None = None
    ) -> None:
        """proxy: as the calls themselves go (see `proxies.route`)."""
        self._transport = transport
        self._proxy = proxy
        self._targets = list(targets)
        self._first_tried: set[str] = set()
        self._unresolvable: dict[str, EndpointState] = {}

    async def states(self) -> list[EndpointState]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._state(key, url)) for key, url in self._targets]
        return [task.result() for task in tasks]

    async def _state(self, key: str, url: str) -> EndpointState:
        url, _ = proxies.without_user_info(url)
        if url in self._unresolvable:
            return self._unresolvable[url]
        is_first = url not in self._first_tried
        self._first_tried.add(url)
        target = url.rstrip("/") + "/models" if url.rstrip("/").endswith("/v1") else url
        try:
            answer = await self._transport.call(
                "GET", target, timeout=PROBE_SECONDS, retry_seconds=0, route=proxies.route(url, self._proxy)
            )
        except TransportError as error:
            state = _failed(key, url, error)
            if state.state == "unresolvable":
                if not is_first:
                    return state.model_copy(update={"state": "waiting"})
                logger.warning("%s: the name of %s does not resolve; not waiting for it", key, url)
                self._unresolvable[url] = state
            return state
        is_waiting = answer.status in GATEWAY_STATUSES
        return EndpointState(
            key=key, url=url, state="waiting" if is_waiting else "answering", detail=f"HTTP {answer.status}"
        )


def _failed(key: str, url: str, error: TransportError) -> EndpointState:
    cause = error.__cause__
    if isinstance(cause, aiohttp.InvalidURL | aiohttp.NonHttpUrlClientError):
        return EndpointState(key=key, url=url, state="skipped", detail="not a URL that can be probed")
    if isinstance(cause, aiohttp.ClientSSLError | ssl.SSLError):
        return EndpointState(key=key, url=url, state="answering", detail=f"TLS: {cause}")
    os_error = getattr(cause, "os_error", None)
    if isinstance(cause, aiohttp.ClientConnectorDNSError) or isinstance(os_error, socket.gaierror):
        return EndpointState(key=key, url=url, state="unresolvable", detail=str(cause))
    return EndpointState(key=key, url=url, state="waiting", detail=error.detail)
