"""How a rollout ended: scored, or failed with a class that says whose fault it was. Read from its record.

    model            the model or its provider refused, timed out or broke off
    environment      a server of the environment answered with an error of its own
    verifier         the answer is there and could not be scored
    infrastructure   a container, the network or the clock: nothing that the model did
    bug              a message that breaks the contract, or an exception in the collector

A record is never scored as 0 because something failed. The vocabulary of `failure_kind` and `stage` is that
of CONTRACT 7.4; where neither says enough, the text is searched for the innermost server that reported the
error.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from gymctl.contract.rollout import BROKEN_CALLS, FAILURE_CLASS, MALFORMED_CALLS
from gymctl.metrics.aggregate import MASK
from gymctl.metrics.causes import cause
from gymctl.metrics.statistics import number

FailureClass = Literal["model", "environment", "verifier", "infrastructure", "bug"]
FAILURE_CLASSES: tuple[FailureClass, ...] = get_args(FailureClass)

FAILED_CALL = "_ng_failure_call"
"""`<host>/<path> <status or transport kind>` of the call from which a failure comes, where a server of ours
named it; a model server's id comes before the host of its upstream."""

_KINDS: Mapping[str, FailureClass] = {
    "transport_unreachable": "infrastructure",
    "transport_peer_drop": "infrastructure",
    "transport_timeout": "infrastructure",
    "transport_local_resource": "infrastructure",
    "agent_timeout": "infrastructure",
    "agent_command_not_allowed": "environment",
    "judge_failed": "verifier",
    "judge_unparseable": "verifier",
    "verifier_error": "verifier",
    "provider_unavailable": "model",
    "provider_quota_exhausted": "model",
    "provider_oom_killed": "infrastructure",
    "session_lost": "infrastructure",
    "session_expired": "infrastructure",
    "session_release_failed": "environment",
    "cancelled": "infrastructure",
    "kill_shaped": "infrastructure",
    "shutdown": "infrastructure",
    "persistence_failed": "infrastructure",
    "cohort_incomplete": "infrastructure",
    "collector_bug": "bug",
}
_LABELS: Mapping[str, FailureClass] = {
    "judge_failed": "verifier",
    "judge_invalid": "verifier",
    "invalid_judge_response": "verifier",
    "timeout_exceeded": "infrastructure",
    "cancelled": "infrastructure",
    "collector_bug": "bug",
}
_STAGES: Mapping[str, FailureClass] = {
    "admission": "infrastructure",
    "seed": "environment",
    "verification": "verifier",
    "cleanup": "environment",
}
_INNER = re.compile(r"___([A-Za-z0-9_.-]+?) calling an inner server")
_NO_LABEL = re.compile(r"[^a-z0-9]+")
_CONNECTION = re.compile(
    r"cannot connect|connect call failed|connection (?:refused|reset|closed|timeout)|server disconnected|"
    r"timed out|timeouterror|broken pipe|name or service not known|oserror|"
    r"\"request was cancelled\\*\"|"  # what a server of ours says that is being stopped
    r"transport_(?:unreachable|peer_drop|timeout|local_resource)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """`failure` is None exactly when `reward` is not."""

    reward: float | None
    failure: FailureClass | None = None
    reason: str = ""
    """One line for progress and tables; never text that a model wrote."""
    cause: str = ""
    """What the innermost server said, for people; unlike `reason` it may quote what a model wrote."""
    is_limited: bool = False
    """Scored although a declared limit cut off the model's answer, or the episode (`truncated`)."""
    malformed_calls: int = 0
    """Tool calls of the model whose arguments were not JSON, where the agent counted them."""
    broken_calls: int = 0
    """Tool calls that the tool server failed (5xx), likewise: the model is not to blame for what follows."""
    counts_as_zero: bool = False
    """A failure that the benchmark declares to count as reward 0 (metrics.declared)."""


def outcome(record: Mapping[str, Any], models: Collection[str] = ()) -> Outcome:
    """Classify one record; `models` are the ids and addresses (`host:port`) of the run's model servers."""
    if record.get(FAILURE_CLASS) is not None:
        return Outcome(None, _failure_class(record, models), _reason(record, models), cause(record))
    if record.get(MASK):
        kind = record.get("failure_kind")
        known = _KINDS.get(kind, "verifier") if isinstance(kind, str) else "environment"
        return Outcome(None, known, f"masked ({kind})" if isinstance(kind, str) else "masked")
    reward = number(record.get("reward"))
    if reward is None:
        return Outcome(None, "verifier", "no reward" if "reward" not in record else "reward is not a number")
    response = record.get("response")
    response = response if isinstance(response, dict) else {}
    is_limited = bool(response.get("incomplete_details")) or record.get("truncated") is True
    return Outcome(
        reward,
        is_limited=is_limited,
        malformed_calls=_counted(response, MALFORMED_CALLS),
        broken_calls=_counted(response, BROKEN_CALLS),
    )


def _counted(response: Mapping[str, Any], key: str) -> int:
    """What an agent counted, in the Response's metadata."""
    metadata = response.get("metadata")
    told = metadata.get(key) if isinstance(metadata, dict) else None
    return int(told) if isinstance(told, str) and told.isdecimal() else 0


def _failure_class(record: Mapping[str, Any], models: Collection[str]) -> FailureClass:
    label, kind = record.get(FAILURE_CLASS), record.get("failure_kind")
    if isinstance(kind, str) and kind in _KINDS:
        return _KINDS[kind]
    if isinstance(label, str) and label in _LABELS:
        return _LABELS[label]
    stage = record.get("_ng_failure_stage")
    text = f"{record.get('_ng_failure_message')} {record.get('_ng_failure_response_body')}"
    if isinstance(stage, str) and stage in _STAGES:
        is_cut = stage == "seed" and _CONNECTION.search(text)
        return "infrastructure" if is_cut else _STAGES[stage]
    call = record.get(FAILED_CALL)
    return _by_call(call, text, models) or _by_status_and_text(
        record.get("_ng_failure_http_status"), text, models
    )


def _by_call(call: object, text: str, models: Collection[str]) -> FailureClass | None:
    """Which call failed. One between servers that broke off in the network says nothing about its target."""
    if not isinstance(call, str):
        return None
    host, _, path = call.partition(" ")[0].partition("/")
    if _is_upstream(host, models):
        return "model"
    if _CONNECTION.search(text):
        return None
    if host in models or host.partition(":")[0] in {host_name(name) for name in models}:
        return "model"
    return "verifier" if path.endswith("verify") else "environment"


def _is_upstream(host: str, models: Collection[str]) -> bool:
    """Whether a model server speaks of what is behind it: it names itself, without a port."""
    return ":" not in host and host in models


def host_name(server: str) -> str:
    """What a server id is called on a project's network: `policy_model` -> `policy-model`."""
    return _NO_LABEL.sub("-", server.lower()).strip("-")


def _by_status_and_text(status: object, text: str, models: Collection[str]) -> FailureClass:
    inner = _INNER.findall(text)
    if inner and inner[-1] in models:
        return "model"
    if status == 422:
        return "bug"
    if status == 429:
        return "model"
    if status in (502, 503, 504) or _CONNECTION.search(text):
        return "infrastructure"
    if status is None and any(f"/{model}" in text or f"`{model}`" in text for model in models):
        return "model"
    return "environment"


def _reason(record: Mapping[str, Any], models: Collection[str]) -> str:
    """What failed, from words of our own vocabulary: a message may quote what a model wrote."""
    parts = [str(record[FAILURE_CLASS])]
    for key in ("failure_kind", "_ng_failure_stage", "_ng_failure_type", "_ng_failure_http_status"):
        value = record.get(key)
        if isinstance(value, (str, int)) and str(value) not in parts:
            parts.append(str(value)[:60])
    call = record.get(FAILED_CALL)
    return ", ".join(parts) + (_called(call, models) if isinstance(call, str) else "")


def _called(call: str, models: Collection[str]) -> str:
    """`; policy_model: 401 from api.example.com/v1/responses`. A path between servers may hold a tool's name
    as a model wrote it, so there the host must do."""
    target, _, result = call.partition(" ")
    host, _, path = target.partition("/")
    what = f"{result or 'an error'} from"
    return f"; {host}: {what} {path}" if _is_upstream(host, models) else f"; {what} {host}"
