"""When is a project ready? When every server answers at the address that clients will dial (DESIGN D5).

gymctl asks by itself, ten and more times a second: on every engine that is faster than health checks. A
server that dies ends the wait at once. After the servers come the models behind them, as the head sees them.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import aiohttp

from gymctl.compose.names import HEAD
from gymctl.config.model import Config
from gymctl.config.tree.masking import redact
from gymctl.contract.part import EndpointState, HeadStatus
from gymctl.errors import ConfigError, GymctlError, ServerError
from gymctl.runtime import diagnosis, probe, tasks
from gymctl.runtime.running import RunningProject
from gymctl.runtime.stack import Reporter

FAST_PAUSE = 0.05
SLOW_PAUSE = 0.25
FAST_FOR = 20.0
STRANGER_SECONDS = 5.0
"""An earlier project that is just going down may still answer for a moment."""
LONG_SECONDS = 60.0
"""What does not answer by then is named, also where no terminal shows it."""
SHOWN_LOGS = 3


class PortTakenError(GymctlError):
    """A server could not have its port. Not for users: `up` tries again with another one."""

    def __init__(self, server: str, port: int) -> None:
        super().__init__(f"port {port} was taken before `{server}` could have it")
        self.server = server
        self.port = port


@dataclass(slots=True)
class Progress:
    """What is known so far."""

    began: float
    answered: dict[str, float] = field(default_factory=dict)
    """Server -> seconds until it first answered at its host address."""
    strangers: dict[str, str] = field(default_factory=dict)
    """Server -> who answers at its address instead, and since when."""
    strange_since: dict[str, float] = field(default_factory=dict)
    head: HeadStatus | None = None

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    async def pause(self) -> None:
        await asyncio.sleep(FAST_PAUSE if self.seconds < FAST_FOR else SLOW_PAUSE)

    def unseen_by_head(self) -> list[str]:
        if self.head is None:
            return []
        return [target.name for target in self.head.targets if target.state != "ready"]

    def waiting(self) -> list[tuple[str, EndpointState]]:
        """Model endpoints that are still waited for, with their server."""
        targets = self.head.targets if self.head is not None else ()
        return [
            (target.name, endpoint)
            for target in targets
            for endpoint in target.endpoints
            if endpoint.state == "waiting"
        ]


async def wait(stack: RunningProject, config: Config, reporter: Reporter, *, began: float) -> None:
    """Return when everything answers. Raises ServerError (a death, the spin-up limit), ConfigError (a model
    endpoint that never answers) or PortTakenError."""
    progress = Progress(began)
    async with probe.client() as session, tasks.group() as group:
        watching = group.create_task(_watch(stack, config, progress))
        talking = group.create_task(_talk(list(stack.servers.values()), stack, progress, reporter))
        await _servers(session, stack, config, progress, reporter)
        await _endpoints(session, stack, config, progress, reporter)
        watching.cancel()
        talking.cancel()


async def _servers(
    session: aiohttp.ClientSession,
    stack: RunningProject,
    config: Config,
    progress: Progress,
    reporter: Reporter,
) -> None:
    limit = config.settings.server_spinup_timeout_seconds
    try:
        async with asyncio.timeout(None if limit is None else max(0.0, limit - progress.seconds)):
            async with tasks.group() as group:
                group.create_task(_head(session, stack, progress, reporter))
                for name in stack.table.servers:
                    group.create_task(_server(session, stack, name, progress, reporter))
                if stack.state.ray:
                    group.create_task(_ray(stack, progress, reporter))
            while progress.head is None or progress.unseen_by_head():
                await progress.pause()
                await _ask_head(session, stack, progress)
    except TimeoutError:
        raise await _too_late(stack, config, progress, limit or 0.0) from None


async def _head(
    session: aiohttp.ClientSession, stack: RunningProject, progress: Progress, reporter: Reporter
) -> None:
    while not await _ask_head(session, stack, progress):
        await progress.pause()
    progress.answered[HEAD] = progress.seconds
    _step(stack, reporter, HEAD, f"ready {progress.seconds:6.1f} s   {stack.head_url}")


async def _ask_head(session: aiohttp.ClientSession, stack: RunningProject, progress: Progress) -> bool:
    answer = await probe.head(session, stack.head_url, stack.project)
    if isinstance(answer, HeadStatus):
        progress.head = answer
        return True
    if answer.stranger:
        _note_stranger(progress, stack, HEAD, answer.stranger)
    return False


def _note_stranger(progress: Progress, stack: RunningProject, name: str, stranger: str) -> None:
    """Remember who answers. Whoever still does after a while holds the address for good: ours could not have
    it, and would not get it by waiting. Raises ServerError."""
    now = progress.seconds
    if progress.strangers.get(name) != stranger:
        progress.strangers[name] = stranger
        progress.strange_since[name] = now
    if now - progress.strange_since[name] < STRANGER_SECONDS:
        return
    raise ServerError(
        f"`{name}` is not what answers at its address",
        where=stack.place(name),
        details=[_state(name, progress, stack)],
        hint="stop what listens there, or give the server another `port`",
    )


async def _server(
    session: aiohttp.ClientSession,
    stack: RunningProject,
    name: str,
    progress: Progress,
    reporter: Reporter,
) -> None:
    url = stack.table[name].url
    while not (answer := await _asked(session, stack, name)).is_ready:
        if answer.stranger:
            _note_stranger(progress, stack, name, answer.stranger)
        await progress.pause()
    progress.answered[name] = progress.seconds
    _step(stack, reporter, name, f"ready {progress.seconds:6.1f} s   {url}")


async def _asked(session: aiohttp.ClientSession, stack: RunningProject, name: str) -> probe.Answer:
    if name in stack.state.foreign:
        return await probe.foreign(session, stack.table[name].url)
    return await probe.server(session, stack.table[name].url, stack.project, name)


async def _ray(stack: RunningProject, progress: Progress, reporter: Reporter) -> None:
    """Until the head of Ray and all its workers have joined, as their own health checks see it."""
    missing = set(stack.state.ray)
    while missing:
        for name in sorted(missing & set(await stack.joined())):
            progress.answered[name] = progress.seconds
            _step(stack, reporter, name, f"ready {progress.seconds:6.1f} s")
            missing.remove(name)
        if missing:
            await asyncio.sleep(SLOW_PAUSE)


async def _endpoints(
    session: aiohttp.ClientSession,
    stack: RunningProject,
    config: Config,
    progress: Progress,
    reporter: Reporter,
) -> None:
    limit = config.settings.model_endpoint_readiness_timeout_seconds
    if limit is None:
        return
    try:
        async with asyncio.timeout(limit):
            while not await _ask_head(session, stack, progress) or progress.waiting():
                await progress.pause()
    except TimeoutError:
        raise _no_model(progress.waiting(), config, limit) from None
    assert progress.head is not None
    for target in progress.head.targets:
        for endpoint in target.endpoints:
            _tell(stack, target.name, endpoint, config, reporter)


def _step(stack: RunningProject, reporter: Reporter, name: str, text: str) -> None:
    """One line of the table that `up` prints, its names as wide as the longest."""
    reporter.step(name.ljust(max(map(len, stack.servers.values()))), text)


def _tell(
    stack: RunningProject, server: str, endpoint: EndpointState, config: Config, reporter: Reporter
) -> None:
    url = redact(endpoint.url, config.secrets)
    if endpoint.state == "answering":
        _step(stack, reporter, server, f"→ {url} answers")
    elif endpoint.state == "unresolvable":
        key = _key(server, endpoint, config)
        reporter.note(f"warning: {url} ({key}) has no address on this network; not waited for")


async def _watch(stack: RunningProject, config: Config, progress: Progress) -> None:
    """The first death ends the wait: its reason instead of a time-out."""
    async with contextlib.aclosing(stack.deaths()) as deaths:
        async for death in deaths:
            port = diagnosis.taken_port(death.last_lines)
            if port is not None:
                raise PortTakenError(death.server, port)
            where = stack.place(death.server)
            raise diagnosis.died_early(death, config, seconds=progress.seconds, where=where)


async def _talk(names: Sequence[str], stack: RunningProject, progress: Progress, reporter: Reporter) -> None:
    """What is waited for, all the time on a terminal, and once everywhere when it takes long."""
    is_told = False
    while True:
        missing = [name for name in names if name not in progress.answered]
        if missing and not is_told and progress.seconds > LONG_SECONDS:
            is_told = True
            for name in missing:
                found = _state(name, progress, stack)
                reporter.note(f"after {LONG_SECONDS:g} s: {found}; `gymctl logs {name}` tells more")
        endpoints = [endpoint.url for _, endpoint in progress.waiting()]
        if missing or endpoints:
            reporter.progress(f"waiting for {', '.join(missing or endpoints)} ({progress.seconds:.0f} s)")
        await asyncio.sleep(0.5)


async def _too_late(stack: RunningProject, config: Config, progress: Progress, limit: float) -> ServerError:
    silent = [name for name in stack.servers.values() if name not in progress.answered]
    details = [_state(name, progress, stack) for name in silent]
    details += [f"{name}: {_cut_off_by(name, progress)}" for name in _cut_off(progress)]
    for name in silent[:SHOWN_LOGS]:
        lines = await stack.last_lines(name)
        details += diagnosis.log_tail(name, lines, config.secrets)
    named = silent or _cut_off(progress)
    return ServerError(
        f"{_names(named)} did not answer within {limit:g} s",
        where=stack.place(named[0]) if named else None,
        details=details,
        hint="++server_spinup_timeout_seconds=… sets the limit (0: none)",
    )


def _state(name: str, progress: Progress, stack: RunningProject) -> str:
    if name in stack.state.ray:
        return f"{name}: running, not part of the Ray cluster yet"
    url = stack.head_url if name == HEAD else stack.table[name].url
    stranger = progress.strangers.get(name)
    if stranger is None:
        return f"{name}: running, no answer at {url}"
    return f"{name}: at {url} answers {stranger}"


def _cut_off(progress: Progress) -> list[str]:
    return [name for name in progress.unseen_by_head() if name in progress.answered]


def _cut_off_by(name: str, progress: Progress) -> str:
    """Why the head waits for a server that the host has reached."""
    targets = progress.head.targets if progress.head is not None else ()
    detail = next((target.detail for target in targets if target.name == name), "")
    return f"for the head, {detail}" if detail else "answers on the host, but the head cannot reach it"


def _no_model(waiting: Iterable[tuple[str, EndpointState]], config: Config, limit: float) -> ConfigError:
    rows = list(waiting)
    details = [
        f"{_key(server, endpoint, config)}: {redact(endpoint.url, config.secrets)} {endpoint.detail}".rstrip()
        for server, endpoint in rows
    ]
    place = _origin(rows, config)
    return ConfigError(
        f"no answer from {'a model endpoint' if len(rows) == 1 else f'{len(rows)} model endpoints'} "
        f"within {limit:g} s",
        where=place,
        details=details,
        hint="start the inference server or correct the URL (--model-url); "
        "++model_endpoint_readiness_timeout_seconds=… sets the limit (0: not waited for)",
    )


def _key(server: str, endpoint: EndpointState, config: Config) -> str:
    block = config.servers[server]
    return f"{server}.{block.kind}.{block.implementation}.{endpoint.key}"


def _origin(rows: list[tuple[str, EndpointState]], config: Config) -> str | None:
    origins: Mapping[str, object] = config.origins
    found = [origins.get(_key(server, endpoint, config)) for server, endpoint in rows]
    return next((str(origin) for origin in found if origin is not None), None)


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "the project"
