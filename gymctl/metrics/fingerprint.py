"""What two failures have in common: class, server, kind, and the message without what differs by chance.

A record quotes whoever failed, and that may quote what a model wrote. So a fingerprint has two texts:
`kind` is made of our own vocabulary (status, failure kinds, the name of an exception, a declared field) and
may be shown anywhere; `message` tells groups apart and is shown only to those who ask for content.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gymctl.contract.rollout import ENVIRONMENT_SERVER, FAILURE_CLASS, OUTCOME
from gymctl.metrics.causes import cause
from gymctl.metrics.outcomes import FAILED_CALL, host_name

MESSAGE_LENGTH = 160
SERVER = "server"
"""In `gymctl_outcome`: the server where the failure began, where the collector knew it by its address."""

_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|“[^”]*”")
_HEXADECIMAL = re.compile(r"\b(?:0x)?(?=[0-9a-f-]*\d)[0-9a-f]{6,}(?:-[0-9a-f]{2,})*\b", re.IGNORECASE)
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_EXCEPTION = re.compile(
    r"(?:[A-Za-z_]\w{0,40}\.){0,5}([A-Z]\w{0,60}(?:Error|Exception|Timeout|Failed|Exit))\b"
)
_FIELD = re.compile(
    r"((?:\w{1,40}\.){0,6}\w{1,40}): (Field required|Input should be (?:a|an) (?:valid )?[a-z ]{1,30})"
)
_JUDGE = re.compile(r"judge `([\w.-]{1,80})`")
_INNER = re.compile(r"___([A-Za-z0-9_.-]{1,80}?) calling an inner server")
_LOCAL = re.compile(r"(?:127\.0\.0\.1|localhost|\[?::1\]?):\d+")


@dataclass(frozen=True, slots=True)
class Signs:
    """What a failure record says of its cause, in parts."""

    text: str
    """The words of the server where it began; may quote a model."""
    label: str
    failure_kind: str
    status: int | None
    """Of the innermost call that is known."""
    transport: str
    """Why that call had no status: `transport_timeout`."""
    host: str
    """Where that call went: `api.example.com`, `desk:8000`; empty when unknown."""
    path: str
    is_upstream: bool
    """A model server speaks of what is behind it."""
    exception: str
    field: str
    """`body.expected: Field required`: a body that its receiver refused."""
    is_out_of_memory: bool
    exit_code: int | None


@dataclass(frozen=True, slots=True)
class Fingerprint:
    failure: str
    """The class: model, environment, verifier, infrastructure, bug."""
    server: str
    """Where it began; empty when nobody can tell."""
    kind: str
    message: str


def signs(record: Mapping[str, Any]) -> Signs:
    call = record.get(FAILED_CALL)
    target, _, result = (call if isinstance(call, str) else "").partition(" ")
    host, _, path = target.partition("/")
    is_upstream = bool(host) and ":" not in host
    if is_upstream:
        host, _, path = path.partition("/")
    judge = record.get("_ng_failure_judge_error")
    text = judge if isinstance(judge, str) and judge else cause(record)
    told = record.get("_ng_failure_http_status")
    exception = _EXCEPTION.match(text)
    field = _FIELD.match(text)
    exit_code = record.get("_ng_failure_exit_code")
    return Signs(
        text=text,
        label=_word(record.get(FAILURE_CLASS)),
        failure_kind=_word(record.get("failure_kind")),
        status=int(result) if result.isdecimal() else told if isinstance(told, int) else None,
        transport="" if result.isdecimal() else _word(result),
        host=host,
        path=f"/{path}" if path else "",
        is_upstream=is_upstream,
        exception=exception[1] if exception else "",
        field=field[0] if field else "",
        is_out_of_memory=record.get("_ng_failure_out_of_memory") is True,
        exit_code=exit_code if isinstance(exit_code, int) else None,
    )


def fingerprint(record: Mapping[str, Any], failure: str) -> Fingerprint:
    """`failure` is the class of the record's outcome."""
    found = signs(record)
    return Fingerprint(failure, server_of(record), _kind(record, found), template(found.text))


def template(text: str) -> str:
    """A message without quotations, ids and numbers: what two messages of one cause share."""
    text = _NUMBER.sub("#", _HEXADECIMAL.sub("#", _QUOTED.sub("'…'", text)))
    return text[:MESSAGE_LENGTH]


def server_of(record: Mapping[str, Any], servers: Mapping[str, str] | None = None) -> str:
    """The id of the server where a failure began; `servers` maps `host:port` and host names to ids."""
    lost = record.get("_ng_failure_server")
    if isinstance(lost, str) and lost:
        return lost
    stamp = record.get(OUTCOME)
    if isinstance(stamp, Mapping) and isinstance(stamp.get(SERVER), str):
        return str(stamp[SERVER])
    judge = _JUDGE.match(str(record.get("_ng_failure_judge_error") or ""))
    if judge:
        return judge[1]
    call = record.get(FAILED_CALL)
    if isinstance(call, str) and call:
        host = call.partition(" ")[0].partition("/")[0]
        known = (servers or {}).get(host) or (servers or {}).get(host.partition(":")[0])
        if known is not None or not _LOCAL.fullmatch(host):
            return known or host.partition(":")[0]
    inner = _INNER.findall(f"{record.get('_ng_failure_message')} {record.get('_ng_failure_response_body')}")
    environment = record.get(ENVIRONMENT_SERVER)
    return inner[-1] if inner else environment if isinstance(environment, str) else ""


def addresses(servers: Mapping[str, tuple[str, int]]) -> dict[str, str]:
    """For `server_of`: every way in which a call may name a server of this table (id -> host and port)."""
    found = {name: name for name in servers}
    for name, (host, port) in servers.items():
        found[f"{host}:{port}"] = name
        found.setdefault(host_name(name), name)
    return found


def _kind(record: Mapping[str, Any], found: Signs) -> str:
    """A few words of our own; never a message."""
    if found.is_out_of_memory or found.failure_kind == "provider_oom_killed":
        return "out of memory"
    if found.failure_kind == "kill_shaped" and isinstance(record.get("_ng_failure_server"), str):
        return "stopped" if found.exit_code is None else f"stopped (exit {found.exit_code})"
    if not found.label:
        return (
            "no reward" if "reward" not in record else "masked" if record.get("mask_sample") else "no number"
        )
    parts = [found.failure_kind or found.label]
    if found.status is not None and not found.transport:
        parts.append(
            f"{found.status} from {found.host}" if found.is_upstream and found.host else f"{found.status}"
        )
    elif found.transport:
        parts.append(found.transport)
    stage = _word(record.get("_ng_failure_stage"))
    parts += [part for part in (stage, found.field or found.exception) if part]
    return ", ".join(parts)


def _word(value: object) -> str:
    """A label as far as it is one: letters, digits and `_:-`."""
    return value[:60] if isinstance(value, str) and re.fullmatch(r"[\w:.-]{1,200}", value) else ""
