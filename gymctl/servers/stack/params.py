"""`responses_create_params` as every server hands it on: all known fields present (CONTRACT 6.2)."""

from __future__ import annotations

from typing import Any

from gymctl.contract.responses import ResponsesCreateParams

_DEFAULTS: dict[str, Any] = {
    name: field.get_default(call_default_factory=True)
    for name, field in ResponsesCreateParams.model_fields.items()
    if not field.is_required()
}


def completed(params: dict[str, Any]) -> dict[str, Any]:
    """The parameters with what is absent at its default; the argument is not changed."""
    return {**_DEFAULTS, **params}
