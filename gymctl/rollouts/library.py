"""Rollouts for a program, such as a trainer: no Docker, no configuration, only the servers that run already.

    from gymctl.rollouts import collect_rollouts, iter_rollouts, run_from_config

    records = await collect_rollouts(rows, num_repeats=4, num_samples_in_parallel=64)
    async for record in iter_rollouts(rows, num_repeats=4): ...
    records = await run_from_config({"input_jsonl_fpath": "rows.jsonl", "output_jsonl_fpath": "out.jsonl"})

`servers` is the URL of a head, or a table of servers. Settings are those of CONTRACT 9.2 under their own
names. A rollout that failed is a record like the others, whose `gymctl_outcome` has a `failure`.
"""

from __future__ import annotations

import asyncio
import difflib
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import ValidationError

from gymctl.contract.evaluation import KEYS, EvaluationSettings
from gymctl.contract.part import Pool
from gymctl.contract.rollout import Row, rollout_key
from gymctl.contract.servers import HEAD_PORT, ServerTable
from gymctl.counts import counted
from gymctl.errors import BudgetError, ConfigError, ServerError
from gymctl.rollouts import retries
from gymctl.rollouts.attempts import AttemptPolicy, most_attempts
from gymctl.rollouts.collect import CollectOptions
from gymctl.rollouts.dataset import Source
from gymctl.rollouts.encoding import dumps
from gymctl.rollouts.head import server_table
from gymctl.rollouts.limits import Caps
from gymctl.rollouts.passport import Identity
from gymctl.rollouts.prompts import Prompt
from gymctl.rollouts.resume import ResumeOptions
from gymctl.rollouts.room import room_for
from gymctl.rollouts.run import Run, RunRequest
from gymctl.rollouts.saved import SavedRun
from gymctl.rollouts.settings import counting, of_table, only_agent, routing
from gymctl.rollouts.skills import skills_ref
from gymctl.transport import Transport

logger = logging.getLogger(__name__)

HEAD = f"http://127.0.0.1:{HEAD_PORT}"
CONCURRENCY = 64
Rows = str | os.PathLike[str] | Iterable[Mapping[str, Any]]
Ended = Callable[[Row], Awaitable[None]]
_NOT_HERE = ("rollout_collection_driver", "split")
"""They are about what `gymctl eval` does before the servers run."""


async def collect_rollouts(
    rows: Rows, *, servers: str | ServerTable = HEAD, task_timeout: float | None = None, **settings: Any
) -> list[Row]:
    """Make the rollouts of these rows (a file, or the rows themselves) and return one record for each.

    They come in the order of task and rollout index. With `retain_results_in_memory=False` nothing is kept
    and the list is empty; `output_jsonl_fpath` has the records, and the other files of a run beside it.
    Without an output nothing is left behind. An output that is there is gone on with, as `gymctl eval` does.
    Raises GymctlError: what is asked cannot be done, or rollouts were not made.
    """
    asked = _read(settings)
    found: list[Row] = []

    async def keep(record: Row) -> None:
        found.append(record)

    async with _prepared(rows, servers, asked, task_timeout) as making:
        if not asked.retain_results_in_memory:
            await making.run(None)
            return []
        found.extend(making.earlier())
        await making.run(keep)
    return sorted(found, key=rollout_key)


async def iter_rollouts(
    rows: Rows, *, servers: str | ServerTable = HEAD, task_timeout: float | None = None, **settings: Any
) -> AsyncIterator[Row]:
    """The same, record by record as they end; those of an earlier session of the same output come first.

    Once as many records wait to be taken as may run at once, no other rollout is started. A caller that stops
    early closes the iterator (`contextlib.aclosing`), which ends what is running.
    """
    asked = _read(settings)
    waiting: asyncio.Queue[Row | None] = asyncio.Queue()
    places = asyncio.Semaphore(asked.concurrency or CONCURRENCY)

    async def hand_over(record: Row) -> None:
        await places.acquire()
        waiting.put_nowait(record)

    async with _prepared(rows, servers, asked, task_timeout) as making:
        for record in making.earlier():
            yield record
        task = asyncio.create_task(making.run(hand_over))
        task.add_done_callback(lambda _: waiting.put_nowait(None))
        try:
            while (record := await waiting.get()) is not None:
                places.release()
                yield record
            await task
        finally:
            task.cancel()
            await asyncio.wait([task])


async def run_from_config(config: Mapping[str, Any], *, task_timeout: float | None = None) -> list[Row]:
    """`gymctl eval --no-serve` as a function: settings of CONTRACT 9.2, and `head_server` with host and port.

    `input_jsonl_fpath` and `output_jsonl_fpath` are needed.
    """
    settings = {key: value for key, value in config.items() if key != "head_server"}
    missing = [key for key in ("input_jsonl_fpath", "output_jsonl_fpath") if not settings.get(key)]
    if missing:
        raise ConfigError(f"missing required configuration: {', '.join(missing)}")
    head = config.get("head_server") or {}
    servers = f"http://{head.get('host') or '127.0.0.1'}:{head.get('port') or HEAD_PORT}"
    rows = str(settings.pop("input_jsonl_fpath"))
    return await collect_rollouts(rows, servers=servers, task_timeout=task_timeout, **settings)


class _Making:
    """One run between its preparation and its end."""

    def __init__(
        self,
        run: Run,
        table: ServerTable,
        transport: Transport,
        settings: EvaluationSettings,
        seconds: float | None,
    ) -> None:
        self._run = run
        self._table = table
        self._transport = transport
        self._settings = settings
        self._task_timeout = seconds

    def earlier(self) -> Iterator[Row]:
        """What an earlier session of this output has finished."""
        if not self._run.is_resumed:
            return
        history = self._run.store.history
        for saved in SavedRun(self._run.paths).rollouts():
            if not history.is_owed(saved.key):
                yield saved.record

    async def run(self, ended: Ended | None) -> None:
        """Make what is owed, and the aggregate file. Raises when rollouts were not made."""
        run, settings = self._run, self._settings
        if run.is_done and (settings.disable_aggregation or run.has_aggregate):
            return
        options = CollectOptions(
            await self._concurrency(),
            self._task_timeout,
            declared=counting(settings).declared,
            retries=retries.Retries(retries.DEFAULT),
            caps=Caps(dispatch_seconds=settings.dispatch_budget_s, drain_margin=settings.drain_margin_s),
            is_strict=not settings.route_failures_to_sidecar,
            ended=ended,
        )
        await run.collect(self._transport, self._table, options, asyncio.Event())
        if run.lost:
            raise ServerError(f"the run ended early: {'; '.join(str(lost) for lost in run.lost)}")
        if not settings.disable_aggregation:
            await run.aggregate(self._transport, self._table, counting(settings))
        await asyncio.to_thread(run.seal)
        if run.cap is not None:
            owed = counted(run.still_owed, "rollout is", "rollouts are")
            raise BudgetError(f"the run stopped at {run.cap}: {owed} still to be made")

    async def _concurrency(self) -> int:
        """As many as are asked for and fit; the limit of open files is raised for them."""
        wanted = self._settings.concurrency or CONCURRENCY
        entrances = [self._table[server].url for server in self._run.summary.servers]
        room = await room_for(wanted, self._transport, entrances)
        if room is None or room >= wanted:
            return wanted
        logger.warning("%d rollouts at once, not %d: a process may open too few files for more", room, wanted)
        return room


@asynccontextmanager
async def _prepared(
    rows: Rows, servers: str | ServerTable, settings: EvaluationSettings, task_timeout: float | None
) -> AsyncIterator[_Making]:
    """Rows and routes are checked, and the output is ours; a run without an output has a passing one."""
    with TemporaryDirectory(prefix="gymctl-rollouts-") as folder:
        async with Transport(Pool(limit=0, limit_per_host=0)) as transport:
            table = await server_table(transport, servers) if isinstance(servers, str) else servers
            if settings.output_jsonl_fpath is None:
                passing = {"output_jsonl_fpath": f"{folder}/run.jsonl", "disable_aggregation": True}
                settings = settings.model_copy(update=passing)
            source = await asyncio.to_thread(_file, rows, Path(folder) / "rows.jsonl")
            run = await asyncio.to_thread(Run.prepare, _request(source, table, settings), table)
            try:
                yield _Making(run, table, transport, settings, task_timeout)
            finally:
                run.close()


def _request(source: Path, table: ServerTable, settings: EvaluationSettings) -> RunRequest:
    prompt = None if settings.prompt_config is None else Prompt.read(Path(settings.prompt_config))
    most, _ = most_attempts(os.environ)
    waived = settings.allow_unsupported_pairing is True
    return RunRequest(
        [Source(source, fallback=only_agent(table), prompt=prompt)],
        Path(str(settings.output_jsonl_fpath)),
        limit=settings.limit or None,  # 0 is all, as in a configuration
        repeats=settings.num_repeats,
        routing=routing(settings, allows_any_pairing=waived),
        params=settings.responses_create_params,
        is_seeded=settings.num_repeats_add_seed,
        is_interleaved=settings.interleave_repeats,
        skills=None if settings.skills is None else skills_ref(Path(settings.skills.path).resolve()),
        resume=ResumeOptions(
            is_asked=settings.resume_from_cache,
            policy=AttemptPolicy(most, settings.retry_terminal_timeouts),
            retries_invalid_judgements=settings.retry_invalid_judge_responses,
            is_longest_first=settings.dispatch_longest_first,
        ),
        identity=Identity(config=of_table(table)),
    )


def _file(rows: Rows, place: Path) -> Path:
    """Rows are read more than once: those that are no file are written to one."""
    if isinstance(rows, (str, os.PathLike)):
        return Path(rows)
    with place.open("wb") as file:
        file.writelines(dumps(dict(row)) + b"\n" for row in rows)
    return place


def _read(settings: Mapping[str, Any]) -> EvaluationSettings:
    """Raises ConfigError for a key that is none, that means nothing here, or whose value cannot be."""
    for key in settings:
        if key in _NOT_HERE or key not in KEYS:
            close = difflib.get_close_matches(key, KEYS, n=1)
            what = "is about starting servers, and these run already" if key in _NOT_HERE else "is no setting"
            hint = f"did you mean `{close[0]}`?" if close and key not in _NOT_HERE else None
            raise ConfigError(f"`{key}` {what}", hint=hint)
    given = {key: value for key, value in settings.items() if value is not None}
    try:
        return EvaluationSettings.model_validate(given)
    except ValidationError as errors:
        first = errors.errors()[0]
        key = ".".join(str(step) for step in first["loc"])
        raise ConfigError(f"`{key}`: {first['msg']}, got {first['input']!r}") from None
