"""One evaluation from rows to files, in the order in which things may fail: check, write, collect, aggregate.

run = Run.prepare(request, table)         rows, routes and output checked; what is there is read, not replaced
await run.collect(transport, table, …)    what is owed is made
await run.aggregate(transport, table)     one call per environment server, aggregate file written
run.close()                               always; idempotent
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gymctl.contract.servers import ServerTable
from gymctl.errors import UsageError
from gymctl.metrics.tally import Price, Tally
from gymctl.paths import RunPaths
from gymctl.rollouts import place, resume
from gymctl.rollouts.collect import CollectOptions, Collector
from gymctl.rollouts.dataset import Source
from gymctl.rollouts.encoding import dumps
from gymctl.rollouts.expand import Plan
from gymctl.rollouts.failures import Death, Lost
from gymctl.rollouts.finish import aggregate_metrics, document
from gymctl.rollouts.history import identity as row_of
from gymctl.rollouts.journal import End
from gymctl.rollouts.metric_input import Counting, MetricInput
from gymctl.rollouts.passport import Identity, RowsDigest, Surroundings
from gymctl.rollouts.resume import Found, ResumeOptions
from gymctl.rollouts.route import Router, Routing, Where, depends_on, nowhere
from gymctl.rollouts.saved import SavedRun
from gymctl.rollouts.store import RunStore
from gymctl.rollouts.summary import PlanSummary
from gymctl.rollouts.world import youngest
from gymctl.transport import Transport


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What the user asked for."""

    sources: Sequence[Source]
    output: Path
    limit: int | None = None
    repeats: int | Mapping[str, int] = 1
    routing: Routing = field(default_factory=Routing)
    params: Mapping[str, Any] = field(default_factory=dict)
    is_seeded: bool = False
    is_interleaved: bool = False
    skills: Mapping[str, Any] | None = None
    """`skills_ref` of every row."""
    price: Price | None = None
    """What a record costs, as far as it is known."""
    where: Where = nowhere
    """Who wrote a setting, for errors."""
    resume: ResumeOptions = field(default_factory=ResumeOptions)
    identity: Identity = field(default_factory=Identity)


@dataclass(slots=True)
class Run:
    """A run whose rows, routes and output have been checked."""

    request: RunRequest
    summary: PlanSummary
    store: RunStore
    tally: Tally
    lost: list[Lost] = field(default_factory=list)
    """Servers that died or could not be reached; not empty: the run ended early."""
    owed: int = 0
    """Rollouts that are to be made now."""
    kept: int = 0
    """Rollouts of earlier sessions that are final."""
    notes: tuple[str, ...] = ()
    """What is to be told about an earlier session."""
    cap: str | None = None
    """The cap at which the run stopped, as it is spelled."""
    replaced: tuple[Path, ...] = ()
    """Files of an earlier run that this one replaced."""
    has_begun: bool = False
    """The files are this run's; before, nothing of an earlier run was touched."""
    entries: list[dict[str, Any]] = field(default_factory=list)
    """What the aggregate file holds, once `aggregate` was called."""
    missing_as_zero: int = 0
    """Rollouts that were not run and count as 0 in the aggregate file, once `aggregate` was called."""
    seconds: float = 0.0
    """How long the collection took."""

    @classmethod
    def prepare(cls, request: RunRequest, table: ServerTable) -> Run:
        """Check all that can be checked without a server; write the inputs aside, or read what is there.

        `table` needs names and references only; ports may be unknown. Raises ConfigError (rows, routes),
        UsageError (flags), PrerequisiteError (output) and RunError (results of something else).
        """
        paths, options = RunPaths(request.output), request.resume
        _refuse_own_input(request.sources, paths)
        plan = _plan(request, table)
        # The rows of a run that is gone on with are in its inputs file, should their own be gone.
        is_readable = options.is_fresh or not paths.passport.exists() or _all_there(request.sources)
        summary = plan.check() if is_readable else None
        store = RunStore(paths, options.policy, is_longest_first=options.is_longest_first)
        store.take()
        try:
            found = resume.look(paths, request.identity, options)
            if found.passport is None:
                summary = summary or plan.check()
                rows = (attempt.row for attempt in plan.attempts())
                owed = store.prepare(rows, request.identity, summary.repeats)
                return cls(
                    request,
                    summary,
                    store,
                    resume.tally_of(summary, request.price),
                    owed=owed,
                    notes=found.notes,
                )
            return cls._going_on(request, store, found, plan if summary is not None else None, table)
        except OSError as error:
            store.discard()
            raise place.refused(paths, error) from error
        except BaseException:
            store.discard()
            raise

    @classmethod
    def _going_on(
        cls, request: RunRequest, store: RunStore, found: Found, plan: Plan | None, table: ServerTable
    ) -> Run:
        passport, options, notes = found.passport, request.resume, list(found.notes)
        assert passport is not None
        if not found.is_adopted:
            digest = RowsDigest.of(dumps(item.row) for item in plan.attempts()) if plan is not None else None
            passport = resume.check(store.paths, passport, request.identity, digest, options)
        if plan is None:
            notes.append("the files of the rows are gone; the inputs file has them")
        if _is_empty(store.paths.aggregate):
            notes.append(f"{store.paths.aggregate.name} is empty, as a crash leaves it; it is written anew")
        # Without the settings: a planned row says itself where it goes.
        resumed = resume.go_on(store.paths, passport, Router(table), options, request.price)
        store.go_on(passport, resumed.history, resumed.owed)
        store.note_config(request.identity)
        return cls(
            request,
            resumed.summary,
            store,
            resumed.tally,
            owed=resumed.owed,
            kept=resumed.summary.rollouts - resumed.owed,
            notes=(*notes, *resumed.notes),
        )

    @property
    def is_resumed(self) -> bool:
        return not self.store.is_new

    @property
    def first_model(self) -> str | None:
        """What the model was called when the run was begun, as far as it is known."""
        return None if self.store.passport is None else self.store.passport.model

    @property
    def is_done(self) -> bool:
        """An earlier session made all rollouts that there were to make."""
        return self.is_resumed and not self.owed

    @property
    def has_aggregate(self) -> bool:
        return self.paths.aggregate.exists() and self.paths.aggregate.stat().st_size > 0

    @property
    def still_owed(self) -> int:
        """Rollouts that the same command would make now."""
        return self.store.owed

    @property
    def paths(self) -> RunPaths:
        return self.store.paths

    def owed_by(self, table: ServerTable) -> Counter[str]:
        """Environment server -> rollouts that are to be made now."""
        if not self.is_resumed:
            return Counter(self.summary.planned_by)
        router = Router(table)
        return Counter(router.route(row).server for _, row in self.store.inputs())

    def note_surroundings(self, seen: Surroundings) -> Sequence[str]:
        """What the servers run in, for the passport and the files beside it; before `collect`. Returns how
        the images differ from those that the run was begun with, as sentences."""
        return self.store.note_surroundings(seen)

    def seal(self) -> None:
        """Nothing is written any more: say what the files are. Blocking; nothing for a run not begun."""
        self.store.seal()

    def servers_needed(self, table: ServerTable) -> frozenset[str]:
        """The environment servers of this run and everything they call."""
        return frozenset().union(*(depends_on(table, server) for server in self.summary.servers))

    async def collect(
        self,
        transport: Transport,
        table: ServerTable,
        options: CollectOptions,
        drain: asyncio.Event,
        deaths: AsyncIterator[Death] | None = None,
    ) -> None:
        """Make the rollouts. `lost` tells afterwards whether a server died; RunError: the disk is full."""
        # Without the settings: a planned row says itself where it goes, and must not be sent on once more.
        collector = Collector(transport, table, Router(table), self.store, self.tally, options)
        await collector.check(self.summary.servers)
        self.replaced = self.store.begin()
        self.has_begun = True
        if self.store.has_in_flight:
            needed = [table[name] for name in self.servers_needed(table)]
            self.store.give_up_in_flight(await youngest(transport, needed))
        self.lost = collector.lost
        start = time.monotonic()
        end = End("error")
        try:
            await collector.run(drain, deaths)
            end = self._end(collector.cap, options, drain)
        except asyncio.CancelledError:
            end = End("interrupted")
            raise
        finally:
            self.seconds = time.monotonic() - start
            self.cap = collector.cap
            self.store.end(end)
            # Those that failed in an earlier session and were not reached in this one stay failed.
            for key, outcome in self.store.history.last.items():
                self.tally.add(row_of(key), outcome, {})

    def _end(self, cap: str | None, options: CollectOptions, drain: asyncio.Event) -> End:
        if self.lost:
            return End("lost", self.lost[0].server)
        if cap is not None:
            return End("cap", cap, options.caps.of(cap))
        return End("interrupted" if drain.is_set() and self.tally.not_run else "done")

    async def aggregate(
        self, transport: Transport, table: ServerTable, counting: Counting | None = None
    ) -> None:
        """Compute and write `x_aggregate_metrics.json`. Raises ServerError when a server cannot."""
        router = Router(table)
        saved = SavedRun(self.paths)
        with MetricInput([saved], counting or Counting(), lambda row: router.route(row).server) as found:
            await asyncio.to_thread(found.fill)
            self.entries = await aggregate_metrics(transport, table, found, self.summary.servers)
            self.missing_as_zero = found.missing
        self.store.write_aggregate(document(self.entries))

    def keep_last_lines(self, shown: Callable[[str], str]) -> None:
        """Keep what lost servers said last, in `x/logs/`; `shown` takes the secrets out of a line."""
        for lost in self.lost:
            if lost.last_lines:
                folder = self.paths.folder / "logs"
                with suppress(OSError):  # a disk that takes no more has been told of already
                    folder.mkdir(parents=True, exist_ok=True)
                    text = "".join(f"{shown(line)}\n" for line in lost.last_lines)
                    (folder / f"{lost.server}.log").write_text(text, encoding="utf-8")

    def close(self) -> None:
        self.store.close()


def _refuse_own_input(sources: Sequence[Source], paths: RunPaths) -> None:
    """A fresh run replaces the files at its output; rows to be read must not be among them."""
    for source in sources:
        for path in (paths.rollouts, paths.inputs, paths.failures, paths.aggregate):
            if path.exists() and source.path.exists() and path.samefile(source.path):
                raise UsageError(
                    "the run would replace its own input",
                    where=str(path),
                    hint="name another file with --output",
                )


def _plan(request: RunRequest, table: ServerTable) -> Plan:
    return Plan(
        request.sources,
        Router(table, request.routing, request.where),
        limit=request.limit,
        repeats=request.repeats,
        params=request.params,
        is_seeded=request.is_seeded,
        is_interleaved=request.is_interleaved,
        skills=request.skills,
        where=request.where,
    )


def _is_empty(path: Path) -> bool:
    return path.exists() and path.stat().st_size == 0


def _all_there(sources: Sequence[Source]) -> bool:
    return all(source.path.exists() for source in sources)
