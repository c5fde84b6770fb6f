"""A run that is on disk, read again: every rollout once, in constant memory but for the set of keys.

A line in the rollouts file wins; without one, the last line in the failures file; without any, the rollout
was not run. Files of other tools are read too: what gymctl stamped on a record is used when it is there, else
the record is classified anew. A torn last line, which a killed writer leaves, is passed over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, cast, get_args

from gymctl.contract.rollout import OUTCOME, ROLLOUT_INDEX, TASK_INDEX, Row, is_materialized, rollout_key
from gymctl.errors import ConfigError, UsageError
from gymctl.metrics.outcomes import FailureClass, Outcome, outcome
from gymctl.paths import RunPaths
from gymctl.rollouts.encoding import dumps, loads, unreadable
from gymctl.rollouts.lines import numbered

Key = tuple[int, int]
_DENSE = 16
"""A task index is far beyond the others when there are less than so many times as many keys."""
_CLASSES = frozenset(get_args(FailureClass))
_NOT_CONTENT = frozenset({"agent_ref", "task_source", "skills_ref", "responses_create_params"})
_CONTENT_OF_PARAMS = ("input", "instructions", "tools")


class Keys:
    """A set of keys, in one byte for each of a run's tasks rather than a hundred for each key."""

    def __init__(self) -> None:
        self._rows: dict[int, bytearray] = {}
        """Rollout index -> 1 at each task that has it."""
        self._far: set[Key] = set()
        """Whose task index is far beyond the others."""
        self._counts: Counter[int] = Counter()

    def add(self, key: Key) -> None:
        task, rollout = key
        row = self._rows.setdefault(rollout, bytearray())
        self._counts[rollout] += 1
        if not 0 <= task < len(row):
            if not 0 <= task < _DENSE * (self._counts[rollout] + _DENSE):
                self._far.add(key)
                return
            row.extend(bytes(max(task + 1, len(row) * 5 // 4) - len(row)))
        row[task] = 1

    def __contains__(self, key: Key) -> bool:
        task, rollout = key
        row = self._rows.get(rollout, b"")
        return bool(0 <= task < len(row) and row[task]) or key in self._far


@dataclass(frozen=True, slots=True)
class SavedRollout:
    """The end of one rollout."""

    key: Key
    record: Row
    outcome: Outcome
    is_failure_line: bool
    """It stands in the failures file."""


@dataclass(slots=True)
class SavedRun:
    """One run by its rollouts file. Every iterator reads the files anew."""

    paths: RunPaths
    inputs: Path | None = None
    """Where its rows are, when not at their usual place."""
    duplicates: int = 0
    """Lines of a key that had a line before, in the rollouts file; known after `rollouts()` was read."""

    @classmethod
    def open(cls, path: Path) -> SavedRun:
        """Raises UsageError when there is no run at `path`."""
        paths = RunPaths(path)
        if path.is_dir() or not (path.is_file() or paths.failures.is_file()):
            what = "is a folder" if path.is_dir() else "does not exist"
            raise UsageError(
                f"there is no run: the rollouts file {what}",
                where=str(path),
                hint="name the file that --output named; `@last` is the latest run of this folder",
            )
        return cls(paths)

    @property
    def inputs_file(self) -> Path:
        return self.inputs or self.paths.inputs

    @property
    def has_inputs(self) -> bool:
        return self.inputs_file.is_file()

    def planned(self) -> Iterator[Row]:
        """The rows that were to be run; nothing when the inputs file is gone."""
        return (row for _, row in read_rows(self.inputs_file))

    def rollouts(self) -> Iterator[SavedRollout]:
        """Every rollout that ended, once: the rollouts file in its order, then failures that stayed so."""
        seen = Keys()
        self.duplicates = 0
        for _, record in read_rows(self.paths.rollouts):
            key = rollout_key(record)
            if key in seen:
                self.duplicates += 1
                continue
            seen.add(key)
            yield SavedRollout(key, record, outcome_of(record), False)
        last: dict[Key, int] = {}
        for offset, record in read_rows(self.paths.failures):
            if (key := rollout_key(record)) not in seen:
                last[key] = offset
        for offset, record in read_rows(self.paths.failures):
            if last.get(key := rollout_key(record)) == offset:
                yield SavedRollout(key, record, outcome_of(record), True)

    def failures(self) -> Iterator[tuple[Key, Row]]:
        """Every failed attempt, also those that were followed by another one."""
        return ((rollout_key(record), record) for _, record in read_rows(self.paths.failures))

    def not_run(self) -> Iterator[Key]:
        """Planned rollouts without a line in either file, in the order of the plan."""
        ended = Keys()
        for _, row in read_rows(self.paths.rollouts):
            ended.add(rollout_key(row))
        for key, _ in self.failures():
            ended.add(key)
        return (key for row in self.planned() if (key := rollout_key(row)) not in ended)


def outcome_of(record: Row) -> Outcome:
    """How a saved rollout ended: as the collector saw it, which knew the run's model servers."""
    found = outcome(record)
    told = record.get(OUTCOME)
    if not isinstance(told, Mapping):
        return found
    stamp = cast(Mapping[str, Any], told)
    failure = stamp.get("failure")
    if failure in _CLASSES and found.failure is not None:
        return replace(
            found,
            failure=failure,
            reason=str(stamp.get("reason") or found.reason),
            counts_as_zero=stamp.get("counts_as_zero") is True,
        )
    return found


def content_hash(row: Row) -> str:
    """What a task asks, as 32 hex digits: equal in two runs exactly if a rollout could start the same way.

    Identity, agents and sampling parameters are left out: runs that differ in them are still compared task by
    task. Key order has no influence.
    """
    if is_materialized(row):
        content: dict[str, Any] = {"task_id": row["task_id"], "task_input": row["task_input"]}
    else:
        content = {
            key: value for key, value in row.items() if not key.startswith("_ng_") and key not in _NOT_CONTENT
        }
        params = row.get("responses_create_params")
        if isinstance(params, Mapping):
            content["responses_create_params"] = {
                key: params[key] for key in _CONTENT_OF_PARAMS if params.get(key) is not None
            }
    return blake2b(dumps(_ordered(content)), digest_size=16).hexdigest()


def _ordered(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _ordered(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, list):
        return [_ordered(inner) for inner in cast(list[Any], value)]
    return value


def read_rows(path: Path) -> Iterator[tuple[int, Row]]:
    """Offset and value of each line; nothing when the file is not there. ConfigError: file:line."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError(f"the file cannot be read: {error.strerror}", where=str(path)) from error
    with file:
        yield from _parsed(file, path)


def _parsed(file: BinaryIO, path: Path) -> Iterator[tuple[int, Row]]:
    for line in numbered(file):
        try:
            value = loads(line.text)
        except (ValueError, RecursionError) as error:
            if not line.is_ended:
                return  # the writer was killed in the middle of it
            raise ConfigError(unreadable(error), where=f"{path}:{line.number}") from None
        if not isinstance(value, dict):
            raise ConfigError("a record must be a JSON object", where=f"{path}:{line.number}")
        row = cast(Row, value)
        for name in (TASK_INDEX, ROLLOUT_INDEX):
            if not isinstance(row.get(name, 0), int | None):
                raise ConfigError(
                    f"`{name}` must be an integer, got {row[name]!r}", where=f"{path}:{line.number}"
                )
        yield line.start, row
