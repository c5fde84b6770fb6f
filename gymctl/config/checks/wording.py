"""What a value must be: pydantic's errors in words that need no knowledge of Python."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

Details = Mapping[str, Any]
"""One entry of pydantic's list of errors."""

_WHOLE, _NUMBER, _BOOLEAN, _MAPPING = "a whole number", "a number", "true or false", "a mapping"
_MUST_BE = {
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_from_float": _WHOLE,
    "finite_number": _NUMBER,
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "bool_type": _BOOLEAN,
    "bool_parsing": _BOOLEAN,
    "string_type": "text",
    "path_type": "text",
    "list_type": "a list",
    "dict_type": _MAPPING,
    "model_type": _MAPPING,
    "greater_than_equal": "at least {ge:g}",
    "greater_than": "above {gt:g}",
    "less_than_equal": "at most {le:g}",
    "less_than": "below {lt:g}",
}


def rule(error: Details) -> str:
    """`must be a whole number`, `must not be empty`, `needs `path``."""
    kind, context = error["type"], error.get("ctx", {})
    if kind in _MUST_BE:
        return f"must be {_MUST_BE[kind].format(**context)}"
    if kind == "literal_error":
        return f"must be {context['expected'].replace(chr(39), '')}"
    if kind in ("string_too_short", "too_short") and context["min_length"] == 1:
        return "must not be empty"
    if kind == "missing":
        return f"needs `{error['loc'][-1]}`"
    if kind == "value_error":
        return str(context["error"])
    # `String should have at most 3 characters`, `Input should be …`
    text = re.sub(r"^\w+ should ", "must ", error["msg"])
    return text[:1].lower() + text[1:]


def rules(errors: Iterable[Details]) -> str:
    """What the members of a union want: `must be a whole number or text`."""
    first, *others = dict.fromkeys(map(rule, errors))
    return " or ".join([first, *(other.removeprefix("must ").removeprefix("be ") for other in others)])
