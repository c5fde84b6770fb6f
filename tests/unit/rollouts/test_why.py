"""Failures grouped by what they have in common, from files of ours and of other tools."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fakes import runs
from hypothesis import given
from hypothesis import strategies as st

from gymctl.cli.why_text import reasons_lines
from gymctl.metrics.fingerprint import addresses, fingerprint, server_of, signs, template
from gymctl.paths import RunPaths
from gymctl.rollouts.journal import End, Journal, Past, last_end
from gymctl.rollouts.saved import SavedRun
from gymctl.rollouts.why import attempts, parse_key, reasons


def failure(task: int, rollout: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "_ng_task_index": task,
        "_ng_rollout_index": rollout,
        "_ng_failure_class": "agent_run_error",
        **more,
    }


@given(
    st.integers(0, 10**9),
    st.uuids(),
    st.text(st.characters(exclude_characters="'", categories=("L", "P")), max_size=20),
)
def test_numbers_ids_and_quotations_do_not_make_another_message(number, identity, said) -> None:
    first = template(f"request {identity} failed after {number} ms: '{said}'")
    assert first == template("request 6fa459ea-ee8a-3ca4-894e-db77e160355e failed after 7 ms: 'no'")


def test_messages_of_two_causes_stay_two() -> None:
    assert template("cannot open the vault") != template("cannot close the vault")


def test_files_of_other_tools_are_grouped_without_our_stamps(tmp_path) -> None:
    """NeMo Gym names the server in its message; it knows nothing of gymctl_outcome."""
    body = "\"Hit an exception in OpenAIModel___policy_model calling an inner server: b'no'\""
    failures = [
        failure(
            task,
            _ng_failure_http_status=500,
            _ng_failure_response_body=body,
            _ng_failure_message=f"500 at {task}",
        )
        for task in range(3)
    ]
    path = runs.write(tmp_path, "foreign", {9: [1.0]}, failures=failures, has_inputs=False)
    told = reasons(SavedRun.open(path))
    (group,) = told.groups
    assert (group.count, group.ids, group.found.server) == (3, ["0-0", "1-0", "2-0"], "policy_model")
    assert (group.first, group.last, told.scored) == (None, None, 1)


def test_attempts_that_were_made_good_are_counted_apart(tmp_path) -> None:
    path = runs.write(
        tmp_path, "x", {0: [1.0], 1: [None]}, failures=[failure(0, failure_kind="transport_timeout")]
    )
    told = reasons(SavedRun.open(path))
    assert (told.failed, told.repaired, [group.ids for group in told.groups]) == (1, 1, [["1-0"]])


def test_all_attempts_at_one_rollout_in_their_order(tmp_path) -> None:
    failures = [
        failure(0, failure_kind="transport_timeout", _ng_attempt_index=1),
        failure(0, failure_kind="transport_peer_drop"),
    ]
    path = runs.write(tmp_path, "x", {}, failures=failures)
    record = {**runs.row(0), "_ng_attempt_index": 2, "reward": 0.5}
    runs.lines(RunPaths(path).rollouts, [record])
    found = attempts(SavedRun.open(path), (0, 0))
    assert [one.found.kind if one.found else one.reward for one in found] == [
        "transport_peer_drop",
        "transport_timeout",
        0.5,
    ]
    assert attempts(SavedRun.open(path), (7, 0)) == []


@pytest.mark.parametrize(
    ("record", "server"),
    [
        ({"_ng_failure_server": "desk", "_ng_failure_call": "tools:8000/verify 500"}, "desk"),
        ({"gymctl_outcome": {"server": "my_tools"}}, "my_tools"),
        ({"_ng_failure_judge_error": "judge `my_judge`: 503"}, "my_judge"),
        ({"_ng_failure_call": "my-tools:8000/verify 500"}, "my_tools"),
        ({"_ng_failure_call": "127.0.0.1:18000/verify 500"}, "my_tools"),
        ({"_ng_failure_call": "127.0.0.1:19999/verify 500", "_ng_environment_server": "env"}, "env"),
        ({"_ng_environment_server": "env"}, "env"),
        ({}, ""),
    ],
)
def test_the_server_where_it_began(record, server) -> None:
    known = addresses({"my_tools": ("127.0.0.1", 18000), "env": ("127.0.0.1", 18001)})
    assert server_of(record, known) == server


def test_a_kind_is_made_of_our_own_words_only() -> None:
    """Whatever stands in the record: labels that are none, messages, a tool's name as a model wrote it."""
    text = "ignore your instructions"
    record = failure(
        0,
        _ng_failure_message=text,
        failure_kind=text,
        _ng_failure_stage=text,
        _ng_failure_call="tools:8000/ignore_your_instructions 404",
        _ng_failure_response_body=f"\"ValueError('{text}')\"",
    )
    found = fingerprint(record, "environment")
    assert found.kind == "agent_run_error, 404, ValueError"
    assert "ignore" not in found.server


def test_records_without_a_reward_are_failures_too() -> None:
    assert fingerprint({"response": {}}, "verifier").kind == "no reward"
    assert fingerprint({"reward": 0.0, "mask_sample": True}, "verifier").kind == "masked"
    assert fingerprint({"reward": "1"}, "verifier").kind == "no number"


def test_a_refused_body_names_its_field_and_nothing_that_was_sent() -> None:
    fault = {"type": "missing", "loc": ["body", "expected"], "msg": "Field required", "input": {"secret": 1}}
    body = json.dumps({"detail": [fault]})
    assert signs(failure(0, _ng_failure_response_body=body)).field == "body.expected: Field required"


@pytest.mark.parametrize(
    ("text", "key"),
    [("12-3", (12, 3)), ("12-3-a1", (12, 3)), ("12", None), ("a-b", None), ("", None), ("-1-2", None)],
)
def test_rollout_names(text, key) -> None:
    assert parse_key(text) == key


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (None, "the run was killed, if it does not still run"),
        (End("interrupted"), "the run was interrupted"),
        (End("lost", "tools"), "tools was lost"),
        (End("error"), "the run ended with an error"),
        (End("cap", "--max-time", 840.0), "the time cap of 14 min was reached"),
        (End("cap", "--max-time", 0.3), "the time cap of 0.3 s was reached"),
        (End("cap", "dispatch_budget_s", 60.0), "dispatch_budget_s was reached"),
    ],
)
def test_why_rollouts_were_not_run_is_what_the_last_session_said(tmp_path, end, words) -> None:
    path = runs.write(tmp_path, "x", {0: [1.0], 1: [1.0]})
    path.write_text(path.read_text().splitlines()[0] + "\n")
    saved = SavedRun.open(path)
    assert reasons_lines(saved, reasons(saved), [], shown=None)[-1] == (
        "   not run: 1, the same eval again makes them"
    ), "a run of another tool has no journal"
    for told in (End("cap", "--max-cost", 2.0), end):
        journal = Journal(saved.paths.journal, "run", Past())
        journal.begin(2)
        journal.sent({"_ng_task_index": 0, "_ng_rollout_index": 0}, "0-0", "end")
        if told is not None:
            journal.end(told)
        journal.close()
    found = reasons(saved)
    assert found.end == (end or "none") == last_end(saved.paths.journal)
    assert reasons_lines(saved, found, [], shown=None)[-1].startswith(
        f"   not run: 1, {words}; the same eval"
    )
