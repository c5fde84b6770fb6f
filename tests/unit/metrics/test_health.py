"""Health checks, one by one: the smallest record that is healthy, what makes it unhealthy, what hides it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from gymctl.contract.health import RECORD_CHECKS, TASK_CHECKS
from gymctl.metrics import health
from gymctl.metrics.health import CHECKS, Judged, finding, judge
from gymctl.metrics.health_summary import Summary

Record = dict[str, Any]


def model_call(name: str, at: float, **facts: Any) -> Record:
    metadata = {"status_code": 200, "response_status": "completed", "error_category": None, **facts}
    tokens = {"prompt_tokens": 10, "completion_tokens": 5}
    return {
        "model_call_id": name,
        "completed_at": at,
        "response_metadata": metadata,
        "token_stats": tokens,
    }


def turn(number: int, text: str) -> Record:
    content = [{"type": "output_text", "text": text}]
    return {"turn_no": number, "answer": [{"type": "message", "role": "assistant", "content": content}]}


def healthy() -> Record:
    return {
        "reward": 0.0,
        "gymctl_rollout_id": "3-0",
        "response": {"output": [], "usage": {"input_tokens": 20, "output_tokens": 10}},
        "ng_perf": {"prompt_tokens": 20, "completion_tokens": 10},
        "ng_trajectory": {
            "rollout_id": "3-0",
            "invocations": [{"invocation_id": "root", "model_calls": [{"model_call_id": "c1"}]}],
            "turns": [turn(1, "Let me see."), turn(2, "Done.")],
            "model_calls": [model_call("c1", 1.0), model_call("c2", 2.0)],
            "gaps": [{"code": "resolution_unavailable"}],
        },
        "ng_model_call_capture": {
            "rollout_id": "3-0",
            "metrics": {"tokens_in": 20, "tokens_out": 10},
            "calls": [{"model_call_id": "c1"}, {"model_call_id": "c2"}],
            "gaps": [],
        },
    }


def calls(record: Record) -> list[Record]:
    return record["ng_trajectory"]["model_calls"]


def facts(record: Record, index: int) -> Record:
    return calls(record)[index]["response_metadata"]


def found(judged: Judged) -> list[str]:
    return [one["check"] for one in judged.findings]


def test_a_rollout_of_which_all_was_seen_is_healthy() -> None:
    judged = judge(healthy())
    assert (judged.verdict, judged.findings, judged.unobserved) == ("healthy", [], [])
    told = {name: count for name, count in judged.stats.items() if count and not name.startswith("capture_")}
    assert told == {"turns": 2, "model_calls": 2, "prompt": 20, "completion": 10}
    assert (judged.stats["capture_prompt"], judged.stats["capture_completion"]) == (20, 10)


def no_turn(record: Record) -> None:
    record["ng_trajectory"]["turns"] = []


def last_fails(record: Record) -> None:
    facts(record, 1).update(status_code=500, error_category="upstream_error")


def first_fails(record: Record) -> None:
    facts(record, 0).update(status_code=None, error_category="timeout")


def ended_first(record: Record) -> None:
    """Listed last, and answered; the one before it ended later, and failed."""
    calls(record)[0]["completed_at"] = 9.0
    facts(record, 0).update(response_status="failed")


def silent_turn(record: Record) -> None:
    record["ng_trajectory"]["turns"][1] = turn(2, " \n")


def no_tokens_made(record: Record) -> None:
    calls(record)[1]["token_stats"]["completion_tokens"] = 0
    record["ng_model_call_capture"]["metrics"]["tokens_out"] = 5
    record["ng_perf"]["completion_tokens"] = record["response"]["usage"]["output_tokens"] = 5


def no_counts(record: Record) -> None:
    calls(record)[0]["token_stats"]["prompt_tokens"] = None


def lost_call(record: Record) -> None:
    record["ng_model_call_capture"]["calls"].append({"model_call_id": "c3"})


def unknown_call(record: Record) -> None:
    record["ng_trajectory"]["gaps"].append({"code": "agent_observation_join_failed"})


def other_rollout(record: Record) -> None:
    record["ng_model_call_capture"]["rollout_id"] = "4-0"


def other_sum(record: Record) -> None:
    record["ng_model_call_capture"]["metrics"]["tokens_in"] = 19


def more_than_made(record: Record) -> None:
    record["response"]["usage"]["output_tokens"] = 11


def cut_off(record: Record) -> None:
    facts(record, 1).update(
        error_category="incomplete", response_status="incomplete", finish_reason="max_output_tokens"
    )


def damaged(record: Record) -> None:
    record["ng_trajectory"]["turns"] = "none"


@pytest.mark.parametrize(
    ("spoil", "checks", "where"),
    [
        (no_turn, ["rollout_missing_agent_turns"], None),
        (last_fails, ["rollout_ended_on_failed_model_call", "model_call_failed"], ["c2"]),
        (first_fails, ["model_call_failed"], ["c1"]),
        (ended_first, ["rollout_ended_on_failed_model_call", "model_call_failed"], ["c1"]),
        (silent_turn, ["agent_turn_hollow"], [2]),
        (no_tokens_made, ["model_call_zero_completion_tokens"], ["c2"]),
        (no_counts, ["model_call_missing_token_counts"], ["c1"]),
        (lost_call, ["trajectory_capture_mismatch"], ["c3"]),
        (unknown_call, ["trajectory_capture_mismatch"], None),
        (other_rollout, ["trajectory_capture_mismatch"], None),
        (other_sum, ["rollout_token_count_mismatch"], None),
        (more_than_made, ["rollout_token_count_mismatch"], None),
        (cut_off, ["model_call_runaway_generation"], ["c2"]),
        (damaged, ["record_unreadable"], None),
    ],
)
def test_what_a_check_finds(spoil: Callable[[Record], None], checks: list[str], where: list[Any]) -> None:
    record = healthy()
    spoil(record)
    if "model_call_failed" in checks:  # what a failed call used is not in the sums
        record["ng_model_call_capture"]["metrics"] = {"tokens_in": 10, "tokens_out": 5}
        record["ng_perf"] = record["response"]["usage"] = {}
    judged = judge(record)
    assert (judged.verdict, found(judged)) == ("unhealthy", checks)
    assert judged.findings[0].get("where") == where
    ignoring = judge(record, checks)
    assert not ignoring.findings
    assert set(checks).isdisjoint(ignoring.unobserved)


def without(*keys: str) -> Callable[[Record], None]:
    def spoil(record: Record) -> None:
        for key in keys:
            record.pop(key)

    return spoil


def no_calls(record: Record) -> None:
    record["ng_trajectory"].update(model_calls=[], turns=[])
    record["ng_model_call_capture"].update(calls=[], metrics={})


def nothing_told(record: Record) -> None:
    record["ng_trajectory"].update(turns=[], invocations=[])


def calls_missing(record: Record) -> None:
    record["ng_model_call_capture"]["gaps"].append({"code": "model_call_capture_incomplete"})


OF_CALLS = [
    "rollout_ended_on_failed_model_call",
    "model_call_zero_completion_tokens",
    "model_call_missing_token_counts",
    "trajectory_capture_mismatch",
    "model_call_failed",
    "rollout_token_count_mismatch",
    "model_call_runaway_generation",
]


@pytest.mark.parametrize(
    ("spoil", "unobserved"),
    [
        (without("ng_trajectory", "ng_model_call_capture"), list(CHECKS)),
        (no_calls, list(CHECKS)),
        (nothing_told, ["rollout_missing_agent_turns", "agent_turn_hollow"]),
        (calls_missing, OF_CALLS),
        (without("ng_model_call_capture"), ["trajectory_capture_mismatch"]),
    ],
)
def test_what_cannot_be_seen_is_not_healthy(spoil: Callable[[Record], None], unobserved: list[str]) -> None:
    record = healthy()
    spoil(record)
    judged = judge(record)
    assert (judged.verdict, judged.findings, judged.unobserved) == ("unobserved", [], unobserved)
    assert judge(record, unobserved).verdict == "healthy"


def test_a_bad_call_is_found_among_some_of_the_calls() -> None:
    record = healthy()
    first_fails(record)
    calls_missing(record)
    assert found(judge(record)) == ["model_call_failed"]


def test_calls_without_a_trajectory_are_looked_at() -> None:
    record = healthy()
    del record["ng_trajectory"]
    call = {"model_call_id": "c1", "status_code": 429, "error_category": "rate_limit", "tokens_in": None}
    record["ng_model_call_capture"]["calls"] = [call]
    judged = judge(record)
    assert found(judged) == ["rollout_ended_on_failed_model_call", "model_call_failed"]
    assert judged.findings[0]["message"] == "the last model call failed: rate_limit, 429"
    assert (judged.calls, judged.answers) == (1, 0)


@pytest.mark.parametrize(
    "answer",
    [
        [{"type": "function_call", "name": "look", "arguments": "{}"}],
        [{"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}],
        [{"type": "tool_use", "name": "look"}],
        [{"type": "text", "text": "Yes."}],
        [{"type": "message", "content": [{"type": "refusal", "refusal": "No."}]}],
        "Yes.",
    ],
)
def test_a_turn_in_any_dialect_says_something(answer: Any) -> None:
    assert health.hollow_turns(_turns({"answer": answer})) == health.NOTHING


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        [{"type": "message", "content": []}],
        [{"role": "assistant", "content": ""}],
        [{"type": "text", "text": ""}],
    ],
)
def test_a_turn_in_any_dialect_says_nothing(answer: Any) -> None:
    found = health.hollow_turns(_turns({"answer": answer, "turn_no": 1}))
    assert found is not None
    assert found.where == (1,)
    thought = [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}]
    assert health.hollow_turns(_turns({"answer": answer, "reasoning_content": thought})) == health.NOTHING


def _turns(*turns: Record) -> Any:
    return health.Evidence.of({"ng_trajectory": {"turns": list(turns)}})


def test_a_check_that_raises_is_a_finding_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: health.Evidence) -> None:
        raise KeyError("x")

    monkeypatch.setattr(health, "CHECKS", {**CHECKS, "model_call_failed": broken})
    judged = judge(healthy())
    assert judged.findings == [finding("check_execution_error", "model_call_failed: KeyError")]
    assert judged.unobserved == ["model_call_failed"]


def test_every_check_of_a_record_is_named_in_the_contract() -> None:
    assert (*RECORD_CHECKS[:3], *CHECKS) == RECORD_CHECKS


def of_task(*rollouts: Judged, ignored: tuple[str, ...] = ()) -> dict[str, Any]:
    summary = Summary(ignored)
    for index, judged in enumerate(rollouts):
        summary.add(judged, 7, f"7-{index}")
    return summary.document()


def judged(*checks: str, calls: int = 1, answers: int = 1) -> Judged:
    return Judged([finding(check, "") for check in checks], calls=calls, answers=answers)


def flags_of(*rollouts: Judged) -> list[str]:
    return of_task(*rollouts)["tasks"]["7"]["flags"]


def coverage_of(check: str, *rollouts: Judged) -> dict[str, int]:
    return of_task(*rollouts)["run"]["artifacts"]["coverage"][check]


def test_a_task_is_consistently_unhealthy_from_two_rollouts_on() -> None:
    bad, good, unseen = (
        judged("agent_turn_hollow"),
        judged(),
        Judged(unobserved=["agent_turn_hollow"], calls=1),
    )
    check = TASK_CHECKS[0]
    assert check in flags_of(bad, copy.copy(bad))
    assert check in flags_of(bad, bad, unseen), "what was not seen does not make a task better"
    assert check not in flags_of(bad)
    assert check not in flags_of(bad, good)
    assert coverage_of(check, bad, good)["evaluated"] == 1
    assert coverage_of(check, bad, unseen)["unobserved"] == 1
    run = of_task(bad, bad, ignored=(check,))["run"]
    assert {name: count for name, count in run["issues"].items() if count} == {"agent_turn_hollow": 2}
    assert run["artifacts"]["coverage"][check] == {"evaluated": 0, "unobserved": 0, "ignored": 1}


def test_a_task_without_an_answered_call() -> None:
    failed, unseen, good = judged(answers=0), judged(calls=0, answers=0), judged()
    check = TASK_CHECKS[1]
    for rollouts, is_found, is_unobserved in (
        ((failed, failed), True, 0),
        ((failed, good), False, 0),
        ((unseen, good), False, 0),
        ((failed, unseen), False, 1),
    ):
        assert (check in flags_of(*rollouts)) is is_found
        assert coverage_of(check, *rollouts)["unobserved"] == is_unobserved


def test_the_summary_counts() -> None:
    summary = Summary(("agent_turn_hollow",))
    summary.add(judge(healthy()), 3, "3-0")
    summary.add(
        judge({"reward": 1.0, "response": {"usage": {"input_tokens": 9, "output_tokens": 2}}}), 4, "4-0"
    )
    summary.add(judged("record_unreadable"), None, "x.jsonl:3")
    document = summary.document()
    run, artifacts = document["run"], document["run"]["artifacts"]
    assert (run["ignored_checks"], artifacts["records"], artifacts["captures"]) == (
        ["agent_turn_hollow"],
        3,
        1,
    )
    assert run["verdicts"] == {"healthy": 1, "unhealthy": 1, "unobserved": 1}
    assert run["issues"] == {**dict.fromkeys((*RECORD_CHECKS, *TASK_CHECKS), 0), "record_unreadable": 1}
    assert artifacts["coverage"]["record_unreadable"] == {"evaluated": 3, "unobserved": 0, "ignored": 0}
    assert artifacts["coverage"]["model_call_failed"] == {"evaluated": 2, "unobserved": 1, "ignored": 0}
    assert artifacts["coverage"]["agent_turn_hollow"] == {"evaluated": 0, "unobserved": 0, "ignored": 3}
    captured = judge(healthy()).stats
    assert run["stats"]["tokens"]["prompt"] == 9 + captured["prompt"]
    assert run["stats"]["tokens"]["capture_prompt"] == captured["capture_prompt"] > 0
    assert document["tasks"] == {
        "3": {"repeats": 1, "healthy": 1, "unhealthy": 0, "unobserved": 0, "flags": []},
        "4": {"repeats": 1, "healthy": 0, "unhealthy": 0, "unobserved": 1, "flags": []},
    }
    assert summary.examples == {"record_unreadable": ["x.jsonl:3"]}


def test_errors_of_model_calls_are_counted_by_status() -> None:
    def call(name: str, **facts: Any) -> dict[str, Any]:
        return {"model_call_id": name, **facts}

    calls = [call("a", status_code=500), call("a", status_code=200), call("b", error_category="timeout")]
    summary = Summary()
    summary.add(judge({"ng_model_call_capture": {"calls": calls}}), 0, "0-0")
    stats = summary.document()["run"]["stats"]
    assert stats["model_call_errors"] == {
        "total": 2,
        "by_status": {"500": 1, "unknown": 1},
        "rollouts_affected": 1,
        "ended_on_error": 1,
    }
    assert stats["duplicated_calls"] == {"replayed": 1, "rollouts": 1}
