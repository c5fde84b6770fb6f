"""The steps of `gymctl eval`, in the order in which they happen: check, start, collect, take down, show."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gymctl.cli import eval_control as control
from gymctl.cli import eval_health, head_address, runs, surroundings
from gymctl.cli.collation import rows_of_run
from gymctl.cli.driver import drive, find_driver
from gymctl.cli.eval_ending import Ending
from gymctl.cli.eval_flags import DEFAULT_CONCURRENCY, EvalFlags
from gymctl.cli.eval_input import (
    default_outputs,
    locate,
    read_prompt,
    request,
    resume_options,
    search_roots,
    sources,
    title,
)
from gymctl.cli.identity import REPEATED, identity
from gymctl.cli.interrupts import Interrupts
from gymctl.cli.output import Console, reporter
from gymctl.cli.progress import following
from gymctl.cli.progress_text import TextBlocks
from gymctl.cli.serving import Served, Serving
from gymctl.cli.table import RunFacts
from gymctl.config.checks.evaluation import Written
from gymctl.config.model import Config
from gymctl.config.tree.masking import redact
from gymctl.contract.evaluation import EvaluationSettings
from gymctl.contract.part import Pool
from gymctl.contract.servers import ServerTable
from gymctl.counts import counted
from gymctl.errors import GymctlError, ServerError
from gymctl.rollouts.attempts import most_attempts
from gymctl.rollouts.dataset import Source
from gymctl.rollouts.place import OutputBusyError
from gymctl.rollouts.prices import Pricing
from gymctl.rollouts.room import room_for
from gymctl.rollouts.run import Run
from gymctl.rollouts.saved import SavedRun
from gymctl.rollouts.settings import counting
from gymctl.rollouts.waiting import Waiting
from gymctl.transport import Transport

SCRIPTED = "scripted_model"


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
        self._serving = Serving(
            config,
            asked.override,
            console,
            runtime=asked.runtime,
            concurrency=self._concurrency,
            locked_by=asked.locked_by,
            is_kept_up=asked.is_kept_up,
            head=head_address.said(asked.selection) if config is None else None,
        )
        self._ending = Ending(asked, written, console, self._secrets)
        self._names: dict[str, str] = {}
        """Who answers at which URL, for the messages of the transport."""
        self._title = ""
        self._is_scripted = False
        self._pricing: Pricing | None = None
        self._stopped: str | None = None
        """Why rollouts were not run, for the table."""
        self._health: dict[str, Any] | None = None

    async def run(self, interrupts: Interrupts) -> None:
        """Everything. Raises the error that the exit code stands for, after the result was shown."""
        pool = Pool(limit=0, limit_per_host=0)
        driver = find_driver(self._written, is_serving=self._asked.is_serving)
        async with Transport(pool, names=self._names) as transport:
            if driver is not None:
                given = self._for_driver()
                await drive(driver, given, self._serving, transport, interrupts)
                return
            found = None if self._asked.is_serving else await self._serving.running(transport)
            run = self._prepare(self._planned_table() if found is None else found.table)
            try:
                problem = None
                if not self._is_finished(run):
                    problem = await self._serve_and_collect(run, transport, found, interrupts)
                if run.has_begun and interrupts.received is None:
                    self._health = await asyncio.to_thread(self._check_health, run)
                if run.has_begun:
                    await interrupts.shielded(asyncio.to_thread(run.seal))
            finally:
                run.close()
                if run.has_begun:
                    self._ending.show(run, self._facts(run))
                    if (repeated := REPEATED.get()) is not None:
                        repeated.ended(run.paths)
        self._ending.check(run, problem, interrupts.received)

    def _check_health(self, run: Run) -> dict[str, Any] | None:
        asked = self._settings
        if asked.disable_aggregation or asked.disable_health_check:
            return None
        saved, ignored = SavedRun(run.paths), asked.health_check_ignored_checks
        return eval_health.checked([saved], run.paths, ignored, asked.health_check_workers, self._console)

    def _for_driver(self) -> EvaluationSettings:
        """The settings with the files that a driver reads and writes; the rows are one file."""
        assert self._config is not None
        settings = self._settings
        output = next(iter(self._outputs()))
        if settings.input_jsonl_fpath is not None:
            rows = locate(settings.input_jsonl_fpath, self._config.search_roots)
        else:
            rows = rows_of_run(self._config, settings, output, self._console)
        return settings.model_copy(update={"input_jsonl_fpath": str(rows), "output_jsonl_fpath": str(output)})

    def _is_finished(self, run: Run) -> bool:
        """Everything was done before: the result is shown, and no server is needed for it."""
        is_done = run.is_done and (self._settings.disable_aggregation or run.has_aggregate)
        run.has_begun = is_done
        return is_done

    @property
    def _model(self) -> str | None:
        """What to call the model."""
        asked = self._asked.selection.model or ""
        if asked.startswith("replay:"):
            return asked
        model = self._config.document.get("policy_model_name") if self._config is not None else None
        return str(model) if model else None

    def _facts(self, run: Run) -> RunFacts:
        return RunFacts(
            title=self._title,
            model=_made_with(run, self._model),
            seconds=run.seconds,
            kept=run.kept,
            min_coverage=self._asked.min_coverage,
            why_not_run=self._stopped,
            is_scripted=self._is_scripted,
            missing_as_zero=run.missing_as_zero,
            prices_of=None if self._pricing is None else self._pricing.date,
            health=self._health,
        )

    @property
    def _secrets(self) -> frozenset[str]:
        return self._config.secrets if self._config is not None else frozenset()

    def _prepare(self, table: ServerTable) -> Run:
        """Rows, routes and output, all before the first side effect."""
        settings = self._settings
        roots = search_roots(self._config, self._asked.selection.search_dir)
        outputs, named = self._outputs(), settings.output_jsonl_fpath
        rows = self._rows(table, roots)
        most, doubt = most_attempts(os.environ)
        self._pricing, doubts = control.pricing(self._asked.limits, self._config, table)
        for warning in (*([doubt] if doubt is not None else []), *doubts):
            self._console.insist(f"warning: {warning}")
        resume = resume_options(settings, self._asked, most)
        limits = self._asked.rollout_limits
        made_with = identity(self._config, table, self._written, rows, self._title, limits, self._model)
        made_with = replace(made_with, benchmark=self._asked.benchmark)
        for output in outputs:
            asked = request(self._written, rows, output, roots, resume, made_with, self._pricing)
            try:
                run = Run.prepare(asked, table)
            except OutputBusyError:
                if named is not None:
                    raise
                continue  # another run of this second
            self._is_scripted = _is_scripted(run, table)
            self._check_repeated(run)
            self._tell(run)
            return run
        raise AssertionError("names do not run out")

    def _check_repeated(self, run: Run) -> None:
        """A run that is made again must be made with the same."""
        if (repeated := REPEATED.get()) is not None:
            try:
                repeated.check(run, self._config)
            except BaseException:
                run.close()
                raise

    def _outputs(self) -> Iterable[Path]:
        """Where the rollouts may go, the best place first; also names the run."""
        chosen, named = self._asked.selection, self._settings.output_jsonl_fpath
        names = (*chosen.benchmark, *chosen.environment, *chosen.resources_server)
        self._title = title(self._config, names, self._settings)
        return [Path(named)] if named is not None else default_outputs(self._title)

    def _rows(self, table: ServerTable, roots: Sequence[Path]) -> list[Source]:
        """The files of rows, collated first where that is asked for."""
        if not self._asked.is_collating:
            return sources(self._config, table, self._settings, roots)
        assert self._config is not None
        output = Path(str(self._settings.output_jsonl_fpath))  # --collate needs it
        collated = rows_of_run(self._config, self._settings, output, self._console)
        return [Source(collated, prompt=read_prompt(self._settings.prompt_config, roots))]

    def _tell(self, run: Run) -> None:
        """What is unusual about the plan, and what an earlier session left."""
        for notice in run.summary.notices():
            self._console.insist(f"warning: {notice}")
        for note in run.notes:
            self._console.insist(f"note: {note}")
        if run.is_resumed:
            done = f"{run.kept:,} of {run.summary.rollouts:,} are done, {run.owed:,} to go"
            self._console.say(f"going on with {run.paths.rollouts}: {done}")

    async def _serve_and_collect(
        self, run: Run, transport: Transport, found: Served | None, interrupts: Interrupts
    ) -> GymctlError | None:
        """Returns what went wrong after the rollouts were made: they are still worth showing."""
        async with self._serving.served(found, interrupts) as served:
            if not self._asked.is_json and self._settings.output_jsonl_fpath is None:
                reporter(self._console, served.table.servers).step("output", str(run.paths.rollouts))
            seen = await surroundings.look(served.stack, self._config)
            for other in run.note_surroundings(seen):
                self._console.insist(f"note: another image than when the run was begun: {other}")
            if (repeated := REPEATED.get()) is not None:
                repeated.check_surroundings(seen)
            await self._collect(run, transport, served, interrupts)
            if run.lost or self._settings.disable_aggregation:
                return None
            try:
                await run.aggregate(transport, served.table, counting(self._settings))
            except ServerError as error:
                return error
        return None

    async def _collect(self, run: Run, transport: Transport, served: Served, interrupts: Interrupts) -> None:
        concurrency = self._concurrency
        self._names.update((entry.url, name) for name, entry in served.table.servers.items())
        entrances = [served.table[server].url for server in run.summary.servers]
        room = await room_for(concurrency, transport, entrances)
        if room is not None and room < concurrency:
            self._console.say(
                f"warning: {counted(room, 'rollout')} at once, not {concurrency}: "
                "a process may open too few files for more (ulimit -n)"
            )
            concurrency = room
        options = control.options(self._asked, self._config, self._settings, concurrency)
        deaths = served.stack.deaths() if served.stack is not None else None
        self._stopped = "stopped"
        runs.register(run.paths.rollouts)
        try:
            with interrupts.draining() as drain:
                async with following(
                    run.tally,
                    self._console,
                    self._asked.progress,
                    self._blocks(run, served.table),
                    Waiting(transport, served.table),
                ):
                    await run.collect(transport, served.table, options, drain, deaths)
        finally:
            if interrupts.received is not None:
                self._stopped = "interrupted"
            elif run.lost:
                self._stopped = f"{run.lost[0].server} was lost"
            elif run.cap is not None:
                self._stopped = run.cap
            run.keep_last_lines(lambda line: redact(line, self._secrets))

    def _blocks(self, run: Run, table: ServerTable) -> TextBlocks | None:
        """For --progress text."""
        if self._asked.progress != "text" or self._console.is_quiet:
            return None
        clock = asyncio.get_running_loop().time
        return TextBlocks(
            run.tally, self._console, clock, run.owed_by(table), lambda text: redact(text, self._secrets)
        )

    def _planned_table(self) -> ServerTable:
        assert self._config is not None
        return ServerTable.from_document(self._config.document)


def _is_scripted(run: Run, table: ServerTable) -> bool:
    """Whether any model of this run plays a script."""
    return any(table[name].address.implementation == SCRIPTED for name in run.servers_needed(table))


def _made_with(run: Run, model: str | None) -> str | None:
    """The model of the rollouts: what is gone on with in spite of another one was not made with this one."""
    first = run.first_model
    if not run.is_resumed or first == model:
        return model
    if not run.owed:
        return first
    return f"{first}, then {model}" if first else model
