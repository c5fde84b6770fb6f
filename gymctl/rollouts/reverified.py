"""The files of scored-again rollouts: a run of its own, beside the old one, which is never changed.

new        `<old>_reverified.jsonl`, refused when it is there; `unsafe_` in front when a verifier may be wrong
overwrite  replaces such an output
resume     keeps its lines and does the rest
append     adds the scores that a judge had failed to give to the old run's own rollouts file
"""

from __future__ import annotations

import shutil
from collections.abc import Collection
from enum import StrEnum
from pathlib import Path
from types import TracebackType

from gymctl.contract.rollout import FAILURE_CLASS, NO_PERSIST, Row
from gymctl.errors import ConfigError
from gymctl.paths import RunPaths
from gymctl.rollouts.encoding import dumps
from gymctl.rollouts.lines import LineFile, mend
from gymctl.rollouts.place import lost_room, take
from gymctl.rollouts.reverify import is_judge_failed
from gymctl.rollouts.saved import Key, SavedRun

UNSAFE = "unsafe_"


class Existing(StrEnum):
    """What to do with an output that is there."""

    REFUSE = "refuse"
    OVERWRITE = "overwrite"
    RESUME = "resume"
    APPEND = "append"


def output_of(run: SavedRun, named: Path | None, *, is_safe: bool) -> Path:
    """Where new scores go; the name of scores that may be wrong says so."""
    old = run.paths.rollouts
    path = named or old.with_name(f"{old.stem}_reverified.jsonl")
    return path if is_safe or path.name.startswith(UNSAFE) else path.with_name(UNSAFE + path.name)


class ReverifiedFiles:
    """Writes records by the rule of CONTRACT 9.6: nowhere, to the failures file, or to the rollouts file."""

    def __init__(self, run: SavedRun, output: Path, existing: Existing) -> None:
        """Raises ConfigError for an output that is there, PrerequisiteError for one that cannot be made."""
        self.paths = RunPaths(output)
        self.done: frozenset[Key] = frozenset()
        """Keys that need no verdict any more."""
        self._run = run
        self._check(existing)
        self._lock = take(self.paths)
        try:
            self._begin(existing)
        except BaseException:
            self._lock.release()
            raise

    def copy(self, is_wanted_judge_failed: bool) -> None:
        """With only judge failures to be scored, the other rollouts are taken over as they are."""
        if not is_wanted_judge_failed or self._is_the_old_run:
            return
        for rollout in self._run.rollouts():
            if rollout.key not in self.done and not is_judge_failed(rollout.record):
                self.write(rollout.record)

    def write(self, record: Row) -> None:
        if record.get(NO_PERSIST):
            return
        try:
            if record.get(FAILURE_CLASS) is None:
                self._rollouts.write(dumps(record))
                return
            if self._failures is None:
                self._failures = LineFile(self.paths.failures)
            self._failures.write(dumps(record))
        except OSError as error:
            raise lost_room(self.paths, error) from error

    def __enter__(self) -> ReverifiedFiles:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._rollouts.close()
            if self._failures is not None:
                self._failures.close()
        finally:
            self._lock.release()

    @property
    def _is_the_old_run(self) -> bool:
        return _is_same(self._run.paths.rollouts, self.paths.rollouts)

    def _check(self, existing: Existing) -> None:
        output, old = self.paths.rollouts, self._run.paths.rollouts
        if existing is Existing.APPEND:
            return
        if output.resolve() == old.resolve():
            raise ConfigError(
                "the new scores would replace the run that they are made from",
                where=str(output),
                hint="name another file with --output",
            )
        if existing is Existing.REFUSE and output.exists():
            raise ConfigError(
                "the output is there already",
                where=str(output),
                hint="--resume does what is missing, --overwrite starts over",
            )

    def _begin(self, existing: Existing) -> None:
        paths = self.paths
        is_kept = existing is Existing.APPEND or (existing is Existing.RESUME and paths.rollouts.exists())
        if not is_kept:
            made = (paths.passport, paths.rows, paths.config, paths.compose, paths.lock)
            for path in (paths.rollouts, paths.failures, paths.aggregate, *made):
                path.unlink(missing_ok=True)
            if self._run.has_inputs and not _is_same(self._run.inputs_file, paths.inputs):
                paths.inputs.unlink(missing_ok=True)  # of another run that was here
        elif paths.rollouts.exists():
            mend(paths.rollouts)
            self.done = self._kept(existing)
        if not paths.inputs.exists() and self._run.has_inputs:
            shutil.copyfile(self._run.inputs_file, paths.inputs)
        self._failures: LineFile | None = None
        self._rollouts = LineFile(paths.rollouts)

    def _kept(self, existing: Existing) -> frozenset[Key]:
        kept: Collection[Key] = [
            rollout.key
            for rollout in SavedRun.open(self.paths.rollouts).rollouts()
            if not rollout.is_failure_line
        ]
        return frozenset(kept) if existing in (Existing.RESUME, Existing.APPEND) else frozenset()


def _is_same(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)
