"""Did the model and the agent do their work in this rollout, as far as its record tells? (CONTRACT 9.10)

One function for each check: evidence -> what it found, an empty Found, or None: the evidence does not say.
A verdict is about how a rollout came to be, not about its score: a wrong answer is healthy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gymctl.metrics.health_evidence import Call, Evidence, Unreadable, count, is_hollow

Verdict = Literal["healthy", "unhealthy", "unobserved"]
VERDICTS: tuple[Verdict, ...] = ("healthy", "unhealthy", "unobserved")
Finding = dict[str, Any]
"""`check`, `message`, `count`, and `where`: the first ids of calls, or numbers of turns."""
CUT_OFF = frozenset({"length", "max_tokens", "max_output_tokens"})
JOIN_FAILED = "agent_observation_join_failed"
OTHER_ROLLOUT = "producer_trajectory_identity_mismatch"
_SUMS = (
    ("prompt_tokens", "tokens_in", "input_tokens"),
    ("completion_tokens", "tokens_out", "output_tokens"),
)
"""What one thing is called in `ng_perf` and a call, in the capture's metrics, and in a Response's usage."""
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Found:
    """What a check found: nothing when `message` is empty."""

    message: str = ""
    where: tuple[str | int | None, ...] = ()


NOTHING = Found()
Check = Callable[[Evidence], Found | None]


@dataclass(slots=True)
class Judged:
    """What the checks say of one record."""

    findings: list[Finding] = field(default_factory=list)
    unobserved: list[str] = field(default_factory=list)
    stats: Counter[str] = field(default_factory=Counter)
    calls: int = 0
    answers: int = 0
    """Calls that were answered."""
    is_captured: bool = False
    """Model calls or a trajectory are part of the record."""

    @property
    def verdict(self) -> Verdict:
        if self.findings:
            return "unhealthy"
        return "unobserved" if self.unobserved else "healthy"


def judge(record: Mapping[str, Any], ignored: Collection[str] = ()) -> Judged:
    """Every check on one record. Never raises: a check that does is a finding of its own."""
    checks = {name: check for name, check in CHECKS.items() if name not in ignored}
    judged = Judged()
    try:
        evidence = Evidence.of(record)
    except Unreadable as error:
        if "record_unreadable" not in ignored:
            judged.findings.append(finding("record_unreadable", str(error)))
        judged.unobserved = list(checks)
        return judged
    judged.stats = _stats(evidence)
    if evidence.trajectory is None and evidence.capture is None:
        judged.unobserved = list(checks)
        return judged
    judged.is_captured = True
    judged.calls, judged.answers = len(evidence.calls), len(evidence.answers)
    for name, check in checks.items():
        try:
            found = check(evidence)
        except Exception as error:  # noqa: BLE001 - evidence of others may break a check, never the run
            judged.unobserved.append(name)
            if "check_execution_error" not in ignored:
                judged.findings.append(finding("check_execution_error", f"{name}: {type(error).__name__}"))
            continue
        if found is None:
            judged.unobserved.append(name)
        elif found.message:
            judged.findings.append(finding(name, found.message, found.where))
    return judged


def finding(check: str, message: str, where: tuple[str | int | None, ...] = ()) -> Finding:
    told: Finding = {"check": check, "message": message, "count": max(1, len(where))}
    named = [place for place in where if place is not None]
    return told | ({"where": named[:_SHOWN]} if named else {})


def missing_agent_turns(seen: Evidence) -> Found | None:
    """An agent that tells of itself took no turn."""
    if seen.trajectory is None or seen.turns:
        return None if seen.trajectory is None else NOTHING
    refers = any(invocation.get("model_calls") for invocation in seen.invocations)
    if not seen.invocations or (refers and not seen.calls):
        return None
    return Found("the agent took no turn")


def ended_on_failed_call(seen: Evidence) -> Found | None:
    if not seen.calls or seen.is_partial:
        return None
    last = max(enumerate(seen.calls), key=lambda item: (item[1].ended_at or 0.0, item[0]))[1]
    return Found(f"the last model call failed: {_why(last)}", (last.id,)) if last.has_failed else NOTHING


def hollow_turns(seen: Evidence) -> Found | None:
    if not seen.turns:
        return None
    hollow = tuple(count(turn.get("turn_no")) for turn in seen.turns if is_hollow(turn))
    return _found("a turn without text, reasoning or tool call", hollow)


def zero_completion_tokens(seen: Evidence) -> Found | None:
    known = [call for call in seen.answers if call.completion_tokens is not None]
    return _of_calls(seen, known, "an answer of 0 tokens", lambda call: call.completion_tokens == 0)


def missing_token_counts(seen: Evidence) -> Found | None:
    def lacks(call: Call) -> bool:
        return call.prompt_tokens is None or call.completion_tokens is None

    return _of_calls(seen, seen.answers, "an answer that does not tell its tokens", lacks)


def capture_mismatch(seen: Evidence) -> Found | None:
    """The agent and the model servers tell of the same calls, or not."""
    if seen.trajectory is None or seen.capture is None:
        return None
    names = {seen.trajectory.get("rollout_id"), seen.capture.get("rollout_id"), seen.name} - {None}
    if len(names) > 1 or OTHER_ROLLOUT in seen.gaps:
        return Found("trajectory and recorded calls are of different rollouts")
    if JOIN_FAILED in seen.gaps:
        return Found("the agent tells of a call that is not on record")
    recorded = seen.recorded_ids
    if not recorded and not seen.calls:
        return None
    told = [call.id for call in seen.calls if call.id is not None]
    apart = sorted(set(recorded) ^ set(told))
    if apart:
        return Found("a call that only one of trajectory and capture has", tuple(apart))
    return None if seen.is_partial else NOTHING


def failed_calls(seen: Evidence) -> Found | None:
    failed = [call for call in seen.calls if call.has_failed]
    why = f": {_why(failed[0])}" if failed else ""
    return _of_calls(seen, seen.calls, f"a model call failed{why}", lambda call: call.has_failed)


def token_count_mismatch(seen: Evidence) -> Found | None:
    """A recorded sum must be that of the calls; an agent may tell of fewer tokens than that, not of more."""
    totals = (seen.capture or {}).get("metrics")
    totals = totals if isinstance(totals, Mapping) else {}
    compared = False
    for name, recorded, used in _SUMS:
        counts = [getattr(call, name) for call in seen.answers]
        if not counts or None in counts or seen.is_partial:
            continue
        made, total = sum(counts), count(totals.get(recorded))
        told = [count(seen.perf.get(name)), count(seen.usage.get(used))]
        wrong = (
            [total] if total not in (None, made) else [one for one in told if one is not None and one > made]
        )
        if wrong:
            return Found(f"{name}: {made} in the model calls, {wrong[0]} in their sum")
        compared = compared or any(one is not None for one in (total, *told))
    return NOTHING if compared else None


def runaway_generation(seen: Evidence) -> Found | None:
    known = [call for call in seen.answers if call.finish_reason or call.response_status]
    message = "an answer that only its token limit ended"
    return _of_calls(seen, known, message, lambda call: call.finish_reason in CUT_OFF)


CHECKS: Mapping[str, Check] = {
    "rollout_missing_agent_turns": missing_agent_turns,
    "rollout_ended_on_failed_model_call": ended_on_failed_call,
    "agent_turn_hollow": hollow_turns,
    "model_call_zero_completion_tokens": zero_completion_tokens,
    "model_call_missing_token_counts": missing_token_counts,
    "trajectory_capture_mismatch": capture_mismatch,
    "model_call_failed": failed_calls,
    "rollout_token_count_mismatch": token_count_mismatch,
    "model_call_runaway_generation": runaway_generation,
}
"""The checks that look at evidence; the others are about lines, keys and tasks."""


def _of_calls(
    seen: Evidence, known: Iterable[Call], message: str, is_bad: Callable[[Call], bool]
) -> Found | None:
    """None also when nothing is found among some of the calls: the missing ones may be bad."""
    looked_at = tuple(known)
    if bad := tuple(call.id for call in looked_at if is_bad(call)):
        return _found(message, bad)
    return NOTHING if looked_at and not seen.is_partial else None


def _found(message: str, where: tuple[str | int | None, ...]) -> Found:
    return Found(message, where) if where else NOTHING


def _why(call: Call) -> str:
    """Words of our own; nothing that a model or provider wrote."""
    parts = (call.error, None if call.status_code is None else str(call.status_code))
    return ", ".join(part for part in parts if part) or "the answer says so"


def _stats(seen: Evidence) -> Counter[str]:
    """By the names of `Summary.document`; a failed call also counts as `failed <status>`."""
    failed = [call for call in seen.calls if call.has_failed]
    replayed = sum(Counter(call.id for call in seen.calls if call.id is not None).values())
    replayed -= len({call.id for call in seen.calls if call.id is not None})
    found = ended_on_failed_call(seen)
    stats = Counter(
        prompt=count(seen.usage.get("input_tokens")) or 0,
        completion=count(seen.usage.get("output_tokens")) or 0,
        capture_prompt=sum(call.prompt_tokens or 0 for call in seen.calls),
        capture_completion=sum(call.completion_tokens or 0 for call in seen.calls),
        failed=len(failed),
        rollouts_affected=int(bool(failed)),
        ended_on_error=int(found is not None and bool(found.message)),
        replayed=replayed,
        rollouts_replayed=int(replayed > 0),
        turns=len(seen.turns),
        model_calls=len(seen.calls),
    )
    unknown = "unknown"
    stats.update(f"failed {unknown if call.status_code is None else call.status_code}" for call in failed)
    return stats
