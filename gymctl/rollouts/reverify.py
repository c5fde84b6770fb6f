"""Score saved rollouts again (CONTRACT 11, `reverify`): `POST /verify` with the old answer, no generation.

A verifier that reads only the request says so (`GET /reverify_mode`: stateless). Any other may look at a
session that is long gone, so its new scores are only made when that is asked for.

plan       who verifies which rollout; nothing sent to `/verify`, nothing written
run        bounded workers, one request each; a record as a rollout gets it, a failure where none came
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

from gymctl.contract.rollout import (
    ATTEMPT_INDEX,
    ENVIRONMENT_SERVER,
    FAILURE_CLASS,
    JOIN_KEY,
    RESULT_TYPE,
    ROLLOUT_ID,
    ROLLOUT_INDEX,
    TASK_INDEX,
    Row,
    is_materialized,
    rollout_key,
)
from gymctl.contract.servers import ServerTable
from gymctl.errors import ConfigError, RunError, ServerError, first_cause
from gymctl.metrics.aggregate import MASK
from gymctl.metrics.outcomes import Outcome, outcome
from gymctl.rollouts.encoding import dumps, loads
from gymctl.rollouts.failures import broken_answer, error_answer, no_answer
from gymctl.rollouts.lines import numbered
from gymctl.rollouts.route import named_agent
from gymctl.rollouts.saved import Key, SavedRun
from gymctl.transport import ROLLOUT, Answer, Transport, TransportError

STATELESS = "stateless"
JUDGE_CLASSES = frozenset({"judge_failed", "judge_invalid", "judge_unparseable", "invalid_judge_response"})
_IDENTITY = (
    *(TASK_INDEX, ROLLOUT_INDEX, ATTEMPT_INDEX, ROLLOUT_ID, ENVIRONMENT_SERVER, RESULT_TYPE, JOIN_KEY),
    *("agent_ref", "task_source", "skills_ref", "_ng_task_id"),
)
_REFUSED_SECONDS = 10.0


class Sink(Protocol):
    """Where new records go: whole or not at all."""

    def write(self, record: Row) -> None: ...


@dataclass(frozen=True, slots=True)
class Case:
    """One rollout to be scored again."""

    key: Key
    old: Row
    before: Outcome
    verifier: str
    body: bytes

    @property
    def name(self) -> str:
        return str(self.old.get(JOIN_KEY) or f"{self.key[0]}-{self.key[1]}")


@dataclass(frozen=True, slots=True)
class Change:
    """A rollout and its two rewards."""

    name: str
    before: float
    after: float


@dataclass(slots=True)
class Changes:
    """What the new scores changed."""

    same: int = 0
    gained: list[Change] = field(default_factory=list)
    lost: list[Change] = field(default_factory=list)
    failed: Counter[str] = field(default_factory=Counter)
    """New verdicts that did not come, by reason."""
    rescued: int = 0
    """Rollouts without a score that have one now."""

    def add(self, name: str, before: Outcome, after: Outcome) -> None:
        if after.reward is None:
            self.failed[f"{after.failure}: {after.reason}"] += 1
        elif before.reward is None:
            self.rescued += 1
        elif after.reward == before.reward:
            self.same += 1
        else:
            kept = self.gained if after.reward > before.reward else self.lost
            kept.append(Change(name, before.reward, after.reward))


class Reverification:
    """All cases of one saved run against one server table."""

    def __init__(
        self,
        run: SavedRun,
        table: ServerTable,
        *,
        served: ServerTable | None = None,
        only_judge_failed: bool = False,
        verifier: str | None = None,
    ) -> None:
        """`verifier` scores every rollout; None: each is scored by the server that belongs to it. `served`
        has the addresses, where the verifiers run without the servers that `table` has around them."""
        self.served = served or table
        self.saved = run
        self._verifier = verifier
        self._table = table
        self._only_judge_failed = only_judge_failed
        self.without_response = 0
        """Rollouts that were passed over: there is no answer to score."""
        self.changes = Changes()

    def verifiers(self, run: SavedRun | None = None) -> dict[str, str]:
        """Environment server -> the resources server that scores its rollouts, of all of them, whatever is to
        be scored. Raises ConfigError. `run`: another run of the same servers."""
        found: dict[str, str] = {}
        rows = InputRows(run or self.saved)
        for rollout in (run or self.saved).rollouts():
            server = environment_of(rollout.record)
            if server not in found and isinstance(rollout.record.get("response"), Mapping):
                found[server] = self._verifier_of(rows[rollout.key], rollout.record)
        return found

    def cases(self) -> Iterator[Case]:
        """Raises ConfigError for a rollout without an input row, or without a verifier."""
        self.without_response = 0
        rows = InputRows(self.saved)
        for old, before in self._chosen():
            key = rollout_key(old)
            if not isinstance(old.get("response"), Mapping):
                self.without_response += 1
                continue
            row = rows[key]
            verifier = self._verifier_of(row, old)
            yield Case(key, old, before, verifier, dumps({**_request(row), "response": old["response"]}))

    def _verifier_of(self, row: Row, record: Row) -> str:
        return self._verifier or verifier_of(row, record, self._table)

    def _chosen(self) -> Iterator[tuple[Row, Outcome]]:
        """Of the failures only what a judge has spoiled: the others have no answer worth a verdict."""
        for rollout in self.saved.rollouts():
            if is_judge_failed(rollout.record) or not (self._only_judge_failed or rollout.is_failure_line):
                yield rollout.record, rollout.outcome

    async def check_modes(self, transport: Transport, *, is_forced: bool) -> bool:
        """Whether all verifiers are stateless; RunError when one is not and nobody insists."""
        modes: dict[str, str] = {}
        for verifier in sorted(set(self.verifiers().values())):
            modes[verifier] = await _mode(transport, self.served[verifier].url, verifier)
        others = {name: mode for name, mode in modes.items() if mode != STATELESS}
        if others and not is_forced:
            told = ", ".join(f"`{name}` ({mode})" for name, mode in others.items())
            raise RunError(
                f"a verifier may need the session that a rollout had: {told}",
                where=str(self.saved.paths.rollouts),
                hint="--force scores anyway, into a file whose name begins with unsafe_",
            )
        return not others

    async def run(
        self,
        transport: Transport,
        sink: Sink,
        *,
        concurrency: int,
        done: frozenset[Key] = frozenset(),
        limit: int | None = None,
        drain: asyncio.Event | None = None,
    ) -> int:
        """Verify everything that is not in `done`, until `drain` is set; returns how many. RunError: the disk
        is full."""
        cases = islice((case for case in self.cases() if case.key not in done), limit)
        count = 0

        async def work() -> None:
            nonlocal count
            while not (drain is not None and drain.is_set()):
                case = next(cases, None)
                if case is None:
                    return
                record = await self._verified(transport, case)
                sink.write(record)
                count += 1
                self.changes.add(case.name, case.before, outcome(record))

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(concurrency):
                    group.create_task(work())
        except BaseExceptionGroup as errors:
            raise first_cause(errors) from errors
        return count

    async def _verified(self, transport: Transport, case: Case) -> Row:
        ROLLOUT.set(case.name)
        url = f"{self.served[case.verifier].url}/verify"
        try:
            record = _record(
                await transport.call("POST", url, case.body, retry_seconds=_REFUSED_SECONDS), case
            )
        except TransportError as error:
            record = no_answer(error)
        if record.get(FAILURE_CLASS) is not None:
            record.setdefault("_ng_failure_stage", "verification")
        record.update((name, case.old[name]) for name in _IDENTITY if name in case.old)
        return record


def is_judge_failed(record: Row) -> bool:
    """Whether an answer is there and only its judge gave none that could be used (CONTRACT 5.5)."""
    if record.get(FAILURE_CLASS) is not None:
        return record[FAILURE_CLASS] in JUDGE_CLASSES
    return bool(record.get(MASK)) and record.get("failure_kind") in JUDGE_CLASSES


class InputRows:
    """The rows of a run by key, read from the file when they are asked for: only their places are kept."""

    def __init__(self, run: SavedRun) -> None:
        self._path = run.inputs_file
        self._places: dict[Key, tuple[int, int]] = {}
        if not run.has_inputs:
            raise ConfigError(
                "the inputs of this run are gone", where=str(self._path), hint="name them with --inputs"
            )
        with self._path.open("rb") as file:
            for line in numbered(file):
                self._places[rollout_key(loads(line.text))] = line.start, len(line.text)

    def __getitem__(self, key: Key) -> Row:
        place = self._places.get(key)
        if place is None:
            raise ConfigError(
                f"rollout {key[0]}-{key[1]} has no row among the inputs",
                where=str(self._path),
                hint="inputs and rollouts must be of one run",
            )
        with self._path.open("rb") as file:
            file.seek(place[0])
            return loads(file.read(place[1]))


def environment_of(record: Row) -> str:
    """The environment server that made a rollout, or what else a record of another program names."""
    named = record.get(ENVIRONMENT_SERVER) or record.get("task_source") or named_agent(record)
    return str(named or "unknown")


def verifier_of(row: Row, record: Row, table: ServerTable) -> str:
    """The row's task source if it is one, else what the environment server fronts, else the agent's."""
    source = row.get("task_source") or record.get("task_source")
    if isinstance(source, str) and source in table and table[source].kind == "resources_servers":
        return source
    agent = record.get("agent_ref")
    agent = agent.get("name") if isinstance(agent, Mapping) else None
    names = [record.get(ENVIRONMENT_SERVER), agent]
    for name in names:
        if not isinstance(name, str) or name not in table:
            continue
        references = table[name].references
        found = references.get("resources_server")
        behind = references.get("agent_server")
        if found is None and behind is not None and behind in table:
            found = table[behind].references.get("resources_server")
        if found is not None and found in table:
            return found
    raise ConfigError(
        f"no resources server here verifies rollout {record.get(JOIN_KEY) or rollout_key(record)}",
        where=f"environment server `{names[0]}`, agent `{names[1]}`",
        hint="name the configuration that made the run",
    )


def _request(row: Row) -> Row:
    """The row as `/verify` gets it: task fields at the top, without what only the collector needs."""
    fields: Mapping[str, Any] = row["task_input"] if is_materialized(row) else row
    return {key: value for key, value in fields.items() if not key.startswith("_ng_")}


def _record(answer: Answer, case: Case) -> Row:
    if answer.is_error:
        return error_answer(answer)
    try:
        value = loads(answer.body)
    except (ValueError, RecursionError) as error:
        return broken_answer(answer, f"the answer is not JSON: {type(error).__name__}")
    if not isinstance(value, dict):
        return broken_answer(answer, "the answer is not a JSON object")
    record: Row = value
    record.setdefault("response", case.old["response"])
    return record


async def _mode(transport: Transport, url: str, verifier: str) -> str:
    try:
        answer = await transport.call(
            "GET", f"{url}/reverify_mode", timeout=30, retry_seconds=_REFUSED_SECONDS
        )
    except TransportError as error:
        raise ServerError(
            f"the verifier `{verifier}` does not answer",
            where=url,
            hint="gymctl ps shows what is running",
            details=[error.detail],
        ) from error
    if answer.is_error:
        return "unknown"
    try:
        mode = answer.json()
    except ValueError:
        return "unknown"
    return mode if isinstance(mode, str) else "unknown"
