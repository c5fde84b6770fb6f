"""From the signs of a failure to its likely cause and the next thing to do. The first rule that fits wins."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from gymctl.metrics.fingerprint import Fingerprint, Signs

AGAIN = "then the same eval again"


@dataclass(frozen=True, slots=True)
class Advice:
    cause: str
    """`the provider refuses the key`; our own words."""
    fix: str


@dataclass(frozen=True, slots=True)
class Failure:
    """What a rule sees."""

    found: Fingerprint
    signs: Signs
    example: str
    """Rollout id of the first one."""
    inputs: str
    """Path of the inputs file."""
    run: str
    """Path of the rollouts file."""

    @property
    def server(self) -> str:
        return self.found.server or "the server"

    @property
    def all_logs(self) -> str:
        return f"gymctl logs {self.found.server}".rstrip()

    @property
    def logs(self) -> str:
        return f'{self.all_logs} | grep "rollout {self.example}:"'


_NO_ROOM = re.compile(r"no space left|ENOSPC|disk quota exceeded", re.IGNORECASE)
_NO_JSON = re.compile(r"answered with no JSON|is not JSON|JSONDecodeError", re.IGNORECASE)
_MISSED = re.compile(r"cassette miss: ")
_TIMEOUT = re.compile(r"timed out|timeout", re.IGNORECASE)

Rule = tuple[Callable[[Failure], bool], Callable[[Failure], Advice]]


def advice(failure: Failure) -> Advice:
    """Always an advice: the last rule fits everything."""
    return next(told(failure) for fits, told in _RULES if fits(failure))


def _status(*codes: int) -> Callable[[Failure], bool]:
    return lambda failure: failure.found.failure == "model" and failure.signs.status in codes


def _kind(*kinds: str) -> Callable[[Failure], bool]:
    return lambda failure: failure.signs.failure_kind in kinds or failure.signs.label in kinds


def _says(pattern: re.Pattern[str]) -> Callable[[Failure], bool]:
    return lambda failure: pattern.search(failure.signs.text) is not None


_RULES: tuple[Rule, ...] = (
    (
        lambda failure: failure.found.kind == "out of memory",
        lambda failure: Advice(
            "killed for memory", f"`resources: {{memory: 4g}}` in the block of {failure.server}, {AGAIN}"
        ),
    ),
    (
        lambda failure: failure.found.kind.startswith("stopped"),
        lambda failure: Advice("the server stopped by itself", f"{failure.all_logs}; mend it, {AGAIN}"),
    ),
    (
        _says(_NO_ROOM),
        lambda failure: Advice(
            "the disk is full", f"make room (`docker system df` shows what takes it), {AGAIN}"
        ),
    ),
    (
        _kind("judge_failed", "judge_unparseable", "judge_invalid", "invalid_judge_response"),
        lambda failure: Advice(
            "the judge gave no verdict",
            f"{failure.all_logs}; when it answers, the answers that are there are scored again: "
            f"gymctl reverify {failure.run} --only judge-failed --append, with the configuration of the run",
        ),
    ),
    (
        _status(401, 403),
        lambda failure: Advice(
            "the provider refuses the key", f"check the key of {failure.server} (--model-api-key), {AGAIN}"
        ),
    ),
    (
        _status(404),
        lambda failure: Advice(
            "the provider does not know the model or the path", f"check --model and --model-url, {AGAIN}"
        ),
    ),
    (
        _kind("provider_quota_exhausted"),
        lambda failure: Advice("the provider's quota is used up", f"raise the quota, {AGAIN}"),
    ),
    (
        _status(429),
        lambda failure: Advice(
            "more requests at once than the provider allows", f"lower --concurrency, {AGAIN}"
        ),
    ),
    (
        _says(_NO_JSON),
        lambda failure: Advice(
            "the answer is not JSON",
            f"is the address that of {'a model' if failure.found.failure == 'model' else failure.server}? "
            f"{failure.logs}",
        ),
    ),
    (
        lambda failure: failure.signs.status == 422 and _says(_MISSED)(failure),
        lambda failure: Advice(
            "a request is not in the cassette",
            "record what is missing into it (--model record:FILE), or --on-miss live or mock; "
            f"gymctl why {failure.run} {failure.example} --content says what differs",
        ),
    ),
    (
        lambda failure: failure.signs.status == 422,
        lambda failure: Advice(
            f"the row lacks or misspells a field: {failure.signs.field}"
            if failure.signs.field
            else "a body was refused: a field of the row has another name or type",
            f"compare a row of {failure.inputs} with what {failure.server} declares",
        ),
    ),
    (
        lambda failure: (
            failure.signs.failure_kind in ("transport_timeout", "agent_timeout")
            or failure.signs.transport == "transport_timeout"
            or failure.signs.label == "timeout_exceeded"
            or (failure.signs.status in (408, 504))
            or failure.signs.exception.endswith(("TimeoutError", "Timeout"))
            or (failure.found.failure == "infrastructure" and _TIMEOUT.search(failure.signs.text) is not None)
        ),
        lambda failure: Advice(
            "no answer within the time limit",
            f"raise the limit (--task-timeout) or see what took so long: {failure.logs}",
        ),
    ),
    (
        lambda failure: failure.signs.is_upstream and failure.signs.transport != "",
        lambda failure: Advice(
            "the provider cannot be reached", f"check --model-url and the network, {AGAIN}"
        ),
    ),
    (
        _kind("transport_unreachable", "transport_peer_drop"),
        lambda failure: Advice(
            "the connection broke or was refused", f"does it run? gymctl ps; {failure.all_logs}"
        ),
    ),
    (
        _kind("transport_local_resource"),
        lambda failure: Advice(
            "this machine ran out of sockets or open files", "ulimit -n, or lower --concurrency"
        ),
    ),
    (
        lambda failure: failure.found.failure == "model",
        lambda failure: Advice("the model's provider failed", f"{failure.logs}; when it answers, {AGAIN}"),
    ),
    (
        lambda failure: failure.found.failure == "verifier",
        lambda failure: Advice(
            f"{failure.signs.exception or 'an error'} in the verifier", f"{failure.logs} has the traceback"
        ),
    ),
    (
        lambda failure: failure.found.failure == "bug" and failure.signs.label == "collector_bug",
        lambda failure: Advice("a bug in gymctl", "please report it with the record (--content shows it)"),
    ),
    (
        lambda failure: True,
        lambda failure: Advice(
            f"{failure.signs.exception or 'an error'} in {failure.server}",
            f"{failure.logs} has the traceback",
        ),
    ),
)
