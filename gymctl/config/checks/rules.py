"""Types of configuration values: null, or a value that keeps a rule. Nothing is converted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BeforeValidator


def rule(text: str, is_right: Callable[[Any], bool]) -> BeforeValidator:
    """Null or a value for which `is_right`; anything else breaks the rule `text`. Nothing is converted."""

    def check(value: Any) -> Any:
        if value is None or is_right(value):
            return value
        raise ValueError(text)

    return BeforeValidator(check)


Text = Annotated[str | None, rule("must be text", lambda value: isinstance(value, str) and value != "")]
