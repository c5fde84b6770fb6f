"""What may differ between NeMo Gym and gymctl, and why: each is meant, or a fact of NeMo Gym.

A difference that is not here is a bug of ours, or belongs here and on docs/nemo-gym.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from peer.differences import ABSENT, Difference

Test = Callable[[Difference], bool]


def added(found: Difference) -> bool:
    return found.left is ABSENT


def left_out(found: Difference) -> bool:
    return found.right is ABSENT


def null_left_out(found: Difference) -> bool:
    return found.left is None and found.right is ABSENT


def always(_: Difference) -> bool:
    return True


def codes(theirs: tuple[int, ...], ours: int) -> Test:
    return lambda found: found.left in theirs and found.right == ours


@dataclass(frozen=True, slots=True)
class Known:
    place: str
    """A pattern of the whole place."""
    holds: Test
    why: str


SEGMENTATION_FAULT = 139
"""How the client of NeMo Gym ends after an error, mostly: its interpreter's end, not its word."""
_FAILED = r"\w+/r_failures\.jsonl"
KNOWN = (
    Known(r"\w+/r(_failures)?\.jsonl: (gymctl_\w+|_ng_failure_call)", added, "fields of ours"),
    Known(
        rf"{_FAILED}: _ng_failure_(message|type|response_body)",
        always,
        "words of a failure: address, library, class",
    ),
    Known(r"\w+/r\.jsonl: response\.metadata\.ng_termination_message", always, "words of a message"),
    Known(
        r"(failing|first|resumed)/r_failures\.jsonl",
        added,
        "failures of the model are tried again in the run",
    ),
    Known(
        r"\w+/r(_materialized_inputs)?\.jsonl: agent_ref\.type",
        added,
        "an agent named by a flag has its type",
    ),
    Known(
        r"\w+/r\.jsonl: response(\.output\[\](\.content\[\])?)?\.\w+",
        null_left_out,
        "fields that the model did not send are not added as null",
    ),
    Known(
        r"\w+/r\.jsonl: responses_create_params\.input\[\]\.phase",
        null_left_out,
        "fields that the model did not send are not added as null",
    ),
    Known(
        r"\w+/r\.jsonl: responses_create_params\.input\[\]\.type",
        left_out,
        "nor is `message`, the type that an item without one has",
    ),
    Known(r"aborted/.*", added, "a failed rollout ends the run only with `--strict`"),
    Known(r"exit code of `(failing|first|resumed|zeros)`", codes((0,), 6), "6: coverage is under the floor"),
    Known(r"exit code of `aborted`", codes((1, SEGMENTATION_FAULT), 6), "6: coverage is under the floor"),
    Known(r"exit code of `(refused|no_agent)`", codes((SEGMENTATION_FAULT,), 1), "its end crashes"),
    Known(r"exit code of `no_output`", codes((2,), 0), "a run without an output gets one"),
    Known(r"(no_agent|refused)/.*", left_out, "told before a file is touched"),
    Known(r"(good|interleaved)/r_failures\.jsonl", left_out, "no empty file of failures"),
    Known(
        r"\w+/rollout_verdicts\.jsonl: (agent_ref|_ng_environment_server|_ng_attempt_index)",
        added,
        "health: more identity",
    ),
    Known(r"\w+/rollout_verdicts\.jsonl", added, "health: failed rollouts are judged, too"),
    Known(r"\w+/quality_summary\.json: run\.stats\.(turns|model_calls)", added, "health: more counts"),
    Known(
        r"(failing|first|resumed|zeros)/quality_summary\.json: (run\.(artifacts|verdicts|stats)|tasks)\..*",
        always,
        "health: failed rollouts are judged, too",
    ),
)
"""The first that fits counts."""


def reason(found: Difference) -> str | None:
    return next((one.why for one in KNOWN if re.fullmatch(one.place, found.place) and one.holds(found)), None)
