"""Which failures are tried again, how often, and in what order things are sent."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymctl.contract import retry_after
from gymctl.errors import UsageError
from gymctl.metrics.outcomes import Outcome, outcome
from gymctl.rollouts.attempts import AttemptPolicy
from gymctl.rollouts.queue import Queue, Work
from gymctl.rollouts.retries import DEFAULT, Retries, backoff, parse

PROVIDER = "policy_model/api.example.com/v1/responses"
MODEL = ("policy_model",)


def failed(**fields: Any) -> dict[str, Any]:
    return {"_ng_failure_class": "agent_run_error", "_ng_failure_http_status": 500, **fields}


def pause(
    record: dict[str, Any], retries: Retries | None = None, work: Work | None = None, most: int = 3
) -> float | None:
    asked = retries or Retries(DEFAULT)
    return asked.pause(work or Work(b"{}", {}), record, outcome(record, MODEL), AttemptPolicy(most))


@pytest.mark.parametrize(
    "result", ["429", "500", "503", "529", "transport_peer_drop", "transport_unreachable"]
)
def test_what_the_provider_may_get_over_is_tried_again(result: str) -> None:
    assert pause(failed(_ng_failure_call=f"{PROVIDER} {result}")) is not None


def test_a_providers_429_may_pass_under_each_name() -> None:
    record = failed(failure_kind="provider_quota_exhausted", _ng_failure_call=f"{PROVIDER} 429")
    assert pause(record) is not None


@pytest.mark.parametrize(
    "fields",
    [
        {"_ng_failure_call": f"{PROVIDER} 401"},
        {"_ng_failure_call": f"{PROVIDER} 400"},
        {"_ng_failure_call": f"{PROVIDER} 429", "_ng_failure_terminal": True},
        {"failure_kind": "transport_timeout"},
        {"failure_kind": "kill_shaped"},
        {"failure_kind": "provider_oom_killed"},
        {"failure_kind": "provider_quota_exhausted"},
        {"_ng_failure_class": "timeout_exceeded"},
        {"_ng_failure_class": "collector_bug"},
        {"_ng_no_persist": True, "_ng_failure_call": f"{PROVIDER} 429"},
        {"_ng_failure_class": None, "mask_sample": True},
        {"_ng_failure_call": "tools:8000/get_weather 500"},
        {"_ng_failure_stage": "verification"},
    ],
)
def test_what_will_not_pass_by_itself_is_not_tried_again(fields: dict[str, Any]) -> None:
    assert pause(failed(**fields)) is None


def test_classes_that_were_asked_for_are_tried_again() -> None:
    retries = Retries(parse(["environment=1", "verifier=1"]))
    assert pause(failed(_ng_failure_call="tools:8000/get_weather 500"), retries) is not None
    assert pause(failed(_ng_failure_stage="verification"), retries) is not None
    assert pause(failed(_ng_failure_stage="verification", _ng_failure_terminal=True), retries) is None


def test_earlier_failures_count_too() -> None:
    record = failed(_ng_failure_call=f"{PROVIDER} 429")
    assert pause(record, work=Work(b"{}", {"_ng_attempt_index": 1})) is not None
    assert pause(record, work=Work(b"{}", {"_ng_attempt_index": 2})) is None


def test_a_class_has_so_many_retries_and_an_attempt_an_index() -> None:
    record = failed(_ng_failure_call=f"{PROVIDER} 429")
    retries, work, made = Retries({"model": 2}), Work(b"{}", {"n": 1}), 0
    while pause(record, retries, work, most=99) is not None:
        work = work.again(record, outcome(record, MODEL))
        made += 1
    assert (made, work.row) == (2, {"n": 1, "_ng_attempt_index": 2})
    assert work.line == b'{"n":1,"_ng_attempt_index":2}'


def test_a_success_is_never_tried_again() -> None:
    assert Retries(DEFAULT).pause(Work(b"", {}), {"reward": 0.0}, Outcome(0.0), AttemptPolicy()) is None


@given(attempt=st.integers(1, 10**6), floor=st.floats(0, 3600))
def test_pauses_grow_to_a_minute_with_spread_and_never_undercut_what_was_asked(
    attempt: int, floor: float
) -> None:
    seconds = backoff(attempt, floor)
    wanted = max(floor, min(2.0 ** (attempt - 1) if attempt < 10 else 60, 60))
    assert wanted <= seconds <= wanted * 1.5


def test_what_failed_together_does_not_come_back_together() -> None:
    assert len({backoff(1) for _ in range(20)}) > 10


@pytest.mark.parametrize("text", ["model", "model=", "model=-1", "model=x", "weather=1", "", "model=²"])
def test_a_wrong_retry_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="must be CLASS=N"):
        parse([text])


def test_retries_as_they_are_typed() -> None:
    assert parse([]) == DEFAULT == {"model": 2, "infrastructure": 2}
    assert parse(["none"]) == {}
    assert parse(["model=5", "bug=1"]) == {"model": 5, "infrastructure": 2, "bug": 1}
    with pytest.raises(UsageError, match="goes with no other"):
        parse(["none", "model=1"])


def test_the_queue_sends_what_is_due_first_and_reads_no_further_while_many_pause() -> None:
    queue = Queue(((b"%d" % n, {"n": n}) for n in range(5)), most_waiting=2)
    first, second = queue.next(0.0), queue.next(0.0)
    assert first is not None and second is not None
    queue.put_back(first, 9.0)
    queue.put_back(second, 5.0)
    assert queue.next(4.0) is None  # two pause: rows stay in their file
    assert (queue.next_due, queue.is_empty) == (5.0, False)
    assert queue.next(5.0) is second
    assert [work.row["n"] for _ in range(3) if (work := queue.next(6.0)) is not None] == [2, 3, 4]
    assert (queue.next(6.0), queue.is_empty, queue.has_more()) == (None, False, True)
    assert list(queue.abandon()) == [first]
    assert (queue.is_empty, queue.has_more()) == (True, False)


def test_to_ask_whether_there_is_more_loses_nothing() -> None:
    queue = Queue(iter([(b"", {"n": 0})]), most_waiting=2)
    assert queue.has_more() and queue.has_more()
    work = queue.next(0.0)
    assert work is not None and work.row == {"n": 0}
    assert not queue.has_more()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("3", 3.0),
        ("0.5", 0.5),
        ("-1", 0.0),
        ("nan", 0.0),
        ("inf", 0.0),
        ("soon", 0.0),
        (None, 0.0),
        ("", 0.0),
    ],
)
def test_retry_after_as_seconds(text: str | None, seconds: float) -> None:
    assert retry_after.seconds(text) == seconds


def test_retry_after_as_a_date() -> None:
    assert retry_after.seconds("Wed, 21 Oct 2015 07:28:00 GMT", now=1445412470.0) == 10.0
    assert retry_after.seconds("Wed, 21 Oct 2015 07:28:00 GMT", now=1445412490.0) == 0.0
