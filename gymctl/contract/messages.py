"""Bodies of Anthropic's Messages dialect (CONTRACT 4): what is checked, and how its clients read errors."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field

from gymctl.contract.responses import JsonObject


def _typed(block: JsonObject) -> JsonObject:
    if not isinstance(block.get("type"), str):
        raise ValueError("a content block needs `type`")
    return block


Block = Annotated[JsonObject, AfterValidator(_typed)]


class Message(BaseModel):
    role: Literal["user", "assistant"]
    content: str | list[Block]


class MessagesParams(BaseModel):
    """`POST /v1/messages`. Clients send more than we read (betas, cache hints): unknown keys are left out."""

    messages: list[Message]
    max_tokens: int = Field(ge=1)
    metadata: JsonObject | None = None
    model: str | None = None
    output_config: JsonObject | None = None
    stop_sequences: list[str] | None = None
    stream: Any = None
    system: str | list[Block] | None = None
    temperature: float | None = None
    tool_choice: JsonObject | None = None
    tools: list[JsonObject] | None = None
    top_k: int | None = None
    top_p: float | None = None


_ERROR_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def error_body(status: int, message: str) -> JsonObject:
    """An error as Anthropic's clients read it."""
    kind = _ERROR_TYPES.get(status, "invalid_request_error" if 400 <= status < 500 else "api_error")
    return {"type": "error", "error": {"type": kind, "message": message}}
