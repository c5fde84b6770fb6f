"""What was asked, in the form by which it is found again: the request without what differs from run to run.

Ids of answers and calls become `#0`, `#1` … in the order in which they appear; the model's name, cache hints,
token ids and nulls are left out. Messages and settings are known by digests of their content, so that a
conversation that grows is stored once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import orjson

from gymctl.contract.responses import JsonObject

MESSAGES = {"/v1/responses": "input", "/v1/chat/completions": "messages", "/v1/messages": "messages"}
"""By path: where a body keeps its conversation."""
_NOT_ASKED = frozenset({"model", "user", "prompt_cache_key", "prompt_cache_retention", "safety_identifier"})
_IDS = frozenset(
    {"id", "call_id", "tool_call_id", "tool_use_id", "item_id", "approval_request_id", "previous_response_id"}
)
_TOKENS = frozenset(
    {"prompt_token_ids", "generation_token_ids", "generation_log_probs", "routed_experts", "logprobs"}
)
_NESTED = ("content", "tool_calls", "summary")


@dataclass(frozen=True)
class Asked:
    """One request. Messages and settings are JSON with sorted keys."""

    server: str
    path: str
    messages: tuple[bytes, ...]
    settings: bytes

    @classmethod
    def of(cls, server: str, path: str, body: JsonObject, scrub: Callable[[str], str]) -> Asked:
        """scrub: takes secrets out of a text."""
        key = MESSAGES[path]
        names: dict[str, str] = {}
        given = body.get(key)
        messages = given if isinstance(given, list) else [] if given is None else [given]
        settings = {
            name: _without_ids(value, names) if name in _IDS else value
            for name, value in body.items()
            if name != key and name not in _NOT_ASKED and value is not None
        }
        if not settings.get("stream"):
            settings.pop("stream", None)
        return cls(
            server,
            path,
            tuple(scrub(_dumped(_message(item, names))).encode() for item in messages),
            scrub(_dumped(settings)).encode(),
        )

    @cached_property
    def parts(self) -> Mapping[str, bytes]:
        """By digest: every message, and the settings."""
        return {digest(part): part for part in (*self.messages, self.settings)}

    @cached_property
    def message_digests(self) -> tuple[str, ...]:
        return tuple(map(digest, self.messages))

    @cached_property
    def settings_digest(self) -> str:
        return digest(self.settings)

    @cached_property
    def digest(self) -> str:
        return digest(
            "\n".join((self.server, self.path, self.settings_digest, *self.message_digests)).encode()
        )


def digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def prefixes(server: str, path: str, messages: Sequence[str]) -> list[str]:
    """A digest for every beginning of a conversation, the shortest first."""
    found: list[str] = []
    before = digest(f"{server}\n{path}".encode())
    for message in messages:
        before = digest(f"{before}{message}".encode())
        found.append(before)
    return found


def _message(item: Any, names: dict[str, str]) -> Any:
    if not isinstance(item, dict):
        return item
    kept: dict[str, Any] = {}
    for key, value in item.items():
        if key in _TOKENS or value is None:
            continue
        if key in _IDS:
            value = _without_ids(value, names)
        elif key in _NESTED and isinstance(value, list):
            value = [_message(part, names) for part in value]
        kept[key] = value
    return kept


def _without_ids(value: Any, names: dict[str, str]) -> Any:
    return names.setdefault(value, f"#{len(names)}") if isinstance(value, str) else value


def _dumped(value: Any) -> str:
    """With sorted keys; the standard encoder takes what orjson refuses (huge integers, half an emoji)."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    except (orjson.JSONEncodeError, UnicodeError):
        return json.dumps(value, sort_keys=True, separators=(",", ":"))
