"""Which failures count as reward 0, and what that does to the numbers."""

from __future__ import annotations

from typing import Any

import pytest

from gymctl.metrics.declared import Declaration
from gymctl.metrics.outcomes import Outcome, outcome
from gymctl.metrics.tally import Tally

OOM = {"_ng_failure_class": "agent_request_failed", "failure_kind": "provider_oom_killed"}
KILLED = {"_ng_failure_class": "agent_request_failed", "failure_kind": "kill_shaped"}
LATE = {"_ng_failure_class": "agent_request_failed", "failure_kind": "transport_timeout"}
JUDGE = {"_ng_failure_class": "judge_failed", "reward": 0.0}


@pytest.mark.parametrize(
    ("declared", "record", "counts"),
    [
        (Declaration(), OOM, False),
        (Declaration({"oom": "zero"}), OOM, True),
        (Declaration({"oom": "zero"}), KILLED | {"_ng_failure_out_of_memory": True}, True),
        (Declaration({"oom": "zero"}), KILLED, False),
        (Declaration({"infrastructure": "zero", "oom": "failed"}), OOM, False),
        (Declaration({"infrastructure": "zero", "oom": "failed"}), KILLED, True),
        (Declaration({"timeout": "zero"}), LATE, True),
        (Declaration({"timeout": "zero"}), {"_ng_failure_class": "timeout_exceeded"}, True),
        (Declaration(labels=frozenset({"judge_failed"})), JUDGE, True),
        (Declaration({"verifier": "failed"}, frozenset({"judge_failed"})), JUDGE, True),
        (Declaration({"verifier": "zero"}), {"reward": "1.0"}, True),
    ],
)
def test_a_failure_counts_as_declared(declared: Declaration, record: dict[str, Any], counts: bool) -> None:
    found = declared.applied(record, outcome(record))
    assert found.counts_as_zero is counts
    assert found.failure is not None


def test_a_scored_rollout_is_never_changed() -> None:
    every = Declaration(dict.fromkeys(("model", "verifier", "oom"), "zero"))
    assert every.applied({"reward": 1.0}, Outcome(1.0)) == Outcome(1.0)


def test_what_counts_as_zero_is_scored_and_said_to_be() -> None:
    tally = Tally()
    for task, record in enumerate(({"reward": 1.0}, OOM, KILLED)):
        tally.plan(task)
        found = Declaration({"oom": "zero"}).applied(record, outcome(record))
        tally.add({"_ng_task_index": task}, found, record)
    assert (tally.scored, dict(tally.zeros), dict(tally.failed)) == (
        2,
        {"infrastructure": 1},
        {"infrastructure": 1},
    )
    head = tally.headline()
    assert (head.mean, head.coverage) == (0.5, 2 / 3)
    assert tally.finished == tally.planned == 3
