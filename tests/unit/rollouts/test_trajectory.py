"""Trajectories by projection (CONTRACT 15.2): references join, nobody guesses, gaps are told."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymctl.contract.captures import CaptureFiles
from gymctl.rollouts.captures import Captures
from gymctl.rollouts.trajectory import perf, project

MODEL = {"type": "responses_api_models", "name": "policy_model"}
QUESTION = {"type": "message", "role": "user", "content": "Weather?"}
CALL = {"type": "function_call", "call_id": "t1", "name": "get_weather", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "t1", "output": "snow"}
THOUGHT = {"type": "reasoning", "id": "r", "summary": []}
ANSWER = {"type": "message", "role": "assistant", "content": "Snow."}


def call(number: int, asked: list[Any], answered: list[Any], **more: Any) -> dict[str, Any]:
    return {
        "model_call_id": f"c{number}",
        "response_id": f"resp_{number}",
        "model_ref": MODEL,
        "dialect": "responses",
        "status_code": 200,
        "started_at": float(number),
        "request": {"input": asked},
        "response": {"id": f"resp_{number}", "output": answered},
        "tokens_in": 10 * number,
        "tokens_out": number,
        "cached_tokens": None,
        "latency_total_ms": 5.0,
        **more,
    }


def two_calls() -> list[dict[str, Any]]:
    return [
        call(1, [QUESTION], [THOUGHT, CALL]),
        call(2, [QUESTION, THOUGHT, CALL, OUTPUT], [ANSWER]),
    ]


def invocation(*references: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "kind": "agent_invocation",
        "invocation_id": "root",
        "model_calls": list(references),
        "conversation": [QUESTION, THOUGHT, CALL, OUTPUT, ANSWER],
        **more,
    }


def observed(*records: dict[str, Any]) -> dict[str, Any]:
    return {"source": "test", "records": list(records), "gaps": []}


def record(calls: list[dict[str, Any]], bundle: Any = None, **more: Any) -> dict[str, Any]:
    return {"ng_model_call_capture": {"calls": calls, "gaps": []}, "ng_agent_observations": bundle, **more}


def codes(trajectory: Any) -> list[str]:
    return [gap.code for gap in trajectory.gaps]


@pytest.mark.parametrize(
    "references",
    [
        ({"model_call_id": "c1"}, {"model_call_id": "c2"}),
        ({"model_ref": MODEL, "response_id": "resp_1"}, {"model_ref": MODEL, "response_id": "resp_2"}),
    ],
    ids=["call id", "response id"],
)
def test_turns_come_from_the_calls_that_an_invocation_refers_to(references) -> None:
    tool = {"kind": "tool_call", "invocation_id": "root", "tool_call_id": "t1", "status": "completed"}
    bundle = observed(invocation(*references), tool)
    made = project(record(two_calls(), bundle, resolved=True), "17", "3-0")
    first, second = made.turns
    assert (first.turn_no, first.step_count, first.question) == (1, 0, [QUESTION])
    assert (first.answer, first.reasoning_content) == ([CALL], [THOUGHT])
    assert (second.turn_no, second.step_count, second.question) == (2, 1, [OUTPUT])
    assert (second.resolved, first.resolved) == (True, None)
    assert [each.model_call_id for each in made.invocations[0].model_calls] == ["c1", "c2"]
    assert made.tool_calls[0].output == "snow"
    assert codes(made) == []


def test_a_call_that_nobody_refers_to_is_evidence_but_no_turn() -> None:
    judge = call(3, [QUESTION], [ANSWER], model_ref={**MODEL, "name": "judge"})
    made = project(record([*two_calls(), judge], observed(invocation({"model_call_id": "c1"}))), "17", "3-0")
    assert [turn.turn_no for turn in made.turns] == [1]
    assert len(made.model_calls) == 3


def test_a_reference_that_fits_nothing_or_several_is_a_gap() -> None:
    same = call(2, [QUESTION], [ANSWER], response_id="resp_1")
    bundle = observed(invocation({"model_ref": MODEL, "response_id": "resp_1"}, {"model_call_id": "gone"}))
    made = project(record([call(1, [QUESTION], [ANSWER]), same], bundle), "17", "3-0")
    assert [gap.detail for gap in made.gaps if gap.code == "agent_observation_join_failed"] == [
        "resp_1",
        "gone",
    ]


def test_without_an_agent_that_tells_there_are_calls_and_gaps() -> None:
    made = project(record(two_calls()), "17", "3-0")
    assert len(made.model_calls) == 2
    assert codes(made) == ["turns_unavailable", "conversation_unavailable"]
    assert codes(project({}, "17", "3-0"))[0] == "model_calls_unavailable"
    assert perf(made, 9.0) is None


def test_what_an_agent_tells_wrongly_is_refused_and_said() -> None:
    wrong = observed({**invocation(), "surprise": 1})
    assert "agent_observations_invalid" in codes(project(record([], wrong), "17", "3-0"))
    circle = observed(
        {**invocation(), "invocation_id": "a", "parent_invocation_id": "b"},
        {**invocation(), "invocation_id": "b", "parent_invocation_id": "a"},
    )
    assert "agent_observations_invalid" in codes(project(record([], circle), "17", "3-0"))
    broken = record([], ng_trajectory={"task_id": "17"})
    assert "producer_trajectory_invalid" in codes(project(broken, "17", "3-0"))
    odd = {"ng_model_call_capture": {"calls": [], "gaps": [{"surprise": 1}]}}
    assert "model_call_capture_gap_invalid" in codes(project(odd, "17", "3-0"))


def test_a_trajectory_of_the_agents_own_keeps_its_turns_and_gets_the_calls() -> None:
    turn = {"invocation_id": "root", "turn_no": 1, "timestamp": 1.0, "step_count": 0}
    own = {
        "task_id": "other",
        "rollout_id": "3-0",
        "invocations": [invocation({"model_call_id": "c1"})],
        "turns": [{**turn, "task_id": "other", "rollout_id": "3-0"}],
        "gaps": [{"code": "resolution_unavailable"}],
    }
    made = project(record(two_calls(), ng_trajectory=own), "17", "3-0")
    assert [each.task_id for each in made.turns] == ["17"]
    assert codes(made) == ["resolution_unavailable", "producer_trajectory_identity_mismatch"]
    assert [each.model_call_id for each in made.model_calls] == ["c1", "c2"]


def test_perf_sums_what_the_agents_own_calls_took() -> None:
    tool = {"kind": "tool_call", "invocation_id": "root", "tool_call_id": "t1"}
    bundle = observed(invocation({"model_call_id": "c1"}, {"model_call_id": "c2"}), tool)
    judge = call(3, [QUESTION], [ANSWER])
    assert perf(project(record([*two_calls(), judge], bundle), "17", "3-0"), 900.0) == {
        "num_turns": 2,
        "num_tool_calls": 1,
        "token_observability_coverage": 1.0,
        "prompt_tokens": 30,
        "completion_tokens": 3,
        "total_latency_ms": 900.0,
    }


@given(st.lists(st.sampled_from(["c1", "c2", "gone"]), max_size=6))
def test_coverage_is_a_share_and_no_call_counts_twice(names) -> None:
    bundle = observed(invocation(*({"model_call_id": name} for name in names)))
    made = project(record(two_calls(), bundle), "17", "3-0")
    told = perf(made, None)
    assert told is not None
    assert 0 <= told["token_observability_coverage"] <= 1
    assert told.get("prompt_tokens", 0) == sum({"c1": 10, "c2": 20}.get(name, 0) for name in set(names))
    assert told["num_turns"] >= 1


def test_a_record_gets_its_evidence_and_calls_lose_what_the_trajectory_holds(tmp_path) -> None:
    files = CaptureFiles(tmp_path, "3-0-a1")
    line = {"model_call_id": "c1", "model_ref": MODEL, "status_code": 200, "latency_ms": 1.0, "request": {}}
    row = {"_ng_task_index": 3, "_ng_rollout_index": 0, "_ng_attempt_index": 1}
    captures = Captures(tmp_path)
    files.calls.write_text("of an earlier run\n")
    files.calls_incomplete.touch()
    asyncio.run(captures.clear("3-0-a1"))
    assert not list(tmp_path.iterdir())
    files.calls.write_text(json.dumps({**line, "response": {"output": []}}) + "\n")
    made: dict[str, Any] = {"reward": 1.0}
    size = asyncio.run(captures.attach(made, row, "3-0-a1", 0.5))
    assert size == files.calls.stat().st_size
    assert made["ng_model_call_capture"]["rollout_id"] == "3-0-a1"
    assert "response" not in made["ng_model_call_capture"]["calls"][0]
    assert made["ng_trajectory"]["model_calls"][0]["response"] == {"output": []}
    assert (made["ng_trajectory"]["task_id"], "ng_perf" in made) == ("3", False)


def test_what_cannot_be_put_together_keeps_its_payloads(tmp_path) -> None:
    line = {"model_call_id": "c1", "status_code": "two hundred", "request": {"input": "x"}}
    CaptureFiles(tmp_path, "3-0").calls.write_text(json.dumps(line) + "\n")
    made: dict[str, Any] = {}
    asyncio.run(Captures(tmp_path).attach(made, {}, "3-0", 0.5))
    assert made["ng_model_call_capture"]["gaps"][-1]["code"] == "trajectory_projection_failed"
    assert made["ng_model_call_capture"]["calls"][0]["request"] == {"input": "x"}
    assert "ng_trajectory" not in made
