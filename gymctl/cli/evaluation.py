"""The steps of `gymctl eval`, in the order in which they happen: check, start, collect, take down, show."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from gymctl.cli import runs
from gymctl.cli.eval_flags import DEFAULT_CONCURRENCY, EvalFlags
from gymctl.cli.eval_input import default_output, request, search_roots, sources, title
from gymctl.cli.interrupts import Interrupts
from gymctl.cli.output import Console, reporter
from gymctl.cli.progress import following
from gymctl.cli.table import RunFacts, file_lines, result_json, result_lines
from gymctl.config.checks.evaluation import Written
from gymctl.config.model import Config
from gymctl.config.tree.masking import redact
from gymctl.contract.part import Pool
from gymctl.contract.servers import HEAD_PORT, ServerTable
from gymctl.errors import EngineError, GymctlError, Interrupted, PrerequisiteError, RunError, ServerError
from gymctl.paths import ProjectPaths
from gymctl.rollouts.collect import CollectOptions
from gymctl.rollouts.head import server_table
from gymctl.rollouts.run import Run
from gymctl.runtime import attach, lock
from gymctl.runtime.stack import RuntimeChoice, Stack
from gymctl.runtime.up import bring_up, use_of
from gymctl.transport import Transport

SCRIPTED = "scripted_model"
_DESCRIPTORS_PER_ROLLOUT = 2
"""A relay holds two connections, one to each side; here it is one."""
_SPARE_DESCRIPTORS = 256
"""For files, logs, pipes, and connections that just close."""
_SHOWN_REASONS = 3


@dataclass(frozen=True, slots=True)
class Served:
    """The servers of a run. `stack` is None when only a head is known."""

    table: ServerTable
    stack: Stack | None


class Evaluation:
    """One `gymctl eval`."""

    def __init__(self, asked: EvalFlags, written: Written, config: Config | None, console: Console) -> None:
        """`config` is None when only a running head is asked (--no-serve)."""
        self._asked = asked
        self._written = written
        self._settings = written.settings
        self._concurrency = written.settings.concurrency or DEFAULT_CONCURRENCY
        self._console = console
        self._config = config
        self._title = ""
        self._is_scripted = False
        self._stopped: str | None = None
        """Why rollouts were not run, for the table."""

    async def run(self, interrupts: Interrupts) -> None:
        """Everything. Raises the error that the exit code stands for, after the result was shown."""
        pool = Pool(limit=0, limit_per_host=0)
        async with Transport(pool) as transport:
            found = None if self._asked.is_serving else await self._running(transport)
            run = self._prepare(self._planned_table() if found is None else found.table)
            try:
                problem = await self._serve_and_collect(run, transport, found, interrupts)
            finally:
                run.close()
                if run.has_begun:
                    self._show(run)
        self._end(run, problem, interrupts)

    def _facts(self, run: Run) -> RunFacts:
        model = self._config.document.get("policy_model_name") if self._config is not None else None
        return RunFacts(
            title=self._title,
            model=str(model) if model else None,
            seconds=run.seconds,
            min_coverage=self._asked.min_coverage,
            why_not_run=self._stopped,
            is_scripted=self._is_scripted,
        )

    @property
    def _secrets(self) -> frozenset[str]:
        return self._config.secrets if self._config is not None else frozenset()

    def _show(self, run: Run) -> None:
        """The result on stdout; where the files are and what to do next on stderr."""
        console, facts, paths = self._console, self._facts(run), run.paths
        files = {
            "rollouts": paths.rollouts,
            "failures": paths.failures,
            "inputs": paths.inputs,
            "metrics": paths.aggregate,
        }
        existing = {name: str(path) for name, path in files.items() if path.exists()}
        if self._asked.is_json:
            console.json({**result_json(run.tally, facts), "files": existing})
        else:
            console.say()
            console.data("\n".join(result_lines(run.tally, facts)))
        console.say()
        for text in file_lines(list(existing.items())):
            console.say(text)
        for reason in _reasons(run, self._secrets):
            console.say(f" {'failed':<11} {reason}")
        if run.replaced:
            console.say(" note        replaced the results of an earlier run at the same place")
        if not run.tally.not_run:  # else the error that follows says what to do
            console.say()
            console.say(_next(run, self._written))

    def _end(self, run: Run, problem: GymctlError | None, interrupts: Interrupts) -> None:
        """The exit code, by raising."""
        if interrupts.received is not None:
            raise Interrupted(
                "interrupted: some rollouts were not made" if run.tally.not_run else "interrupted",
                signal_number=interrupts.received,
                hint=f"finished rollouts are in {run.paths.rollouts}; the same command starts over",
            )
        if run.lost:
            first = run.lost[0]
            raise ServerError(
                f"the run ended early: {'; '.join(str(lost) for lost in run.lost)}",
                details=[redact(text, self._secrets) for text in first.last_lines],
                hint=f"finished rollouts are in {run.paths.rollouts}; gymctl logs {first.server} says more",
            )
        if problem is not None:
            raise problem
        coverage = run.tally.headline().coverage
        if coverage < self._asked.min_coverage:
            raise RunError(
                f"coverage {coverage:.1%} is under the floor of {self._asked.min_coverage:.0%}",
                where=str(run.paths.failures),
                details=_reasons(run, self._secrets) if self._console.is_quiet else (),
                hint="--min-coverage lowers the floor",
            )

    def _prepare(self, table: ServerTable) -> Run:
        """Rows, routes and output, all before the first side effect."""
        settings, chosen = self._settings, self._asked.selection
        roots = search_roots(self._config, chosen.search_dir)
        rows = sources(self._config, table, settings, roots)
        names = (*chosen.benchmark, *chosen.environment, *chosen.resources_server)
        self._title = title(self._config, names, settings)
        named = settings.output_jsonl_fpath
        output = Path(named) if named is not None else default_output(self._title)
        run = Run.prepare(request(self._written, rows, output, roots), table)
        for notice in run.summary.notices():
            self._console.insist(f"warning: {notice}")
        return run

    async def _serve_and_collect(
        self, run: Run, transport: Transport, found: Served | None, interrupts: Interrupts
    ) -> GymctlError | None:
        """Returns what went wrong after the rollouts were made: they are still worth showing."""
        async with self._served(found, interrupts) as served:
            if not self._asked.is_json and self._settings.output_jsonl_fpath is None:
                reporter(self._console, served.table.servers).step("output", str(run.paths.rollouts))
            self._is_scripted = _is_scripted(run, served.table)
            await self._collect(run, transport, served, interrupts)
            if run.lost or self._settings.disable_aggregation:
                return None
            try:
                await run.aggregate(transport, served.table)
            except ServerError as error:
                return error
        return None

    async def _collect(self, run: Run, transport: Transport, served: Served, interrupts: Interrupts) -> None:
        concurrency = self._concurrency
        room = _room_for(concurrency)
        if room is not None and room < concurrency:
            self._console.say(
                f"warning: {room} rollouts at once, not {concurrency}: "
                "a process may open too few files for more (ulimit -n)"
            )
            concurrency = room
        options = CollectOptions(concurrency, self._asked.task_timeout)
        deaths = served.stack.deaths() if served.stack is not None else None
        self._stopped = "stopped"
        runs.register(run.paths.rollouts)
        try:
            with interrupts.draining() as drain:
                async with following(run.tally, self._console):
                    await run.collect(transport, served.table, options, drain, deaths)
        finally:
            if interrupts.received is not None:
                self._stopped = "interrupted"
            elif run.lost:
                self._stopped = f"{run.lost[0].server} was lost"

    @asynccontextmanager
    async def _served(self, found: Served | None, interrupts: Interrupts) -> AsyncIterator[Served]:
        """The servers: those that run already, or started here and taken down at the end."""
        if found is not None:
            with _shared(found.stack) if found.stack is not None else nullcontext():
                yield found
            return
        assert self._config is not None
        with use_of(self._config.project) as use:
            async with self._started(self._config, use, interrupts) as served:
                yield served

    @asynccontextmanager
    async def _started(self, asked: Config, use: lock.Use, interrupts: Interrupts) -> AsyncIterator[Served]:
        was_up = await asyncio.to_thread(_already_up, asked.project)
        is_left_over = was_up is not None and use.is_alone and use.signed_by == "eval"
        if is_left_over:
            self._console.say(f"  {asked.project} was left running by an evaluation that was killed")
        is_ours = was_up is None or is_left_over
        if is_ours:
            use.sign("eval")
        stack = await bring_up(
            asked,
            choice=cast(RuntimeChoice, self._asked.runtime),
            reporter=reporter(self._console, asked.servers),
            concurrency=self._concurrency,
            use=use,
            is_head_movable=True,
        )
        if not is_ours:
            use.share()
        try:
            yield Served(stack.table, stack)
        finally:
            if not is_ours:
                # Servers that had to be started anew are children of ours; they must not end with us.
                await interrupts.shielded(stack.release())
                self._console.say(f"project {stack.project} was up before and stays up")
            elif self._asked.is_kept_up:
                await interrupts.shielded(stack.release())
                use.sign("up")
                self._console.say(f"project {stack.project} stays up; stop it: gymctl down {stack.project}")
            else:
                await interrupts.shielded(stack.down())

    async def _running(self, transport: Transport) -> Served:
        """What --no-serve means: the selected project, the head that is named, or the only one here."""
        config, port = self._config, self._asked.override("head_server.port")
        names = [] if port else [project.project for project in attach.projects()]
        if config is not None:
            names = [config.project]
        stack = await asyncio.to_thread(attach.running, names[0]) if len(names) == 1 else None
        if stack is not None:
            return Served(stack.table, stack)
        host = self._asked.override("head_server.host") or "127.0.0.1"
        head = f"http://{host}:{port or HEAD_PORT}"
        if config is not None:
            head = f"http://{config.head_host}:{config.head_port}"
        return Served(await server_table(transport, head), None)

    def _planned_table(self) -> ServerTable:
        assert self._config is not None
        return ServerTable.from_document(self._config.document)


def _shared(stack: Stack) -> AbstractContextManager[None]:
    return lock.shared(ProjectPaths.of(stack.project).use)


def _already_up(project: str) -> Stack | None:
    """The project when somebody started it before us; an engine that is gone took its containers along."""
    try:
        return attach.running(project)
    except (EngineError, PrerequisiteError):
        return None


def _is_scripted(run: Run, table: ServerTable) -> bool:
    """Whether any model of this run plays a script."""
    return any(table[name].address.implementation == SCRIPTED for name in run.servers_needed(table))


def _reasons(run: Run, secrets: frozenset[str]) -> list[str]:
    """The most frequent reasons, and what was said in the first rollout of each."""
    lines: list[str] = []
    for reason, count in run.tally.reasons.most_common(_SHOWN_REASONS):
        cause = redact(run.tally.causes.get(reason, ""), secrets)
        lines += [f"{count:,} × {reason}", *([f"    {cause}"] if cause else [])]
    return lines


def _next(run: Run, written: Written) -> str:
    """One thing worth doing now."""
    if run.tally.failed:
        return f"next: read why rollouts failed: {run.paths.failures}"
    if written.settings.limit is not None:
        place = written.where("limit")
        limit = "--limit" if place == "--limit" else f"`limit` ({place})"
        return f"next: leave out {limit} to run all rows"
    if run.summary.repeats == 1:
        return "next: add -k 4 for pass@4 and a narrower interval"
    return f"next: read the rollouts: {run.paths.rollouts}"


def _room_for(concurrency: int) -> int | None:
    """How many rollouts fit into what this process may open, and a server with the same limit; the limit is
    raised as far as it may be. None: as many as one likes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = concurrency * _DESCRIPTORS_PER_ROLLOUT + _SPARE_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY:
        return None
    return max(1, (soft - min(_SPARE_DESCRIPTORS, soft // 4)) // _DESCRIPTORS_PER_ROLLOUT)
