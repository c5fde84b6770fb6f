"""What `/aggregate_metrics` is asked with: the run's rows without their conversations, one body per server.

The rows go through files: in memory there are four numbers for each, whatever it tells. A failure that counts
as zero, and if wanted a rollout that was not run, is a row with reward 0 (CONTRACT 9.9); it gets those fields
of its task that the scored rows of its server carry, since a server may group its metrics by them. Encoded
rows of failures that count are kept in memory until the plan tells their tasks' fields.

    with MetricInput([saved], counting, server_of) as found:
        found.fill()
        for server, body in found.bodies():      # a file each, rows ordered by task, then rollout
"""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gymctl.contract.rollout import ENVIRONMENT_SERVER, OUTCOME, ROLLOUT_INDEX, TASK_INDEX, Row, rollout_key
from gymctl.metrics.aggregate import MASK
from gymctl.metrics.declared import Declaration
from gymctl.metrics.statistics import number
from gymctl.rollouts.encoding import dumps, loads
from gymctl.rollouts.saved import Key, SavedRun

_STRIPPED = frozenset(
    {
        "response",
        "responses_create_params",
        "ng_agent_observations",
        "ng_model_call_capture",
        "ng_trajectory",
        OUTCOME,
    }
)
_KEPT_OF_RESPONSE = ("usage", "incomplete_details")
_OF_A_FAILURE = ("failure_kind", "failure_reason")
_BEFORE, _AFTER = b'{"verify_responses":[', b"]}"


@dataclass(frozen=True, slots=True)
class Counting:
    """What counts as reward 0 beside what was scored."""

    declared: Declaration = field(default_factory=Declaration)
    missing: bool = False
    """Planned rollouts that were not run."""


def strip(record: Row) -> Row:
    """What aggregation needs of a record: everything but the conversation."""
    kept = {key: value for key, value in record.items() if key not in _STRIPPED}
    response = record.get("response")
    if isinstance(response, dict):
        parts = {key: response[key] for key in _KEPT_OF_RESPONSE if response.get(key) is not None}
        if parts:
            kept["response"] = parts
    return kept


class MetricInput:
    """The bodies of the `/aggregate_metrics` calls of a run or its shards. A context manager; blocking."""

    def __init__(
        self, shards: Sequence[SavedRun], counting: Counting, server_of: Callable[[Row], str]
    ) -> None:
        """`server_of` an input row, or a record that names none: the environment server of its rollouts."""
        self.missing = 0
        """Rollouts that were not run and count as 0."""
        self._shards = shards
        self._counting = counting
        self._server_of = server_of
        self._shelves: dict[str, _Shelf] = {}
        self._files = ExitStack()

    def __enter__(self) -> MetricInput:
        self._folder = Path(self._files.enter_context(tempfile.TemporaryDirectory(prefix="gymctl-metrics-")))
        return self

    def __exit__(self, *error: object) -> None:
        self._files.close()

    def server_of(self, record: Row) -> str:
        """The environment server that made a rollout. Records of other programs name none."""
        named = record.get(ENVIRONMENT_SERVER)
        return self._server_of(record) if named is None else str(named)

    def bodies(self) -> Iterator[tuple[str, Path]]:
        for server, shelf in self._shelves.items():
            yield server, shelf.ordered()

    def fill(self) -> None:
        """Read the files."""
        for shard in self._shards:
            self._fill(shard)

    def _fill(self, shard: SavedRun) -> None:
        zeros: dict[Key, bytes] = {}
        for rollout in shard.rollouts():
            if not rollout.is_failure_line:
                self._shelf(self.server_of(rollout.record)).add(rollout.key, strip(rollout.record))
            elif self._counting.declared.applied(rollout.record, rollout.outcome).counts_as_zero:
                zeros[rollout.key] = dumps(_as_zero(rollout.record))
        if zeros or self._counting.missing:
            self._impute(shard, zeros)

    def _impute(self, shard: SavedRun, zeros: dict[Key, bytes]) -> None:
        missing = set(shard.not_run()) if self._counting.missing else set[Key]()
        for row in shard.planned():
            key = rollout_key(row)
            if key in missing:
                self.missing += 1
                self._add_zero(key, _identity(row, self._server_of(row)), row)
            elif (line := zeros.pop(key, None)) is not None:
                self._add_zero(key, loads(line), row)
        for key, line in zeros.items():  # of a run whose inputs are gone
            self._add_zero(key, loads(line), {})

    def _add_zero(self, key: Key, record: Row, row: Row) -> None:
        shelf = self._shelf(self.server_of(record))
        carried = {name: row[name] for name in shelf.names if name in row and name not in record}
        shelf.add(key, strip({**carried, **record}), is_scored=False)

    def _shelf(self, server: str) -> _Shelf:
        if server not in self._shelves:
            path = self._folder / str(len(self._shelves))
            self._shelves[server] = _Shelf(path, self._files.enter_context(path.open("w+b")))
        return self._shelves[server]


def _as_zero(record: Row) -> Row:
    """A failed rollout as a row that was scored 0."""
    row = {
        name: value
        for name, value in strip(record).items()
        if not name.startswith("_ng_failure_") and name not in _OF_A_FAILURE
    }
    return {**row, "reward": row["reward"] if number(row.get("reward")) is not None else 0.0, MASK: False}


def _identity(row: Row, server: str) -> Row:
    """A rollout that was not run, as a row that was scored 0."""
    own = {name: row[name] for name in (TASK_INDEX, ROLLOUT_INDEX, "agent_ref", "task_source") if name in row}
    return {**own, ENVIRONMENT_SERVER: server, "reward": 0.0}


class _Shelf:
    """Rows of one server, in a file; where each stands, in memory."""

    def __init__(self, path: Path, file: Any) -> None:
        self.names: dict[str, None] = {}
        """Fields that scored rows carry."""
        self._path = path
        self._file = file
        self._end = 0
        self._tasks, self._rollouts = array("q"), array("q")
        self._starts, self._lengths = array("q"), array("q")

    def add(self, key: Key, row: Row, *, is_scored: bool = True) -> None:
        line = dumps(row)
        if is_scored:
            self.names.update(dict.fromkeys(row))
        for column, value in zip(
            (self._tasks, self._rollouts, self._starts, self._lengths),
            (*key, self._end, len(line)),
            strict=True,
        ):
            column.append(value)
        self._file.write(line)
        self._end += len(line)

    def ordered(self) -> Path:
        """A file with the whole body."""
        order = sorted(range(len(self._tasks)), key=self._rollouts.__getitem__)
        order.sort(key=self._tasks.__getitem__)  # stable; pairs as keys would take more room than the rest
        body = self._path.with_suffix(".json")
        with body.open("wb") as file:
            file.write(_BEFORE)
            for number, place in enumerate(order):
                self._file.seek(self._starts[place])
                file.write(b"," * (number > 0) + self._file.read(self._lengths[place]))
            file.write(_AFTER)
        return body
