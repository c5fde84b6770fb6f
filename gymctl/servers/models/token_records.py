"""Token ids on record, for training: one line for each model call that asks for it (CONTRACT 15.3).

`<id>.tokens.jsonl`        what went in and came out, and which earlier call it goes on from
`<id>.tokens.state.json`   what a later call needs to find its parent without reading those lines again
`<id>.tokens.lock`         held meanwhile: a rollout's calls may be served by several processes
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gymctl.contract.captures import TOKENS_SCHEMA, CaptureFiles, digest
from gymctl.contract.responses import TOKEN_FIELDS, JsonObject
from gymctl.servers.models.capture import Call
from gymctl.servers.models.capture_files import locked, write_line
from gymctl.servers.models.dialects.errors import ConversionError
from gymctl.servers.models.dialects.token_fields import bundle
from gymctl.servers.stack.wire import dumps, loads

logger = logging.getLogger("gymctl.server")

_HIDDEN = frozenset((*TOKEN_FIELDS, "routed_experts"))
_WRITTEN_BY_MODELS = frozenset({"reasoning", "function_call"})


class TokenRecorder:
    """Called when a model call is finished, in a thread. Its answer is sent when this returns."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, call: Call) -> None:
        files = CaptureFiles.of(self._folder, call.rollout)
        if files is None or call.notes.error is not None or (call.status or 500) >= 400:
            return  # a call that failed has made no tokens
        if call.notes.facts.get("response_source") == "local":
            return
        with locked(files.tokens_lock):
            state = _state(files)
            try:
                record = _record(call, call.response() or {})
                record |= _parent(record, state["calls"], _goes_on(call))
                _append(files, record, state)
            except BaseException as error:
                state["incomplete"] = True
                if not isinstance(error, ConversionError):
                    raise
                logger.warning("rollout %s: a call's tokens are not on record: %s", call.rollout, error)
            finally:
                _write_state(files, state)


def _record(call: Call, response: JsonObject) -> JsonObject:
    items, index, holder = _items(call.dialect, response)
    given = None if holder is None else bundle(holder, "the answer")
    if given is None or holder is None:
        raise ConversionError("the answer holds no token ids")
    whole = [*given["prompt_token_ids"], *given["generation_token_ids"]]
    return {
        "schema_version": TOKENS_SCHEMA,
        "rollout_id": call.rollout,
        "model_call_id": call.id,
        "model": response.get("model") or "",
        **given,
        "routed_experts": holder.get("routed_experts"),
        "output_items": [{key: item[key] for key in item if key not in _HIDDEN} for item in items],
        "token_item_index": index,
        "response_id": response.get("id"),
        "created_at": time.time(),
        "cum_len": len(whole),
        "digest": digest(whole),
        "continuation_fingerprint": "",
        "continuation_context_len": 0,
        "continuation_context_digest": "",
        "fingerprint_version": None,
        "prompt_is_delta": False,
        "prefix_requested": False,
        "prefix_supplied": False,
    }


def _items(dialect: str, response: JsonObject) -> tuple[list[JsonObject], int | None, JsonObject | None]:
    """The answer's items, and the one that holds its tokens (CONTRACT 8.4)."""
    if dialect == "responses":
        items = response.get("output") or []
    else:
        choices = response.get("choices") or [{}]
        items = [choices[0].get("message") or {}]
    holders = [index for index, item in enumerate(items) if item.get(TOKEN_FIELDS[0]) is not None]
    return (items, holders[-1], items[holders[-1]]) if holders else (items, None, None)


def _goes_on(call: Call) -> bool:
    """Whether the request holds anything that a model wrote."""
    try:
        asked: Any = loads(call.request)
    except ValueError:
        return False
    given = asked.get("input", asked.get("messages")) if isinstance(asked, dict) else None
    items = given if isinstance(given, list) else []
    return any(
        item.get("role") == "assistant" or item.get("type") in _WRITTEN_BY_MODELS
        for item in items
        if isinstance(item, dict)
    )


def _parent(record: JsonObject, calls: Sequence[Sequence[Any]], goes_on: bool) -> JsonObject:
    """The earlier call whose tokens are the longest beginning of this prompt."""
    prompt = record["prompt_token_ids"]
    fitting = [entry for entry in calls if entry[1] <= len(prompt)]
    for name, length, known in sorted(fitting, key=lambda entry: entry[1], reverse=True):
        if digest(prompt[:length]) == known:
            found = {"parent_call_id": name, "parent_resolution": "resolved"}
            return {**found, "parent_resolution_reason": "token_prefix"}
    if goes_on:
        lost = {"parent_call_id": None, "parent_resolution": "unresolved"}
        return {**lost, "parent_resolution_reason": "no_call_with_this_prefix"}
    return {"parent_call_id": None, "parent_resolution": "root", "parent_resolution_reason": ""}


def _append(files: CaptureFiles, record: JsonObject, state: JsonObject) -> None:
    with locked(files.tokens) as descriptor:
        write_line(descriptor, dumps(record))
        state["indexed_size"] = os.fstat(descriptor).st_size
    state["version"] += 1
    state["calls"].append([record["model_call_id"], record["cum_len"], record["digest"]])


def _state(files: CaptureFiles) -> JsonObject:
    """As it was left; made anew from the lines when it does not fit them (a process died between the two)."""
    size = files.tokens.stat().st_size if files.tokens.exists() else 0
    try:
        state: Any = loads(files.tokens_state.read_bytes())
        if state["indexed_size"] == size and isinstance(state["calls"], list):
            return state
        incomplete = bool(state["incomplete"])
    except (OSError, ValueError, KeyError, TypeError):
        incomplete = files.tokens_state.exists()
    calls: list[list[Any]] = []
    for line in files.tokens.read_bytes().split(b"\n") if size else ():
        try:
            entry = loads(line) if line else None
            calls += [] if entry is None else [[entry[key] for key in ("model_call_id", "cum_len", "digest")]]
        except (ValueError, KeyError, TypeError):
            incomplete = True
    return {"incomplete": incomplete, "version": len(calls), "indexed_size": size, "calls": calls}


def _write_state(files: CaptureFiles, state: JsonObject) -> None:
    side = files.tokens_state.with_name(f".{files.tokens_state.name}.{os.getpid()}")
    side.write_bytes(dumps(state))
    side.replace(files.tokens_state)
