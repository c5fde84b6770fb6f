"""Bytes in, bytes out: JSON bodies, validation errors (422), and JSON answers without a second pass."""

from __future__ import annotations

import json
import re
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import Response

M = TypeVar("M", bound=BaseModel)

_ANY: TypeAdapter[Any] = TypeAdapter(Any)


class InvalidBody(Exception):
    """A body that is answered with 422; `errors` are pydantic's, their places counted from `body`."""

    def __init__(self, errors: list[dict[str, Any]]) -> None:
        super().__init__(errors)
        self.errors = errors


def loads(body: bytes) -> Any:
    """JSON; huge integers keep their digits, NaN and lone surrogates are taken. Raises ValueError."""
    try:
        return _ANY.validate_json(body)
    except ValidationError:
        pass
    try:
        return json.loads(body)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def dumps(value: Any) -> bytes:
    """JSON of plain values and of models inside them; the standard encoder takes what orjson refuses.

    Half an emoji becomes the replacement character, two halves that meet become one: no reader refuses it.
    """
    try:
        return orjson.dumps(value, default=_plain, option=orjson.OPT_NON_STR_KEYS)
    except orjson.JSONEncodeError:
        text = json.dumps(value, default=_plain, separators=(",", ":"))
        return _ESCAPE.sub(_without_lone_half, text).encode()


_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[dD][89a-fA-F][0-9a-fA-F]{2}|.)"
)
"""A pair of surrogates, a surrogate without its other half, or any other escape (which starts none)."""


def _without_lone_half(escape: re.Match[str]) -> str:
    text = escape.group()
    return "\\ufffd" if len(text) == 6 and text[1] == "u" else text


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return _ANY.dump_python(value, mode="json")


class Json(Response):
    """A JSON answer. Bytes are taken as JSON that is ready."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return content if isinstance(content, bytes) else dumps(content)


async def json_object(request: Request) -> dict[str, Any]:
    """The body as a JSON object; anything else is answered with 422. An empty body is an empty object."""
    body = await request.body()
    if not body:
        return {}
    try:
        value = loads(body)
    except ValueError as error:
        raise invalid("json_invalid", (), f"JSON decode error: {error}", {}) from error
    if not isinstance(value, dict):
        raise invalid("dict_type", (), "Input should be a valid dictionary", value)
    return value


def validated(model: type[M], value: Any, *place: str) -> M:
    """`value`, from this place of the body, as a model; what is wrong with it is answered with 422."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        details = [
            {**item, "loc": ("body", *place, *item["loc"])} for item in error.errors(include_url=False)
        ]
        raise InvalidBody(details) from error


def invalid(kind: str, loc: tuple[str | int, ...], message: str, value: Any) -> InvalidBody:
    """A 422 of our own making, in the shape of pydantic's."""
    return InvalidBody([{"type": kind, "loc": ("body", *loc), "msg": message, "input": value}])
