"""The file of recorded model calls: JSON Lines, addressed by content, read by servers and by the host.

    {"gymctl_cassette":1}                                             always the first line
    {"part":"<digest>","value":…}                                     a message of a conversation, or settings
    {"request":"<digest>","server":…,"path":…,"settings":…,"messages":[…]}   digests of parts
    {"answer":"<request>","rollout":"3-0","n":0,"status":200,"type":…,"json":…}   or "text", for streams

A line is written whole, and the parts of a request before it. Of two answers with the same request, rollout
and `n` (how often the same rollout had asked the same before) the later one counts. A line that is no JSON
was torn by a crash and is skipped.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict
from pydantic_core import from_json

from gymctl.errors import PrerequisiteError

IMPLEMENTATION = "cassette_model"
VERSION = 1
MARK = "gymctl_cassette"
HEADER = {MARK: VERSION}
Kind = Literal["part", "request", "answer"]


class Request(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)

    request: str
    server: str
    path: str
    settings: str
    messages: list[str]


def line(entry: dict[str, Any]) -> bytes:
    return json.dumps(entry, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"


def parsed(text: bytes) -> dict[str, Any] | None:
    """A line as an object; None when it is torn."""
    try:
        entry = from_json(text)
    except ValueError:
        try:  # half an emoji
            entry = json.loads(text)
        except ValueError:
            return None
    return entry if isinstance(entry, dict) else None


def kind_of(entry: dict[str, Any]) -> Kind | None:
    return next((kind for kind in ("answer", "request", "part") if kind in entry), None)


def check_header(first: bytes, where: str) -> None:
    """Raises PrerequisiteError for a file that is no cassette, or one of another version."""
    entry = parsed(first) or {}
    if MARK not in entry:
        raise PrerequisiteError(
            "this file is no cassette", where=where, hint="record one: gymctl eval … --model record:FILE"
        )
    if entry[MARK] != VERSION:
        raise PrerequisiteError(
            f"a cassette of version {entry[MARK]}; this gymctl reads version {VERSION}",
            where=where,
            hint="record it again",
        )
