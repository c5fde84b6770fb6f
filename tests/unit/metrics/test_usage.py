"""The tokens of a record."""

from __future__ import annotations

from typing import Any

from gymctl.metrics.usage import Usage

CALLS: dict[str, Any] = {
    "calls": [
        {"tokens_in": 10, "tokens_out": 5, "cached_tokens": 4, "model": "m"},
        {"tokens_in": 20, "tokens_out": None, "cached_tokens": None, "model": "m"},
        "torn",
    ]
}


def test_a_rollout_that_was_cut_used_what_its_recorded_calls_used() -> None:
    cut = {"_ng_failure_class": "agent_request_failed", "ng_model_call_capture": CALLS}
    assert Usage.of(cut) == Usage(input=30, cached=4, output=5)


def test_an_answers_own_usage_is_never_added_to() -> None:
    usage = {"input_tokens": 1, "output_tokens": 2}
    assert Usage.of({"response": {"usage": usage}, "ng_model_call_capture": CALLS}) == Usage(1, 0, 2)
    assert Usage.of({"response": {}, "ng_model_call_capture": CALLS}) is None
    assert Usage.of({"reward": 1.0, "ng_model_call_capture": CALLS}) is None


def test_no_record_of_calls_is_no_usage() -> None:
    for capture in (None, {}, {"calls": None}, {"calls": []}, []):
        assert Usage.of({"_ng_failure_class": "x", "ng_model_call_capture": capture}) is None
