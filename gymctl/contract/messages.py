"""Bodies of Anthropic's Messages dialect (CONTRACT 4): what is checked, and how its clients read errors."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Discriminator, Field, Tag

from gymctl.contract.responses import JsonObject


def _readable(block: JsonObject) -> JsonObject:
    """What the translation reads of a block is what it takes it for; results of tools hold blocks, too."""
    if not isinstance(block.get("type"), str):
        raise ValueError("a content block needs `type`")
    for key in ("text", "thinking"):
        if not isinstance(block.get(key), str | None):
            raise ValueError(f"`{key}` of a content block must be a string")
    if not isinstance(block.get("source"), dict | None):
        raise ValueError("`source` of a content block must be an object")
    content = block.get("content") if block["type"] == "tool_result" else None
    if not isinstance(content, str | list | None):
        raise ValueError("`content` of a tool_result must be a string or a list of content blocks")
    for part in content if isinstance(content, list) else ():
        if not isinstance(part, dict):
            raise ValueError("a content block must be an object")
        _readable(part)
    return block


def _with_type(choice: JsonObject) -> JsonObject:
    if not isinstance(choice.get("type"), str):
        raise ValueError("a tool choice needs `type`")
    return choice


def _with_format(config: JsonObject) -> JsonObject:
    if not isinstance(config.get("format"), dict | None):
        raise ValueError("`format` must be an object")
    return config


def _shape(content: Any) -> str:
    return "text" if isinstance(content, str) else "blocks"


Block = Annotated[JsonObject, AfterValidator(_readable)]
Content = Annotated[
    Annotated[str, Tag("text")] | Annotated[list[Block], Tag("blocks")], Discriminator(_shape)
]
"""An error names the block that it is about, not every shape that the content might have had."""


class Message(BaseModel):
    role: Literal["user", "assistant"]
    content: Content


class MessagesParams(BaseModel):
    """`POST /v1/messages`. Clients send more than we read (betas, cache hints): unknown keys are left out."""

    messages: list[Message]
    max_tokens: int = Field(ge=1)
    metadata: JsonObject | None = None
    model: str | None = None
    output_config: Annotated[JsonObject, AfterValidator(_with_format)] | None = None
    stop_sequences: list[str] | None = None
    stream: Any = None
    system: Content | None = None
    temperature: float | None = None
    tool_choice: Annotated[JsonObject, AfterValidator(_with_type)] | None = None
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
