"""One HTTP request and its answer: the connections of a process, and how a failure is named.

No cookie jar and no proxy: callers hand cookies on (CONTRACT 2.4), containers dial each other directly. Only
a model server whose config says so names a proxy, for its upstream (Route).
"""

from __future__ import annotations

import errno
import json
import socket
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import aiohttp
import orjson

from gymctl.contract.part import Pool
from gymctl.contract.pools import Shares
from gymctl.deferred import StreamLost

PROXY_AUTHORIZATION = "proxy-authorization"
KEEPALIVE_SECONDS = 15.0
"""Below the servers' 30 s, so that the client closes an idle connection first."""

_NO_URL = (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError)
_HOPELESS = (*_NO_URL, aiohttp.ClientSSLError, StreamLost)
_LOCAL_ERRNOS = frozenset({errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM})

TransportKind = Literal[
    "transport_unreachable", "transport_peer_drop", "transport_timeout", "transport_local_resource"
]

_NO_URL = (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError)
_HOPELESS = (*_NO_URL, aiohttp.ClientSSLError, StreamLost)
_LOCAL_ERRNOS = frozenset({errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM})


class TransportError(Exception):
    """No answer came. `kind` is one of the failure kinds of CONTRACT 7.4. `url` is as of an Answer."""

    def __init__(self, kind: TransportKind, url: str, detail: str) -> None:
        url = shown(url)
        super().__init__(kind, url, detail)
        self.kind: TransportKind = kind
        self.url = url
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.kind}: {self.url}: {self.detail}"

    @property
    def is_hopeless(self) -> bool:
        """Asking again cannot help: no URL, a peer whose certificate is not accepted, or one that was waited
        for already."""
        return isinstance(self.__cause__, _HOPELESS)


@dataclass(frozen=True)
class Route:
    """How a call gets to a server that is not one of ours."""

    proxy: str | None = None
    """Without user info, which errors of aiohttp would repeat."""
    proxy_authorization: str | None = field(default=None, repr=False)
    connect_seconds: float = 10.0
    """For one connection to be made; an address that swallows packets would take two minutes to fail."""

    @cached_property
    def options(self) -> dict[str, Any]:
        # Every limit is named: aiohttp puts a total of 300 s in place of those that are left out.
        timeout = aiohttp.ClientTimeout(
            total=None, connect=None, sock_connect=self.connect_seconds, sock_read=None
        )
        own = None if self.proxy_authorization is None else {PROXY_AUTHORIZATION: self.proxy_authorization}
        return {"timeout": timeout, "proxy": self.proxy, "proxy_headers": own}

    def headers(self, url: str, headers: dict[str, str]) -> dict[str, str]:
        """A proxy that makes a tunnel is sent headers of its own; others read those of the request."""
        if self.proxy_authorization is None or not url.startswith("http://"):
            return headers
        return {**headers, PROXY_AUTHORIZATION: self.proxy_authorization}


@dataclass(frozen=True)
class Answer:
    """What a server said: bytes as they came, parsed only by who needs it."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    """As received, repeats included."""
    body: bytes
    url: str
    """Without user info and query: it is told in messages and logs, and both may hold a key."""
    reason: str = ""

    @cached_property
    def cookies(self) -> dict[str, str]:
        """Name and raw value of every Set-Cookie, to be handed on as they are."""
        jar: dict[str, str] = {}
        for key, line in self.headers:
            if key.lower() == b"set-cookie":
                name, _, value = line.decode("utf-8", "replace").partition(";")[0].partition("=")
                jar[name.strip()] = value.strip()
        return jar

    def header(self, name: str) -> str | None:
        wanted = name.lower().encode()
        for key, value in self.headers:
            if key.lower() == wanted:
                return value.decode("utf-8", "replace")
        return None

    @property
    def is_error(self) -> bool:
        return self.status >= 400

    def json(self) -> Any:
        """The body as JSON; the standard parser takes over for what orjson refuses (NaN, lone surrogates)."""
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError:
            return json.loads(self.body)


class Connections:
    """The pool of one process. Open it, and close it."""

    def __init__(self, pool: Pool, shares: Shares) -> None:
        self._pool = pool
        self._shares = shares
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=self._shares.limit,
            limit_per_host=self._shares.limit_per_host,
            keepalive_timeout=KEEPALIVE_SECONDS,
            # A container that is made anew may get another's old address: a remembered one would lead astray.
            use_dns_cache=False,
            socket_factory=self._socket,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, connect=None, sock_connect=None, sock_read=None),
            trust_env=False,
            skip_auto_headers=("User-Agent", "Content-Type"),
        )
        return self._session

    async def close(self) -> None:
        session, self._session = self._session, None  # nothing is begun any more while it closes
        if session is not None:
            await session.close()

    @property
    def is_open(self) -> bool:
        return self._session is not None

    async def once(
        self,
        method: str,
        url: str,
        body: bytes | Path | None,
        headers: dict[str, str],
        route: Route | None = None,
    ) -> Answer:
        """Send one request and read the whole answer. Raises TransportError."""
        if self._session is None:
            raise RuntimeError("Transport is used outside of `async with`")
        options: dict[str, Any] = {}
        if route is not None:
            options, headers = route.options, route.headers(url, headers)
        data = body.open("rb") if isinstance(body, Path) else body  # closed by aiohttp once it is sent
        try:
            async with self._session.request(
                method, url, data=data, headers=headers, allow_redirects=False, **options
            ) as response:
                content = await response.read()
                return Answer(
                    response.status, response.raw_headers, content, shown(url), response.reason or ""
                )
        except aiohttp.ClientConnectorError as error:
            is_local = error.os_error.errno in _LOCAL_ERRNOS
            kind = "transport_local_resource" if is_local else "transport_unreachable"
            raise TransportError(kind, url, str(error)) from error
        except aiohttp.ConnectionTimeoutError as error:
            raise TransportError("transport_unreachable", url, "no connection was made in time") from error
        except _NO_URL as error:
            raise TransportError("transport_unreachable", url, "not an http URL") from error
        except (aiohttp.ClientError, ConnectionError) as error:
            raise TransportError("transport_peer_drop", url, f"{type(error).__name__}: {error}") from error

    def _socket(self, address: aiohttp.AddrInfoType) -> socket.socket:
        family, kind, protocol, _, _ = address
        made = socket.socket(family=family, type=kind, proto=protocol)
        keep_alive(made, self._pool)
        return made


def shown(url: str) -> str:
    """The URL for messages: without user info, query and fragment."""
    if "@" not in url and "?" not in url:
        return url
    scheme, mark, rest = url.partition("://")
    place, slash, path = rest.partition("?")[0].partition("/")
    return f"{scheme}{mark}{place.rpartition('@')[2]}{slash}{path}"


def origin_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def keep_alive(sock: socket.socket, pool: Pool) -> None:
    """Let the kernel notice a peer that is gone. Set on a listening socket, accepted sockets inherit it."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", pool.keepalive_idle_seconds),
        ("TCP_KEEPINTVL", pool.keepalive_interval_seconds),
        ("TCP_KEEPCNT", pool.keepalive_probes),
    ):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
