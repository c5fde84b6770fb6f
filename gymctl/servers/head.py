"""The head: what clients ask first. Both views of the config, the list of servers, and whether all are ready.

It listens twice in one process: once for the host, once for the servers' network, and each listener answers
with addresses that its callers can dial (DESIGN D1). Readiness is found out in the background and flips once.
A client on the host that asks for the config before all servers answer waits for it: whoever has it dials
them at once, and takes a refused rollout for one that scored nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from pydantic import TypeAdapter, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gymctl.contract.part import EndpointState, HeadPart, HeadStatus, HeadTarget, TargetState
from gymctl.servers.stack.liveness import PROJECT_HEADER, SERVER_HEADER
from gymctl.servers.stack.refusals import answer_refused
from gymctl.servers.stack.wire import Json, dumps
from gymctl.transport import Answer, Transport, TransportError

logger = logging.getLogger("gymctl.head")

NAME = "head"
"""How the head names itself where servers name their instance id."""
PROBE_SECONDS = 5.0
FAST_PAUSE = 0.1
SLOW_PAUSE = 1.0
"""Between two probes of one server: fast during the first half minute, when most servers come up."""
FAST_FOR = 30.0

_ENDPOINTS = TypeAdapter(list[EndpointState])


class Watch:
    """Asks every target until it answers, then every model server until its upstream does."""

    def __init__(self, part: HeadPart) -> None:
        self._part = part
        self._told: set[tuple[str, str]] = set()
        self._all_answered = asyncio.Event()
        self._started = time.monotonic()
        self.start_time = time.time()
        self.states = {
            target.name: TargetState(name=target.name, kind=target.kind, state="starting")
            for target in part.targets
        }

    @property
    def has_all_answered(self) -> bool:
        return all(state.state == "ready" for state in self.states.values())

    @property
    def _has_waiting(self) -> bool:
        endpoints = (endpoint for state in self.states.values() for endpoint in state.endpoints)
        return any(endpoint.state == "waiting" for endpoint in endpoints)

    @property
    def is_ready(self) -> bool:
        return self.has_all_answered and not (self._part.waits_for_models and self._has_waiting)

    @property
    def status(self) -> HeadStatus:
        targets = list(self.states.values())
        return HeadStatus(project=self._part.project, ready=self.is_ready, targets=targets)

    async def run(self) -> None:
        async with Transport() as transport, asyncio.TaskGroup() as group:
            if not self._part.targets:
                self._all_answered.set()
            for target in self._part.targets:
                group.create_task(self._follow(target, transport))
        logger.info("all %d servers are ready", len(self.states))

    async def until_all_answered(self) -> None:
        await self._all_answered.wait()

    async def _follow(self, target: HeadTarget, transport: Transport) -> None:
        state = self.states[target.name]
        while not await self._answers(target, transport):
            await self._pause()
        if target.family == "gymctl" and target.kind == "responses_api_models":
            # First the endpoints, then the state: the head must not look ready in between.
            state.endpoints = [EndpointState(key="", url="", state="waiting", detail="not asked yet")]
        state.detail = ""
        state.seconds = round(time.monotonic() - self._started, 3)
        state.state = "ready"
        if self.has_all_answered:
            self._all_answered.set()
        while any(endpoint.state == "waiting" for endpoint in state.endpoints):
            found = await self._endpoints(target, transport)
            if found is not None:
                state.endpoints = found
            if any(endpoint.state == "waiting" for endpoint in state.endpoints):
                await self._pause()

    async def _pause(self) -> None:
        is_early = time.monotonic() - self._started < FAST_FOR
        await asyncio.sleep(FAST_PAUSE if is_early else SLOW_PAUSE)

    async def _answers(self, target: HeadTarget, transport: Transport) -> bool:
        """Ours must say that they are who we look for; from a foreign server any status will do."""
        if target.family != "gymctl":
            return await _get(transport, f"{target.url}/") is not None
        answer = await _get(transport, f"{target.url}/readyz")
        if answer is None or answer.status != 200:
            return False
        identity = (answer.header(PROJECT_HEADER), answer.header(SERVER_HEADER))
        if identity != (self._part.project, target.name):
            self._stranger(target, *identity)
            return False
        return True

    def _stranger(self, target: HeadTarget, project: str | None, name: str | None) -> None:
        """Told once for each stranger, not ten times a second, and to whoever asks for the status."""
        who = f"`{name}` of project `{project}`" if project else "a server that is not gymctl's"
        self.states[target.name].detail = f"at {target.url} answers {who}"
        if (target.name, who) not in self._told:
            self._told.add((target.name, who))
            logger.warning("%s is waited for, but at %s answers %s", target.name, target.url, who)

    async def _endpoints(self, target: HeadTarget, transport: Transport) -> list[EndpointState] | None:
        """What a model server says of its upstream; a server without that route has none to wait for."""
        answer = await _get(transport, f"{target.url}/gymctl/upstream")
        if answer is None or answer.status >= 500:
            return None
        if answer.status != 200:
            return []
        try:
            return _ENDPOINTS.validate_json(answer.body)
        except ValidationError as error:
            logger.error("%s: /gymctl/upstream is not understood: %s", target.name, error)
            return None


async def _get(transport: Transport, url: str) -> Answer | None:
    try:
        return await transport.call("GET", url, timeout=PROBE_SECONDS, retry_seconds=0)
    except TransportError:
        return None


def views(part: HeadPart) -> Sequence[tuple[Starlette, int]]:
    """The two apps with their ports: the host's first. They share one watch, which the first one runs."""
    watch = Watch(part)
    waits, at_once = watch.until_all_answered, _nothing_to_wait_for
    host = _view(part.project, part.host_view, part.host_instances, watch, waits, _watching(watch))
    network = _view(part.project, part.network_view, part.network_instances, watch, at_once, None)
    return [(host, part.host_view_port), (network, part.network_view_port)]


async def _nothing_to_wait_for() -> None:
    """The servers themselves ask for the network's view while they start."""


def _watching(watch: Watch) -> Any:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(watch.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    return lifespan


def _view(
    project: str,
    text: str,
    instances: list[dict[str, Any]],
    watch: Watch,
    until_served: Callable[[], Awaitable[None]],
    lifespan: Any,
) -> Starlette:
    document = dumps(text)  # a JSON string whose text is YAML: clients decode twice
    listed = dumps([{**row, "start_time": row.get("start_time") or watch.start_time} for row in instances])

    identity = {PROJECT_HEADER: project, SERVER_HEADER: NAME}

    async def alive(request: Request) -> Response:
        return Json(b'{"status":"ok"}', headers=identity)

    async def ready(request: Request) -> Response:
        if watch.is_ready:
            return await alive(request)
        return Json(b'{"status":"starting"}', status_code=503, headers=identity)

    async def config(request: Request) -> Response:
        try:
            await until_served()
        except asyncio.CancelledError:  # the head is being stopped; the caller is gone with its connection
            return Json(b'{"status":"stopping"}', status_code=503)
        return Json(document)

    async def server_instances(request: Request) -> Response:
        return Json(listed if watch.has_all_answered else b"[]")

    async def status(request: Request) -> Response:
        return Json(watch.status)

    endpoints = {
        "/": alive,
        "/livez": alive,
        "/readyz": ready,
        "/healthz": ready,
        "/health": ready,
        "/global_config_dict_yaml": config,
        "/server_instances": server_instances,
        "/gymctl/status": status,
    }
    routes = [Route(path, endpoint) for path, endpoint in endpoints.items()]
    return Starlette(routes=routes, exception_handlers={HTTPException: answer_refused}, lifespan=lifespan)
