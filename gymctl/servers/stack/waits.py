"""Whom this server waits for, by rollout: what `GET /gymctl/waiting` answers from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from starlette.requests import Request
from starlette.responses import Response

from gymctl.connections import origin_of
from gymctl.servers.stack.wire import Json
from gymctl.transport import ROLLOUT


class Waits:
    """The calls to servers of the project that are open now; holds an entry for each, and nothing else."""

    def __init__(self, names: Mapping[str, str]) -> None:
        """names: by `http://host:port`, who is called there."""
        self._names = names
        self._open: dict[str, list[str]] = {}

    @contextmanager
    def during(self, rollout: str | None, url: str) -> Iterator[None]:
        """A call is open for a rollout."""
        server = None if rollout is None else self._names.get(origin_of(url))
        if rollout is None or server is None:
            yield
            return
        servers = self._open.setdefault(rollout, [])
        servers.append(server)
        try:
            yield
        finally:
            servers.remove(server)
            if not servers:
                self._open.pop(rollout, None)

    def oldest(self, rollout: str | None) -> str | None:
        """The server that was called first of those that are waited for."""
        servers = None if rollout is None else self._open.get(rollout)
        return servers[0] if servers else None

    async def answer(self, request: Request) -> Response:
        return Json({"server": self.oldest(ROLLOUT.get())})
