"""What is sent, and what an answer is as a record (CONTRACT 9.6-9.7)."""

from __future__ import annotations

import json
from typing import Any

from gymctl.rollouts.encoding import dumps
from gymctl.rollouts.episodes import body, identify, record_of
from gymctl.rollouts.metric_input import strip
from gymctl.transport import Answer

FLAT: dict[str, Any] = {
    "responses_create_params": {"input": "x"},
    "_ng_task_index": 3,
    "_ng_rollout_index": 1,
}
EPISODE: dict[str, Any] = {
    "task_id": {"taskset": "w", "task_id": "17"},
    "task_input": {"task_data": {"city": "Oslo"}},
    "_ng_task_index": 3,
    "_ng_rollout_index": 1,
}


def answer(value: Any, status: int = 200) -> Answer:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return Answer(status, (), raw, "http://127.0.0.1:1/run", "Reason")


def test_a_flat_row_goes_out_byte_for_byte() -> None:
    line = b'{"responses_create_params": {"input":"x"},  "odd":  1.0}'
    assert body(line, json.loads(line)) is line


def test_a_materialized_row_becomes_an_episode_request() -> None:
    assert json.loads(body(b"", EPISODE)) == {
        "episode_id": {"rollout_id": "3-1", "attempt": 0},
        "task": {"task_id": EPISODE["task_id"], "task_input": EPISODE["task_input"]},
    }


def test_an_episode_result_is_unpacked() -> None:
    value = {"episode_id": {}, "task_id": EPISODE["task_id"], "result": {"reward": 1.0}, "failure": None}
    assert record_of(answer(value), EPISODE).record == {"reward": 1.0, "_ng_task_id": EPISODE["task_id"]}


def test_reserved_keys_in_a_result_are_a_failure() -> None:
    value = {"episode_id": {}, "task_id": {}, "result": {"reward": 1.0, "_ng_x": 1}, "failure": None}
    record = record_of(answer(value), EPISODE).record
    assert record["_ng_failure_class"] == "agent_request_failed"
    assert "reward" not in record


def test_an_episode_failure_is_a_failure_record() -> None:
    failure = {"failure_reason": "late", "terminal": False, "stage": "admission"}
    value = {"episode_id": {}, "task_id": EPISODE["task_id"], "result": None, "failure": failure}
    assert record_of(answer(value), EPISODE).record == {
        "_ng_failure_class": "environment_server_failed",
        "_ng_failure_terminal": False,
        "_ng_failure_message": "late",
        "_ng_failure_stage": "admission",
        "_ng_task_id": EPISODE["task_id"],
    }


def test_error_statuses_have_their_class_and_a_short_body() -> None:
    record = record_of(answer(b"x" * 5000, 500), FLAT).record
    assert record["_ng_failure_class"] == "agent_run_error"
    assert (record["_ng_failure_http_status"], len(record["_ng_failure_response_body"])) == (500, 2000)
    assert "reward" not in record
    for status in (429, 502, 503, 504):
        assert record_of(answer(b"", status), FLAT).record["_ng_failure_class"] == "agent_request_failed"


def test_html_and_lists_are_failures() -> None:
    for raw in (b"<html>", b"[1]", b"\xff"):
        assert record_of(answer(raw), FLAT).record["_ng_failure_class"] == "agent_request_failed"


def test_unknown_fields_and_huge_integers_pass_through() -> None:
    raw = b'{"reward":1.0,"seed":123456789012345678901234567890,"x":{"y":[1]}}'
    assert record_of(answer(raw), FLAT).record["seed"] == 123456789012345678901234567890


def test_a_record_that_is_called_plain_holds_no_nan() -> None:
    assert record_of(answer(b'{"reward":1.0,"x":null}'), FLAT).is_plain
    for raw in (b'{"reward":NaN}', b'{"x":[-Infinity]}', b'{"x":1e999}', b'{"x":1234567890123456789012}'):
        received = record_of(answer(raw), FLAT)
        assert not received.is_plain
        assert b"null" not in dumps(received.record, is_plain=received.is_plain)


def test_every_record_is_identified() -> None:
    record: dict[str, Any] = {"reward": 1.0, "_ng_task_index": 99}
    identify(record, {**FLAT, "agent_ref": {"name": "a"}, "task_source": "t"}, "3-1", "env", "legacy_agent")
    assert record == {
        "reward": 1.0,
        "_ng_task_index": 3,
        "_ng_rollout_index": 1,
        "agent_ref": {"name": "a"},
        "task_source": "t",
        "_ng_environment_server": "env",
        "_ng_result_type": "legacy_agent",
        "gymctl_rollout_id": "3-1",
    }


def test_aggregation_gets_rows_without_the_conversation() -> None:
    record = {
        "reward": 1.0,
        "response": {"output": [1], "usage": {"input_tokens": 1}, "incomplete_details": None},
        "responses_create_params": {},
        "ng_trajectory": [],
    }
    assert strip(record) == {"reward": 1.0, "response": {"usage": {"input_tokens": 1}}}
    assert strip({"reward": 1.0, "response": {"output": []}}) == {"reward": 1.0}
