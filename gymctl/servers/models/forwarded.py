"""Answers of an upstream that are forwarded as they came, once they are known to be what they should be."""

from __future__ import annotations

from pydantic import ValidationError

from gymctl.contract.responses import JsonObject, Response
from gymctl.servers.models.dialects import chat_to_responses
from gymctl.servers.models.dialects.errors import ConversionError
from gymctl.servers.models.server import parsed
from gymctl.servers.stack.wire import dumps

LARGE = 4_000_000
"""Bytes of an answer that is only looked at: reading 25 MB takes 0.2 s, in which no other call goes on, and
no upstream's error page is that long."""


def completion(answer: bytes) -> bytes:
    """Raises ConversionError for what is no chat completion."""
    if not _is_surely(answer, b'"choices"'):
        chat_to_responses.first_choice(parsed(answer))
    return answer


def response(answer: bytes) -> bytes:
    """Raises ConversionError for what is no Response that an agent can read."""
    if not _is_surely(answer, b'"output"'):
        checked(parsed(answer))
    return answer


def checked(body: JsonObject) -> JsonObject:
    """The same, for an answer that has been read."""
    try:
        Response.model_validate(body)
    except ValidationError as error:
        reason = error.errors(include_input=False)[0]["msg"]
        raise ConversionError(
            f"the upstream answered with no Response: {reason}: {dumps(body)[:500]!r}"
        ) from error
    return body


def _is_surely(answer: bytes, key: bytes) -> bool:
    return len(answer) > LARGE and answer.lstrip()[:1] == b"{" and key in answer
