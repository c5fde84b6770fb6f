"""Why a rollout failed, in the words of the server where it began: errors come wrapped, once for each hop."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from typing import Any

SHOWN = 240
_HOPS = 10
_WRAPPED = re.compile(r"""(?:calling an inner server|the agent said):? (b(['"]).*\2)$""", re.DOTALL)
_FIELD = re.compile(r'"loc":\[([^\]]*)\],"msg":"((?:[^"\\]|\\.)*)"')
"""The first fault of a validation error; it comes before the input, with which the text may end anywhere."""
_ESCAPES = re.compile(r"\\+(?=['\"])")


def cause(record: Mapping[str, Any]) -> str:
    """One printable line, at most SHOWN characters; empty when the record says nothing."""
    body, message = record.get("_ng_failure_response_body"), record.get("_ng_failure_message")
    text = next((text for text in (body, message) if isinstance(text, str) and text.strip()), "")
    said = " ".join(_ESCAPES.sub("", innermost(text)).split())
    said = "".join(character if character.isprintable() else "?" for character in said)
    return said if len(said) <= SHOWN else said[: SHOWN - 1] + "…"


def innermost(text: str) -> str:
    """Without the JSON strings and quoted bodies that each hop puts around it, as far as they are whole."""
    for _ in range(_HOPS):
        inner = _unwrapped(text)
        if inner is None:
            break
        text = inner
    return text


def _unwrapped(text: str) -> str | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        quoted = _WRAPPED.search(text)
        return _field(text) if quoted is None else _body(quoted[1])
    return value if isinstance(value, str) else _told(value)


def _body(literal: str) -> str | None:
    try:
        value = ast.literal_eval(literal)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else None


def _told(value: Any) -> str | None:
    """The text of an upstream's `error` or of a `detail`; of a validation error, the field and the fault."""
    if not isinstance(value, dict):
        return None
    if isinstance(value.get("detail"), list):
        return _field(json.dumps(value, separators=(",", ":")))
    error, detail = value.get("error"), value.get("detail")
    if isinstance(error, dict) and isinstance(error.get("message"), str):
        return error["message"]
    return next((text for text in (error, detail) if isinstance(text, str)), None)


def _field(text: str) -> str | None:
    fault = _FIELD.search(text) if text.startswith('{"detail":[') else None
    return None if fault is None else re.sub(r'"', "", fault[1]).replace(",", ".") + f": {fault[2]}"
