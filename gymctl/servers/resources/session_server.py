"""What resources servers of both styles, tools and steps, have in common: sessions, threads, aggregation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, ClassVar, TypeVar

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from gymctl.contract.aggregate import AggregateRequest
from gymctl.contract.part import ServerPart
from gymctl.errors import ConfigError
from gymctl.metrics.aggregate import aggregate
from gymctl.metrics.hooks import MetricHooks
from gymctl.servers.resources.config import ResourcesConfig
from gymctl.servers.resources.state import SessionStore
from gymctl.servers.resources.threads import HandlerThreads
from gymctl.servers.stack.base import Server, ServerConfig
from gymctl.servers.stack.prefix import PrefixRule
from gymctl.servers.stack.wire import Json, json_object, validated

T = TypeVar("T")

SWEEP_SECONDS = 30.0


class SessionServer(MetricHooks, Server):
    """Handlers may be `async def`, or a plain `def` that blocks: that one runs in a thread."""

    needs: ClassVar[type[ServerConfig]] = ResourcesConfig
    prefix: ClassVar[PrefixRule] = PrefixRule.ANY_PATH
    handler_threads: ClassVar[int] = 64
    """How many plain `def` handlers run at once. With 1, all run in one and the same thread, one by one: for
    libraries whose objects belong to the thread that made them. Make those in a handler, too, or in `startup`
    by `await self.in_thread(function)`; a plain `def close` of a session's state runs there as well."""

    def __init__(self, part: ServerPart) -> None:
        super().__init__(part)
        self._threads = HandlerThreads(self.handler_threads)
        self.sessions = SessionStore(
            maximum=self.config.max_sessions,
            idle_seconds=self.config.session_idle_seconds,
            run=self._threads.run,
        )
        if self.is_stateful and part.workers > 1:
            raise ConfigError(
                f"`num_workers`: {part.workers}, but {type(self).__name__} keeps state of sessions",
                where=part.name,
                hint="it must be 1: a session's requests have to meet the same process",
            )

    @property
    def is_stateful(self) -> bool:
        raise NotImplementedError

    async def in_thread(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Run a blocking function where the plain `def` handlers run."""
        return await self._threads.run(function, *args, **kwargs)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with super().running():
            sweeper = asyncio.create_task(self._sweep())
            try:
                yield
            finally:
                sweeper.cancel()
                await asyncio.wait([sweeper])
                await self.sessions.close_all()
                self._threads.close()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(min(SWEEP_SECONDS, self.config.session_idle_seconds / 2))
            await self.sessions.sweep()

    def routes(self, app: Starlette) -> None:
        super().routes(app)
        self.post(app, "/aggregate_metrics", self._aggregate_metrics, takes=AggregateRequest)

    async def _aggregate_metrics(self, request: Request) -> Response:
        body = validated(AggregateRequest, await json_object(request))
        return Json(await self.in_thread(aggregate, body.verify_responses, self))
