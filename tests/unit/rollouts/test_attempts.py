"""How often a rollout is tried."""

from __future__ import annotations

import pytest

from gymctl.rollouts.attempts import AttemptPolicy, again, most_attempts


@pytest.mark.parametrize(
    ("text", "most", "warns"),
    [("", 3, False), ("5", 5, False), ("1", 1, False), ("0", 3, True), ("-2", 3, True), ("many", 3, True)],
)
def test_the_cap_comes_from_the_environment(text: str, most: int, warns: bool) -> None:
    found, warning = most_attempts({"NEMO_GYM_MAX_ROLLOUT_ATTEMPTS": text})
    assert (found, warning is not None) == (most, warns)


@pytest.mark.parametrize(
    ("label", "terminal", "retries", "is_over"),
    [
        ("agent_run_error", False, False, False),
        ("agent_run_error", True, False, True),
        ("agent_run_error", True, True, True),
        ("timeout_exceeded", True, False, True),
        ("timeout_exceeded", True, True, False),
        ("skipped", False, True, True),
    ],
)
def test_what_is_never_tried_again(label: str, terminal: bool, retries: bool, is_over: bool) -> None:
    record = {"_ng_failure_class": label, "_ng_failure_terminal": terminal}
    policy = AttemptPolicy(3, retries)
    assert policy.is_over(1, record) is is_over
    assert policy.is_over(3, record)


def test_a_failure_that_is_declared_an_answer_is_the_last() -> None:
    record = {"_ng_failure_class": "x", "gymctl_outcome": {"failure": "model", "counts_as_zero": True}}
    assert AttemptPolicy().is_over(1, record)


def test_the_next_attempt_has_the_number_of_failures() -> None:
    assert again({"n": 1}, 2) == {"n": 1, "_ng_attempt_index": 2}
    assert again({"n": 1}, 1, reuses=True)["reuse_cached_deliverable"] is True
