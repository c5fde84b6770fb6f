"""Make the rollouts: one `POST /run` for each attempt; a failed rollout is a record, no exception.

drain    no new rollout is started, the running ones are waited for
death    rollouts that need the dead server fail at once as infrastructure; the others are waited for
cap      like a drain: time, tokens or money of the run are used up
strict   the first failure that is not tried again stops everything, as an error
cancel   everything stops now; what is written is whole, what was running counts as not run

One task sends (`_dispatch`), and one task per running rollout waits for its answer. The governor says how
many may run, the queue what is next; a rollout that pauses before its next attempt is in the queue and holds
no place.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from gymctl.contract.rollout import Row
from gymctl.contract.servers import ServerTable
from gymctl.errors import GymctlError, RunError, first_cause
from gymctl.metrics.declared import Declaration
from gymctl.metrics.fingerprint import addresses, server_of
from gymctl.metrics.outcomes import Outcome, outcome
from gymctl.metrics.tally import Tally
from gymctl.metrics.usage import Usage
from gymctl.rollouts.captures import Captures
from gymctl.rollouts.destinations import (
    DEATH_NOTICE_SECONDS,
    UNREACHABLE_SECONDS,
    Destination,
    Destinations,
)
from gymctl.rollouts.episodes import Received, body, identify, record_of, stamp
from gymctl.rollouts.expand import rollout_id
from gymctl.rollouts.failures import Death, Lost, collector_bug, no_answer, request_failed
from gymctl.rollouts.governor import Governor, overload
from gymctl.rollouts.limits import Caps, Clock
from gymctl.rollouts.queue import Queue, Work
from gymctl.rollouts.retries import Retries
from gymctl.rollouts.route import Route, Router
from gymctl.rollouts.store import RunStore
from gymctl.transport import ROLLOUT, TAKEN_BACK_HEADER, Answer, Transport, TransportError

logger = logging.getLogger(__name__)

AT_ONCE = 64
"""Rollouts that are started before the answers of others get their turn."""
FEWEST_PAUSING = 64
"""So many failed rollouts may pause before a next attempt, and as many as may run."""


@dataclass(frozen=True, slots=True)
class CollectOptions:
    concurrency: int
    """At most so many rollouts at once; fewer while the provider says that it is too busy."""
    task_timeout: float | None = None
    """Seconds for one rollout; None is no limit."""
    declared: Declaration = field(default_factory=Declaration)
    """Which failures count as reward 0."""
    captures: Captures | None = None
    """Model calls are on record, and belong to the records of their rollouts."""
    unreachable_seconds: float = UNREACHABLE_SECONDS
    death_notice_seconds: float = DEATH_NOTICE_SECONDS
    retries: Retries = field(default_factory=Retries)
    caps: Caps = field(default_factory=Caps)
    is_strict: bool = False
    """The first failure that is not tried again ends the run (`route_failures_to_sidecar: false`)."""
    ended: Callable[[Row], Awaitable[None]] | None = None
    """Told of every rollout that has ended, by its record. While it waits, nothing is started."""


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
        self.cap: str | None = None
        """The cap that was reached, as it is spelled."""
        self.governor = Governor(options.concurrency)
        self._transport = transport
        self._router = router
        self._store = store
        self._tally = tally
        self._options = options
        self._models = frozenset(
            mark
            for entry in table.of_kind("responses_api_models")
            for mark in (entry.name, f"{entry.address.host}:{entry.address.port}")
        )
        self._changed = asyncio.Event()
        """Something happened for which the dispatcher should look again."""
        self._destinations = Destinations(
            table, options.unreachable_seconds, options.death_notice_seconds, self._changed.set
        )
        self._queue = Queue(store.inputs(), max(options.concurrency, FEWEST_PAUSING))
        self._clock = Clock(options.caps)
        self._is_stopping = False
        self._handing_over = 0
        self._addresses = addresses(
            {name: (entry.address.host, entry.address.port) for name, entry in table.servers.items()}
        )

    @property
    def lost(self) -> list[Lost]:
        """Servers of this run that died or cannot be reached; not empty: the run ended early."""
        return self._destinations.lost

    async def check(self, servers: Iterable[str]) -> None:
        """Ask every environment server of the plan for a sign of life before the first rollout is sent."""
        await self._destinations.check(self._transport, servers)

    async def run(self, drain: asyncio.Event, deaths: AsyncIterator[Death] | None = None) -> None:
        """Collect all rollouts of the store's inputs. Raises RunError when the disk is full, or at the first
        failure of a strict run; a death later ends the run with `lost` set, a cap with `cap`."""
        self._clock.start(asyncio.get_running_loop().time())
        try:
            async with asyncio.TaskGroup() as outer:
                helpers = [outer.create_task(self._tell_of(drain))]
                if deaths is not None:
                    helpers.append(outer.create_task(self._destinations.watch(deaths)))
                async with asyncio.TaskGroup() as group:
                    await self._dispatch(group, drain)
                for helper in helpers:
                    helper.cancel()
        except BaseExceptionGroup as errors:
            raise first_cause(errors) from errors
        finally:
            self._give_up_pausing()

    async def _tell_of(self, drain: asyncio.Event) -> None:
        await drain.wait()
        self._changed.set()

    async def _dispatch(self, group: asyncio.TaskGroup, drain: asyncio.Event) -> None:
        """Start what may be started, until nothing is left or the run has to stop."""
        loop = asyncio.get_running_loop()
        started = 0
        while not (drain.is_set() or self.lost or self._is_at_cap(loop.time())):
            now = loop.time()
            self._changed.clear()
            may_start = not self._handing_over and self.governor.admits(now)
            work = self._queue.next(now) if may_start else None
            if work is not None:
                group.create_task(self._one(work, self.governor.sent()))
                started += 1
                if started % AT_ONCE == 0:
                    await asyncio.sleep(0)
            elif self._queue.is_empty and not self.governor.in_flight:
                return
            else:
                await self._until_changed(now)
        self._is_stopping = True

    async def _until_changed(self, now: float) -> None:
        """Wait for an answer, a stop, or the next moment at which something may be sent."""
        times = (self._queue.next_due, self.governor.resumes_at, self._clock.ends_at)
        when = min((at for at in times if at is not None and at > now), default=None)
        try:
            async with asyncio.timeout_at(when):
                await self._changed.wait()
        except TimeoutError:
            return

    def _is_at_cap(self, now: float) -> bool:
        cap = self._clock.reached(now, self._tally)
        if cap is not None and self._queue.has_more():  # reached with the last rollout: nothing is missing
            self.cap = cap
        return self.cap is not None

    def _give_up_pausing(self) -> None:
        """The failure of a rollout whose next attempt is not made any more stands."""
        for work in self._queue.abandon():
            if work.failed is not None:
                self._tally.give_up(work.row, work.failed)

    async def _one(self, work: Work, ticket: int) -> None:
        """Make one attempt and write down what became of it."""
        name = rollout_id(work.row)
        ROLLOUT.set(name)
        loop = asyncio.get_running_loop()
        started_at, start = time.time(), loop.time()
        self._tally.running[name] = start
        has_told = False
        captures = self._options.captures
        try:
            if captures is not None:
                await captures.clear(name)
            received, result = await self._outcome(work, name)
            record, size, is_plain = received.record, received.size, received.is_plain
            self._tell_governor(record, result, ticket)
            has_told = True
            seconds = loop.time() - start
            self._clock.ended(seconds)
            if captures is not None:
                size += await captures.attach(record, work.row, name, seconds)
                is_plain = False
                if result.failure is None and record.get("mask_sample"):
                    result = outcome(record, self._models)  # its tokens may have masked it
            server = "" if result.failure is None else server_of(record, self._addresses)
            stamp(record, result, started_at, seconds, self._caps_passed(record), server)
            await self._store.append(record, size, is_plain=is_plain)
            is_over = self._count(work, record, result)
            if captures is not None:
                captures.check(record)
            if is_over:
                await self._hand_over(record)
        finally:
            if not has_told:
                self.governor.left(ticket)
            self._tally.running.pop(name, None)
            self._changed.set()
            self._tally.asked.pop(name, None)

    async def _hand_over(self, record: Row) -> None:
        if self._options.ended is None:
            return
        self._handing_over += 1
        try:
            await self._options.ended(record)
        finally:
            self._handing_over -= 1

    def _caps_passed(self, record: Row) -> list[str]:
        """The caps per rollout that this one has passed."""
        caps, used = self._options.caps, Usage.of(record)
        price = self._tally.price if caps.rollout_cost is not None else None
        return caps.passed_by(used, price(record, used) if price is not None and used is not None else None)

    def _tell_governor(self, record: Row, result: Outcome, ticket: int) -> None:
        asked = overload(record, result)
        if asked is not None:
            self.governor.refused(ticket, asyncio.get_running_loop().time(), asked)
        elif result.failure == "infrastructure":
            self.governor.left(ticket)
        else:
            self.governor.answered(ticket)

    def _count(self, work: Work, record: Row, result: Outcome) -> bool:
        """Count the attempt as the end of its rollout (True), or plan the next one."""
        retries = self._options.retries
        pause = None if self._is_stopping else retries.pause(work, record, result, self._store.policy)
        if pause is not None:
            self._tally.retry(record)
            self._queue.put_back(work.again(record, result), asyncio.get_running_loop().time() + pause)
            return False
        self._tally.add(work.row, result, record)
        if self._options.is_strict and result.failure is not None:
            raise RunError(
                f"rollout {rollout_id(work.row)} failed, and the run stops at the first failure",
                details=[f"{result.failure}: {result.reason}", *([result.cause] if result.cause else [])],
                where=str(self._store.paths.failures),
                hint="without --strict a failed rollout is counted and the others go on",
            )
        return True

    async def _outcome(self, work: Work, name: str) -> tuple[Received, Outcome]:
        row = work.row
        try:
            route: Route = self._router.route(row)
            destination = self._destinations[route.server]
            self._tally.asked[name] = route.server
            received = await self._send(destination, work, name)
            record = received.record
            identify(record, row, name, destination.name, destination.implementation)
            result = outcome(record, self._models)
            if result.failure == "infrastructure" and await self._destinations.is_death(destination, record):
                result = outcome(record, self._models)
        except GymctlError:
            raise
        except Exception as error:
            # The border: a bug met by one rollout must not end the others.
            logger.exception("rollout %s: a bug in the collector", name)
            received = Received(collector_bug(error))
            record = received.record
            identify(record, row, name, self._router.route(row).server, "")
            result = outcome(record, self._models)
        return received, self._options.declared.applied(record, result)

    async def _send(self, destination: Destination, work: Work, name: str) -> Received:
        try:
            async with asyncio.timeout(self._options.task_timeout) as guard:
                destination.guards.add(guard)
                try:
                    answer = await self._answer(destination, work, name)
                finally:
                    destination.guards.discard(guard)
        except TimeoutError:
            if destination.lost is not None:
                return Received(request_failed("transport_peer_drop", "ServerLost", ""))
            limit = self._options.task_timeout
            return Received(
                request_failed("transport_timeout", "TimeoutError", f"no answer within {limit} s")
            )
        except TransportError as error:
            if error.kind == "transport_unreachable":
                await self._destinations.unreachable(destination)
            return Received(no_answer(error))
        return record_of(answer, work.row)

    async def _answer(self, destination: Destination, work: Work, name: str) -> Answer:
        while True:
            self._store.sent(work.row, name, destination.name)
            answer = await self._transport.call(
                "POST",
                f"{destination.url}/run",
                body(work.line, work.row),
                key=self._store.key(name),
                retry_seconds=self._options.unreachable_seconds,
            )
            if answer.header(TAKEN_BACK_HEADER) is None:
                return answer
            # In flight when an earlier session was killed, and cancelled since: no failure of this rollout.
            self._store.given_up(name)
