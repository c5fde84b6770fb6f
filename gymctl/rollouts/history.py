"""What the files of a run say is done: read once, in the memory of an index of keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gymctl.contract.rollout import OUTCOME, ROLLOUT_INDEX, TASK_INDEX, Row, rollout_key
from gymctl.metrics.outcomes import Outcome
from gymctl.metrics.tally import Tally
from gymctl.paths import RunPaths
from gymctl.rollouts.attempts import REUSE, AttemptPolicy
from gymctl.rollouts.returned import Returned
from gymctl.rollouts.saved import Key, outcome_of, read_rows


@dataclass(slots=True)
class History:
    """What became of the rollouts of a run in the sessions before this one."""

    done: set[Key] = field(default_factory=set)
    """Keys in the rollouts file."""
    failures: dict[Key, int] = field(default_factory=dict)
    """Of keys that are not: how many failures they have."""
    over: set[Key] = field(default_factory=set)
    """Those of them that are not tried again."""
    reusing: set[Key] = field(default_factory=set)
    """Those whose next attempt may use what the last one delivered."""
    last: dict[Key, Outcome] = field(default_factory=dict)
    """How those ended that are tried again: what they come to, should they not be reached."""
    seconds: dict[int, float] = field(default_factory=dict)
    """Task -> the longest that one of its rollouts took."""
    returned: Returned = field(default_factory=Returned)
    """What the models called themselves."""

    def is_owed(self, key: Key) -> bool:
        return key not in self.done and key not in self.over

    def fail(self, record: Row, policy: AttemptPolicy) -> None:
        """One more failed attempt was read."""
        key = rollout_key(record)
        count = self.failures[key] = self.failures.get(key, 0) + 1
        # One terminal failure is enough, whatever was written after it.
        if policy.is_over(count, record):
            self.over.add(key)
        (self.reusing.add if record.get(REUSE) else self.reusing.discard)(key)
        self.last[key] = replace(outcome_of(record), cause="")

    def time(self, record: Row) -> None:
        """Note how long it took."""
        task, _ = rollout_key(record)
        stamp = record.get(OUTCOME)
        seconds = stamp.get("seconds") if isinstance(stamp, dict) else None
        if isinstance(seconds, (int, float)):
            self.seconds[task] = max(self.seconds.get(task, 0.0), float(seconds))


def read(paths: RunPaths, policy: AttemptPolicy, tally: Tally, planned: Mapping[int, int]) -> History:
    """Read both files and count what is final, as far as it is part of the plan (task -> rollouts)."""
    history = History()
    for _, record in read_rows(paths.rollouts):
        key = rollout_key(record)
        if key in history.done:
            continue
        history.done.add(key)
        history.returned.see(record)
        history.time(record)
        if is_planned(key, planned):
            tally.add(record, outcome_of(record), record)
    for _, record in read_rows(paths.failures):
        history.returned.see(record)
        if rollout_key(record) in history.done:
            tally.retry(record)
        else:
            tally.spend(record)
            history.time(record)
            history.fail(record, policy)
    for key in history.over:
        outcome = history.last.pop(key)
        if is_planned(key, planned):
            tally.add(identity(key), outcome, {})
    return history


def identity(key: Key) -> Row:
    """A row that only says which rollout it is."""
    return {TASK_INDEX: key[0], ROLLOUT_INDEX: key[1]}


def is_planned(key: Key, tasks: Mapping[int, int]) -> bool:
    """Whether a plan (task -> rollouts) has this rollout."""
    return 0 <= key[1] < tasks.get(key[0], 0)
