"""Make the rollouts: bounded workers, one `POST /run` each; a failed rollout is a record, no exception.

drain    no new rollout is started, the running ones are waited for
death    rollouts that need the dead server fail at once as infrastructure; the others are waited for
cancel   everything stops now; what is written is whole, what was running counts as not run
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, field

from gymctl.contract.rollout import Row
from gymctl.contract.servers import ServerTable
from gymctl.errors import GymctlError, ServerError
from gymctl.metrics.declared import Declaration
from gymctl.metrics.outcomes import Outcome, outcome
from gymctl.metrics.tally import Tally
from gymctl.rollouts.captures import Captures
from gymctl.rollouts.episodes import body, identify, record_of, stamp
from gymctl.rollouts.expand import rollout_id
from gymctl.rollouts.failures import Death, Lost, blame, collector_bug, no_answer, request_failed
from gymctl.rollouts.route import Route, Router, depends_on
from gymctl.rollouts.store import RunStore
from gymctl.transport import ROLLOUT, Transport, TransportError

logger = logging.getLogger(__name__)

UNREACHABLE_SECONDS = 10.0
"""A server that refuses connections for so long is lost."""
DEATH_NOTICE_SECONDS = 2.0
"""A broken connection is often seen before the news of the death that broke it."""
QUIET_SECONDS = 10.0
"""Connections that break without a death do not each cost such a wait."""


@dataclass(frozen=True, slots=True)
class CollectOptions:
    concurrency: int
    task_timeout: float | None = None
    """Seconds for one rollout; None is no limit."""
    declared: Declaration = field(default_factory=Declaration)
    """Which failures count as reward 0."""
    captures: Captures | None = None
    """Model calls are on record, and belong to the records of their rollouts."""
    unreachable_seconds: float = UNREACHABLE_SECONDS
    death_notice_seconds: float = DEATH_NOTICE_SECONDS


@dataclass(slots=True)
class _Destination:
    """An environment server of this run and the calls that are open to it."""

    name: str
    url: str
    implementation: str
    needs: frozenset[str]
    guards: set[asyncio.Timeout] = field(default_factory=set)
    lost: Lost | None = None


class Collector:
    """One run over one server table. `run` may be called once."""

    def __init__(
        self,
        transport: Transport,
        table: ServerTable,
        router: Router,
        store: RunStore,
        tally: Tally,
        options: CollectOptions,
    ) -> None:
        self.lost: list[Lost] = []
        """Servers of this run that died or cannot be reached; not empty: the run ended early."""
        self._transport = transport
        self._table = table
        self._router = router
        self._store = store
        self._tally = tally
        self._options = options
        self._models = frozenset(
            mark
            for entry in table.of_kind("responses_api_models")
            for mark in (entry.name, f"{entry.address.host}:{entry.address.port}")
        )
        self._destinations: dict[str, _Destination] = {}
        self._is_watching = False
        self._news = asyncio.Event()
        self._quiet_until = 0.0

    async def run(self, drain: asyncio.Event, deaths: AsyncIterator[Death] | None = None) -> None:
        """Collect all rollouts of the store's inputs. Raises ServerError when a server does not answer at
        the start, and RunError when the disk is full; a death later ends the run with `lost` set."""
        inputs = self._store.inputs()
        workers = min(self._options.concurrency, self._tally.planned)
        try:
            async with asyncio.TaskGroup() as outer:
                watch = outer.create_task(self._watch(deaths)) if deaths is not None else None
                async with asyncio.TaskGroup() as group:
                    for _ in range(workers):
                        group.create_task(self._work(inputs, drain))
                if watch is not None:
                    watch.cancel()
        except BaseExceptionGroup as errors:
            raise _first_cause(errors) from errors

    async def check(self, servers: Iterable[str]) -> None:
        """Ask every environment server of the plan for a sign of life before the first rollout is sent."""
        for name in servers:
            destination = self._destination(name)
            try:
                await self._transport.call(
                    "GET",
                    f"{destination.url}/readyz",
                    timeout=self._options.unreachable_seconds * 2,
                    retry_seconds=self._options.unreachable_seconds,
                )
            except TransportError as error:
                raise ServerError(
                    f"the environment server `{name}` does not answer",
                    where=destination.url,
                    hint="gymctl ps shows what is running",
                    details=[error.detail],
                ) from error

    async def _work(self, inputs: Iterator[tuple[bytes, Row]], drain: asyncio.Event) -> None:
        while not drain.is_set() and not self.lost:
            item = next(inputs, None)
            if item is None:
                return
            await self._one(*item)

    async def _one(self, line: bytes, row: Row) -> None:
        """Make one rollout and write down what became of it."""
        name = rollout_id(row)
        ROLLOUT.set(name)
        loop = asyncio.get_running_loop()
        started_at, start = time.time(), loop.time()
        self._tally.running[name] = start
        captures = self._options.captures
        try:
            if captures is not None:
                await captures.clear(name)
            record, result, size = await self._outcome(line, row, name)
            seconds = loop.time() - start
            if captures is not None:
                size += await captures.attach(record, row, name, seconds)
            stamp(record, result, started_at, seconds)
            await self._store.append(record, size)
            self._tally.add(row, result, record)
        finally:
            self._tally.running.pop(name, None)

    async def _outcome(self, line: bytes, row: Row, name: str) -> tuple[Row, Outcome, int]:
        size = 0
        try:
            route: Route = self._router.route(row)
            destination = self._destination(route.server)
            record, size = await self._send(destination, line, row, name)
            identify(record, row, name, destination.name, destination.implementation)
            result = outcome(record, self._models)
            if result.failure == "infrastructure" and await self._is_death(destination, record):
                result = outcome(record, self._models)
        except GymctlError:
            raise
        except Exception as error:
            # The border: a bug met by one rollout must not end the others.
            logger.exception("rollout %s: a bug in the collector", name)
            record = collector_bug(error)
            identify(record, row, name, self._router.route(row).server, "")
            result = outcome(record, self._models)
        return record, self._options.declared.applied(record, result), size

    async def _send(self, destination: _Destination, line: bytes, row: Row, name: str) -> tuple[Row, int]:
        """The record of one call, without identity, and about how large it is."""
        self._store.sent(row, name, destination.name)
        try:
            async with asyncio.timeout(self._options.task_timeout) as guard:
                destination.guards.add(guard)
                try:
                    answer = await self._transport.call(
                        "POST",
                        f"{destination.url}/run",
                        body(line, row),
                        key=self._store.key(name),
                        retry_seconds=self._options.unreachable_seconds,
                    )
                finally:
                    destination.guards.discard(guard)
        except TimeoutError:
            if destination.lost is not None:
                return request_failed("transport_peer_drop", "ServerLost", ""), 0
            limit = self._options.task_timeout
            return request_failed("transport_timeout", "TimeoutError", f"no answer within {limit} s"), 0
        except TransportError as error:
            if error.kind == "transport_unreachable":
                await self._unreachable(destination)
            return no_answer(error), 0
        return record_of(answer, row), len(answer.body)

    async def _watch(self, deaths: AsyncIterator[Death]) -> None:
        self._is_watching = True
        try:
            async for death in deaths:
                self._lose(Lost.of(death))
        finally:
            self._is_watching = False

    def _lose(self, lost: Lost) -> None:
        """Fail what needs the lost server, and start nothing more if any rollout of this run does."""
        loop = asyncio.get_running_loop()
        for destination in self._destinations.values():
            if lost.server not in destination.needs:
                continue
            if not self.lost or self.lost[-1] != lost:
                self.lost.append(lost)
            destination.lost = destination.lost or lost
            for guard in destination.guards:
                guard.reschedule(loop.time())
        self._news.set()

    async def _unreachable(self, destination: _Destination) -> None:
        """Nobody told us of a death, and yet the server has refused connections for long enough."""
        await self._notice(destination)
        if destination.lost is None:
            seconds = self._options.unreachable_seconds
            self._lose(Lost(destination.name, f"refuses connections at {destination.url} for {seconds:g} s"))

    async def _is_death(self, destination: _Destination, record: Row) -> bool:
        """Whether a lost server explains an infrastructure failure; if so the record names it."""
        if (
            record.get("_ng_failure_stage") == "admission"
            or record.get("failure_kind") == "transport_timeout"
        ):
            return False
        await self._notice(destination)
        if destination.lost is None:
            return False
        blame(record, destination.lost)
        return True

    async def _notice(self, destination: _Destination) -> None:
        """Give the news of a death a moment to arrive; not again soon after a moment that brought none."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._quiet_until:
            return
        end = loop.time() + self._options.death_notice_seconds
        while self._is_watching and destination.lost is None and loop.time() < end:
            self._news.clear()
            try:
                async with asyncio.timeout_at(end):
                    await self._news.wait()
            except TimeoutError:
                self._quiet_until = loop.time() + QUIET_SECONDS
                return

    def _destination(self, name: str) -> _Destination:
        if name not in self._destinations:
            entry = self._table[name]
            self._destinations[name] = _Destination(
                name, entry.url, entry.address.implementation, depends_on(self._table, name)
            )
        return self._destinations[name]


def _first_cause(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error that made the others stop."""
    first = errors.exceptions[0]
    return _first_cause(first) if isinstance(first, BaseExceptionGroup) else first
