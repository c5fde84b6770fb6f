"""Going on with a run: is there one, was it made with the same, and what does it still owe?

By default the results at an output are gone on with. They are never mixed with those of something else, and
never replaced unless `--fresh` says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from gymctl.contract.rollout import ATTEMPT_INDEX, FAILURE_CLASS, Row, rollout_key
from gymctl.counts import counted
from gymctl.errors import RunError
from gymctl.metrics.tally import Price, Tally
from gymctl.paths import RunPaths
from gymctl.rollouts import altered, differences, history, journal, lines, passport
from gymctl.rollouts.attempts import AttemptPolicy
from gymctl.rollouts.differences import Difference
from gymctl.rollouts.encoding import dumps, loads, unreadable
from gymctl.rollouts.history import History
from gymctl.rollouts.passport import Identity, Passport, RowsDigest
from gymctl.rollouts.route import Router
from gymctl.rollouts.saved import read_rows
from gymctl.rollouts.summary import PlanSummary

INVALID = "invalid_judge_response"
INVALID_CLASS = "judge_invalid"


@dataclass(frozen=True, slots=True)
class ResumeOptions:
    """What to do with results that are there already."""

    is_fresh: bool = False
    """Replace them."""
    is_asked: bool = False
    """`resume_from_cache`: go on, also with files that do not say what they were made with."""
    goes_on_anyway: bool = False
    """Go on in spite of differences."""
    policy: AttemptPolicy = field(default_factory=AttemptPolicy)
    retries_invalid_judgements: bool = False
    is_longest_first: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """What is at the output."""

    passport: Passport | None
    """None: a new run."""
    notes: tuple[str, ...] = ()
    """What a user should be told, as sentences."""
    is_adopted: bool = False
    """Files that came without a passport: there is nothing to compare."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """A run that is gone on with."""

    summary: PlanSummary
    tally: Tally
    history: History
    owed: int
    notes: tuple[str, ...]


def look(paths: RunPaths, identity: Identity, options: ResumeOptions) -> Found:
    """What there is to go on with. Raises RunError when results would be lost or mixed. Changes nothing."""
    if options.is_fresh:
        return Found(None)
    found = passport.read(paths.passport)
    is_whole = paths.rollouts.exists() and paths.inputs.exists()
    if found is not None and is_whole:
        return Found(found)
    if not any(_size(path) for path in (paths.rollouts, paths.failures)):
        return Found(None)
    if is_whole and (options.is_asked or options.goes_on_anyway):
        summary, digest = _read_inputs(paths.inputs)
        adopted = passport.issue(identity, digest, max(summary.tasks.values(), default=1))
        note = "nothing says what the results here were made with; they are gone on with all the same"
        return Found(adopted, (note,), is_adopted=True)
    if options.is_asked:
        return Found(None, ("the results here have no inputs file, so the run starts over",))
    raise RunError(
        "there are results at this place, and nothing says what they were made with",
        where=str(paths.rollouts if _size(paths.rollouts) else paths.failures),
        hint="name another file with --output, or --fresh to replace them"
        + ("; --resume-anyway goes on with them" if is_whole else ""),
    )


def check(
    paths: RunPaths, found: Passport, identity: Identity, rows: RowsDigest | None, options: ResumeOptions
) -> Passport:
    """The passport of the run gone on with. Raises RunError, naming what differs, when the run was made with
    something else. `rows` are those that would be run now; None when their files are gone."""
    changed = differences.differences(found, identity, rows)
    if changed and not options.goes_on_anyway:
        raise differences.refusal(paths.rollouts, changed)
    return passport.continued(found, identity, changed)


def go_on(
    paths: RunPaths, found: Passport, router: Router, options: ResumeOptions, price: Price | None = None
) -> Resumed:
    """Mend the files, read them, and say what is owed. Raises RunError when the inputs are not the run's."""
    summary, digest = _read_inputs(paths.inputs, router)
    summary.repeats = found.repeats
    if str(digest) != found.rows and not options.goes_on_anyway:
        changed = Difference("rows", f"sha256:{found.rows}", f"sha256:{digest}")
        raise differences.refusal(paths.inputs, [changed])
    notes = [note for path in (paths.rollouts, paths.failures) if (note := _mended(path))]
    changed_lines = altered.altered(paths)
    if changed_lines:
        notes.append(altered.note(changed_lines))
    if options.retries_invalid_judgements:
        notes += _requeue_invalid(paths)
    tally = tally_of(summary, price)
    past = history.read(paths, options.policy, tally, summary.tasks)
    ended = sum(history.is_planned(key, summary.tasks) for keys in (past.done, past.over) for key in keys)
    in_flight = len(journal.read(paths.journal).in_flight)
    if in_flight:
        notes.append(f"{in_flight:,} in flight when it was stopped")
    return Resumed(summary, tally, past, digest.count - ended, tuple(notes))


def tally_of(summary: PlanSummary, price: Price | None = None) -> Tally:
    """A tally of the plan, with nothing done."""
    tally = Tally(repeats=summary.repeats, price=price)
    for task, attempts in summary.tasks.items():
        tally.plan(task, attempts)
    return tally


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _read_inputs(inputs: Path, router: Router | None = None) -> tuple[PlanSummary, RowsDigest]:
    """What the inputs file comes to, and the digest of its rows as they stand there."""
    summary, digest = PlanSummary(), RowsDigest()
    with inputs.open("rb") as file:
        for line in lines.numbered(file):
            digest.add(line.text)
            try:
                row: Row = loads(line.text)
            except (ValueError, RecursionError) as error:
                where = f"{inputs}:{line.number}"
                raise RunError(
                    f"the inputs of the run are broken: {unreadable(error)}", where=where
                ) from None
            task, _ = rollout_key(row)
            summary.tasks[task] = summary.tasks.get(task, 0) + 1
            if router is not None:
                route = router.route(row)
                agents = summary.servers.setdefault(route.server, set())
                agents.update([route.agent] if route.agent is not None else [])
    return summary, digest


def _mended(path: Path) -> str | None:
    cut = lines.mend(path)
    return f"{path.name}: a last line of {cut:,} bytes was cut off half written; dropped" if cut else None


def _requeue_invalid(paths: RunPaths) -> list[str]:
    """Move rollouts whose judge gave no valid answer to the failures (CONTRACT 9.8), so that they are owed.

    Killed in between, it does the same once more: what has been moved already is not moved twice.
    """
    if not any(record.get(INVALID) for _, record in read_rows(paths.rollouts)):
        return []
    there = {
        (rollout_key(record), record.get(ATTEMPT_INDEX))
        for _, record in read_rows(paths.failures)
        if record.get(FAILURE_CLASS) == INVALID_CLASS
    }
    moved = 0
    failures = lines.LineFile(paths.failures)
    try:
        for _, record in read_rows(paths.rollouts):
            if record.get(INVALID):
                moved += 1
                if (rollout_key(record), record.get(ATTEMPT_INDEX)) not in there:
                    failures.write(dumps({**record, FAILURE_CLASS: INVALID_CLASS}))
    finally:
        failures.close()
    kept = (dumps(record) for _, record in read_rows(paths.rollouts) if not record.get(INVALID))
    lines.replace(paths.rollouts, kept)
    are = "is" if moved == 1 else "are"
    return [f"{counted(moved, 'rollout')} whose judge gave no valid answer {are} made again"]
