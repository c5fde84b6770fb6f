"""The health of a saved run: a verdict for each rollout, and what they come to (CONTRACT 9.10).

x/rollout_verdicts.jsonl   one line per rollout, in the order of the files; x/ is the run's own folder
x/quality_summary.json     the counts
rollout_verdicts.jsonl, quality_summary.json   beside the run, under the contract's names: those of the run
                           that was checked last

Read line by line: a damaged line is a finding, not an end. Memory holds keys, and a few counts for each task.
Large files are read by several processes.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from sys import intern
from typing import Any

import orjson

from gymctl.contract.rollout import (
    ENVIRONMENT_SERVER,
    ROLLOUT_INDEX,
    TASK_INDEX,
    Row,
    rollout_key,
    rollout_name,
)
from gymctl.metrics.health import CHECKS, Judged, finding, judge
from gymctl.metrics.health_summary import Summary
from gymctl.paths import RunPaths
from gymctl.rollouts.encoding import dumps, loads
from gymctl.rollouts.lines import Line, numbered, replace
from gymctl.rollouts.saved import SavedRun

MOST_WORKERS = 8
WORTH_WORKERS = 256 << 20
"""Bytes: below, one process is done before others have started."""
_CHUNK_BYTES = 4 << 20
_IDENTITY = ("agent_ref", "task_source", ENVIRONMENT_SERVER, "_ng_attempt_index", "_ng_rollout_id")

Place = tuple[str, Line]
"""A line and the name of its file."""
_BROKEN = (ValueError, TypeError, AttributeError, OverflowError, RecursionError)
"""What a line that is no record may raise."""
Owner = tuple[str, int, int]
"""Environment server and key: shards of several servers may have the same keys."""


@dataclass(slots=True)
class Checked:
    """One line, judged. owner: None when it cannot be read."""

    owner: Owner | None
    name: str
    identity: dict[str, Any]
    judged: Judged


@dataclass(frozen=True, slots=True)
class Report:
    """What was found."""

    document: dict[str, Any]
    """`quality_summary.json`."""
    examples: dict[str, list[str]]
    """The first rollouts of each finding."""


def check(
    runs: Sequence[SavedRun], output: RunPaths, ignored: Collection[str] = (), workers: int | None = None
) -> Report:
    """Judge the rollouts of a run, or of shards of one, and write both files. Raises OSError."""
    output.folder.mkdir(parents=True, exist_ok=True)
    summary = Summary(frozenset(ignored))
    replace(output.verdicts, _rows(runs, summary, frozenset(ignored), workers))
    document = summary.document()
    replace(output.health, _indented(document))
    for path in (output.verdicts, output.health):
        _publish(path, output.rollouts.with_name(path.name))
    return Report(document, summary.examples)


def _indented(document: dict[str, Any]) -> bytes:
    return orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n"


def _publish(path: Path, beside: Path) -> None:
    """The same file under a second name: no second copy where the file system has links."""
    side = beside.with_name(f".{beside.name}.{os.getpid()}")
    side.unlink(missing_ok=True)
    try:
        os.link(path, side)
    except OSError:
        shutil.copyfile(path, side)
    side.replace(beside)


def _rows(
    runs: Sequence[SavedRun], summary: Summary, ignored: frozenset[str], workers: int | None
) -> Iterator[bytes]:
    seen: set[Owner] = set()
    with ExitStack() as stack:
        checked = _mapped(runs, ignored, workers, stack)
        for run in runs:
            for lines in (_lines(run.paths.rollouts), _final_failures(run.paths.failures, seen)):
                for one in checked(lines):
                    is_again = one.owner in seen
                    if is_again and "rollout_duplicate_identity" not in ignored:
                        told = finding("rollout_duplicate_identity", "an earlier line is of the same rollout")
                        one.judged.findings.insert(0, told)
                    if one.owner is not None:
                        seen.add(one.owner)
                    # The first line of a rollout is the one that its task counts.
                    task = None if one.owner is None or is_again else one.owner[1]
                    summary.add(one.judged, task, one.name)
                    yield _row(one)


def _row(one: Checked) -> bytes:
    judged = one.judged
    return dumps(
        {
            "rollout_id": None if one.owner is None else one.name,
            **one.identity,
            "verdict": judged.verdict,
            "findings": judged.findings,
            "unobserved": judged.unobserved,
        }
    )


def judged_line(place: Place, ignored: frozenset[str]) -> Checked | None:
    """None: the writer was killed in the middle of it."""
    file, line = place
    try:
        record = loads(line.text)
        if not isinstance(record, dict):
            raise ValueError("it is no JSON object")
        owner, name = _owner_of(record), rollout_name(record)
    except _BROKEN as error:
        return _unreadable(f"{file}:{line.number}", error, ignored) if line.is_ended else None
    identity: dict[str, Any] = {TASK_INDEX: owner[1], ROLLOUT_INDEX: owner[2]}
    identity |= {name: record[name] for name in _IDENTITY if record.get(name) is not None}
    return Checked(owner, name, identity, judge(record, ignored))


def _unreadable(where: str, error: Exception, ignored: frozenset[str]) -> Checked:
    judged = Judged(unobserved=[name for name in CHECKS if name not in ignored])
    if "record_unreadable" not in ignored:
        judged.findings.append(finding("record_unreadable", f"{where}: {type(error).__name__}"))
    return Checked(None, where, {"line": where}, judged)


def _lines(path: Path) -> Iterator[Place]:
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        for line in numbered(file):
            yield path.name, line


def _final_failures(path: Path, seen: set[Owner]) -> Iterator[Place]:
    """The last line of each rollout that was not seen so far, and what cannot be read."""
    last: dict[Owner, int] = {}
    for _, line in _lines(path):
        if (owner := _owner(line)) is not None and owner not in seen:
            last[owner] = line.number
    for place in _lines(path):
        owner = _owner(place[1])
        if owner is None or last.get(owner) == place[1].number:
            yield place


def _owner(line: Line) -> Owner | None:
    try:
        return _owner_of(loads(line.text))
    except _BROKEN:
        return None


def _owner_of(record: Row) -> Owner:
    server = record.get(ENVIRONMENT_SERVER)
    return (intern(server) if isinstance(server, str) else "", *rollout_key(record))


Mapped = Callable[[Iterable[Place]], Iterator[Checked]]


def _mapped(
    runs: Sequence[SavedRun], ignored: frozenset[str], workers: int | None, stack: ExitStack
) -> Mapped:
    """`judged_line` over lines, in their order: here, or in worker processes when the files are large."""
    judged = partial(judged_line, ignored=ignored)
    count = workers or min(len(os.sched_getaffinity(0)), MOST_WORKERS)
    paths = [run.paths.rollouts for run in runs]
    size = sum(path.stat().st_size for path in paths if path.exists())
    if count == 1 or size < WORTH_WORKERS:
        return lambda lines: (one for one in map(judged, lines) if one is not None)
    # Not forked: the caller has threads and an event loop.
    context = multiprocessing.get_context("spawn")
    pool = stack.enter_context(ProcessPoolExecutor(count, mp_context=context))
    return partial(_in_pool, pool, 2 * count, ignored)


def _in_pool(
    pool: ProcessPoolExecutor, most: int, ignored: frozenset[str], lines: Iterable[Place]
) -> Iterator[Checked]:
    waiting: deque[Future[list[Checked]]] = deque()
    for chunk in _chunks(lines):
        waiting.append(pool.submit(judged_chunk, chunk, ignored))
        if len(waiting) >= most:
            yield from waiting.popleft().result()
    for future in waiting:
        yield from future.result()


def judged_chunk(lines: Sequence[Place], ignored: frozenset[str]) -> list[Checked]:
    return [one for line in lines if (one := judged_line(line, ignored)) is not None]


def _chunks(lines: Iterable[Place]) -> Iterator[list[Place]]:
    chunk: list[Place] = []
    size = 0
    for line in lines:
        chunk.append(line)
        size += len(line[1].text)
        if size >= _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
