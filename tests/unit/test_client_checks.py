"""What the drivers of the training clients hold against a reply: each fault is found."""

from __future__ import annotations

from typing import Any

import pytest
from clients.client_checks import Ended, Report, Skipped, judge_run, judge_verify, need

FIRST = {"prompt_token_ids": [1, 2], "generation_token_ids": [3], "generation_log_probs": [-0.5]}
SECOND = {"prompt_token_ids": [1, 2, 3, 4], "generation_token_ids": [5], "generation_log_probs": [-0.5]}


def reply(*output: dict[str, Any], **fields: Any) -> dict[str, Any]:
    params = {"input": [{"role": "user", "content": "hi"}]}
    return {"reward": 1.0, "responses_create_params": params, "response": {"output": [*output]}, **fields}


def test_a_reply_that_trainers_can_use_is_counted_by_its_turns() -> None:
    assert judge_run(reply(FIRST, {"type": "function_call_output"}, SECOND), 1.0) == 2


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (reply(FIRST, error=None), "error"),
        (reply(FIRST, reward=None), "no reward"),
        (reply(FIRST, reward=0.0), "not 1.0"),
        (reply(FIRST, responses_create_params={}), "not echoed"),
        (reply(), "no response.output"),
        (reply({"type": "message"}), "no item has token ids"),
        (reply({**FIRST, "generation_log_probs": None}), "all three or none"),
        (reply({"prompt_token_ids": [1, 2]}), "all three or none"),
        (reply({**FIRST, "generation_token_ids": ["3"]}), "no integers"),
        (reply({**FIRST, "generation_log_probs": []}), "1 ids, 0 log probabilities"),
        (reply(FIRST, {**SECOND, "prompt_token_ids": [1, 2, 9, 4]}), "does not begin with the 3 ids"),
    ],
)
def test_a_fault_of_run_is_found(fault: dict[str, Any], words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        judge_run(fault, 1.0)


@pytest.mark.parametrize("missing", ["responses_create_params", "response", "reward"])
def test_what_verify_does_not_echo_is_found(missing: str) -> None:
    whole = reply(FIRST)
    judge_verify(whole)
    with pytest.raises(AssertionError, match=missing):
        judge_verify({key: value for key, value in whole.items() if key != missing})


def test_a_failed_check_is_told_and_ends_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report()
    with report.check("good") as check:
        check.note = "fine"
    with report.check("elsewhere"):
        raise Skipped("not here")
    with pytest.raises(Ended), report.check("bad", is_needed=True):
        need([], "nothing came")
    assert report.end() == 1
    assert capsys.readouterr().out.splitlines() == [
        "PASS good - fine",
        "SKIP elsewhere - not here",
        "FAIL bad - AssertionError: nothing came",
        "1 passed, 1 failed, 1 skipped",
    ]
