"""Recorded model calls, read back: what each used and how it ended, and what is missing (CONTRACT 15.1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gymctl.contract.captures import CaptureFiles
from gymctl.rollouts.encoding import loads

INCOMPLETE = "model_call_capture_incomplete"
NO_RECORDS = "model_call_capture_no_records"
RECORDS_UNREADABLE = "model_call_capture_records_unreadable"
UNREADABLE = "model_call_capture_unreadable"

PAYLOADS = ("request", "response", "request_raw", "response_raw")
_COPIED = (
    *("model_call_id", "client_session_id", "model_ref", "dialect", "status_code", "error_category"),
    *("started_at", "completed_at", "latency_ttft_ms", "upstream_attempted", "response_source"),
    *("upstream_status_code", "local_response_reason", *PAYLOADS),
)
_SUMMED = ("tokens_in", "tokens_out", "tokens_reasoning", "tokens_total", "cached_tokens", "latency_total_ms")

Call = dict[str, Any]


def read(files: CaptureFiles) -> tuple[list[Call], list[dict[str, str]], int]:
    """The calls in the order in which they were written, the gaps, and the size of what was read."""
    calls: list[Call] = []
    broken = size = 0
    try:
        with files.calls.open("rb") as lines:
            for index, line in enumerate(lines):
                size += len(line)
                call = _call(line, index)
                broken += call is None
                calls += [] if call is None else [call]
    except FileNotFoundError:
        pass
    except OSError as error:
        return calls, [{"code": UNREADABLE, "detail": type(error).__name__}], size
    gaps: list[dict[str, str]] = []
    if broken:
        gaps.append({"code": RECORDS_UNREADABLE, "detail": str(broken)})
    elif not calls:
        gaps.append({"code": NO_RECORDS})
    if files.calls_incomplete.exists():
        gaps.append({"code": INCOMPLETE})
    return calls, gaps, size


def metrics(calls: Iterable[Call]) -> dict[str, Any]:
    """Sums; null where no call tells."""
    known = list(calls)
    sums: dict[str, Any] = {}
    for key in _SUMMED:
        values = [call[key] for call in known if call[key] is not None]
        sums[key] = sum(values) if values else None
    return {**sums, "num_calls": len(known)}


def _call(line: bytes, index: int) -> Call | None:
    try:
        exchange = loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(exchange, dict):
        return None
    call = {key: exchange[key] for key in _COPIED if exchange.get(key) is not None}
    request, response = _mapping(exchange.get("request")), _mapping(exchange.get("response"))
    call |= {"call_index": index, "status_code": exchange.get("status_code")}
    facts = {
        "response_id": response.get("id"),
        "model": response.get("model") or request.get("model"),
        "response_status": response.get("status"),
        "finish_reason": _finish_reason(response),
    }
    call |= {key: value for key, value in facts.items() if isinstance(value, str)}
    return {**call, **_tokens(response.get("usage")), "latency_total_ms": _number(exchange.get("latency_ms"))}


def _tokens(usage: Any) -> dict[str, int | None]:
    """In any dialect's words. Anthropic counts cached tokens apart from `input_tokens`."""
    told = _mapping(usage)
    inside = _mapping(told.get("input_tokens_details") or told.get("prompt_tokens_details"))
    outside = _mapping(told.get("output_tokens_details") or told.get("completion_tokens_details"))
    cached, given = _count(inside.get("cached_tokens")), _count(_first(told, "input_tokens", "prompt_tokens"))
    apart = [_count(told.get(key)) for key in ("cache_read_input_tokens", "cache_creation_input_tokens")]
    if given is not None and any(apart):
        given += sum(count or 0 for count in apart)
    made = _count(_first(told, "output_tokens", "completion_tokens"))
    total = _count(told.get("total_tokens"))
    if total is None and given is not None and made is not None:
        total = given + made
    return {
        "tokens_in": given,
        "tokens_out": made,
        "tokens_reasoning": _count(outside.get("reasoning_tokens")),
        "tokens_total": total,
        "cached_tokens": cached if cached is not None else apart[0],
    }


def _finish_reason(response: Mapping[str, Any]) -> Any:
    choices = response.get("choices")
    first = _mapping(choices[0]) if isinstance(choices, list) and choices else {}
    incomplete = _mapping(response.get("incomplete_details"))
    reasons = (response.get("stop_reason"), first.get("finish_reason"), incomplete.get("reason"))
    return next((reason for reason in reasons if isinstance(reason, str)), None)


def _first(values: Mapping[str, Any], *keys: str) -> Any:
    return next((values[key] for key in keys if values.get(key) is not None), None)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
