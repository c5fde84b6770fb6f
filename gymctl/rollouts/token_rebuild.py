"""Token ids on record become those of the scored response, or the rollout is masked (CONTRACT 15.3).

The call that the verifier scored is the end of a chain of calls, each going on from the tokens of the one
before. The items of `response.output` that a model wrote must be those of the chain, in order; then the
tokens of each call go back to the item that had them. Anything else cannot be trained on, and is said so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gymctl.contract.captures import TOKENS_SCHEMA, CaptureFiles, digest
from gymctl.contract.rollout import Row
from gymctl.rollouts.encoding import loads

TERMINAL_CALL = "_ng_terminal_model_call_id"
TERMINAL_RESPONSE = "terminal_response_id"
_TOKENS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs", "routed_experts")

Entry = dict[str, Any]


class Unusable(Exception):
    """Why no training sample can be made of a rollout."""


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The output with its tokens, and what became of the calls on record."""

    output: list[dict[str, Any]]
    metrics: dict[str, Any]


def read(files: CaptureFiles) -> list[Entry]:
    """The calls on record. Raises Unusable when one is missing or cannot be understood."""
    try:
        lines = files.tokens.read_bytes().split(b"\n")
        entries = [loads(line) for line in lines if line]
        state = loads(files.tokens_state.read_bytes()) if files.tokens_state.exists() else {}
    except FileNotFoundError:
        raise Unusable("no token ids are on record") from None
    except (OSError, ValueError) as error:
        raise Unusable(f"the record cannot be read: {type(error).__name__}") from error
    for entry in entries:
        if not isinstance(entry, dict) or entry.get("schema_version") != TOKENS_SCHEMA:
            raise Unusable(f"the record has lines of another version than {TOKENS_SCHEMA}")
    if not isinstance(state, dict) or state.get("incomplete"):
        raise Unusable("the tokens of a call are missing")
    return entries


def has_tokens(record: Row) -> bool:
    return any(item.get("generation_token_ids") for item in _output(record))


def rebuild(record: Row, entries: Sequence[Entry], *, allow_unresolved: bool) -> Rebuilt:
    """Raises Unusable."""
    method, terminal = _terminal(record, entries)
    chain = _chain(terminal, entries)
    unresolved = [entry for entry in chain if entry.get("parent_resolution") == "unresolved"]
    if unresolved and not allow_unresolved:
        raise Unusable(f"the call before `{unresolved[0]['model_call_id']}` is not on record")
    if not any(entry["generation_token_ids"] for entry in chain):
        raise Unusable("no tokens were generated")
    generated = [len(entry["generation_token_ids"]) for entry in entries]
    return Rebuilt(
        output=_with_tokens(_output(record), chain),
        metrics={
            "n_calls": len(entries),
            "chain_calls": len(chain),
            "terminal_attribution": {"method": method, "call_id": terminal["model_call_id"]},
            "roots": sum(entry.get("parent_resolution") == "root" for entry in entries),
            "unresolved_parent_calls": sum(
                entry.get("parent_resolution") == "unresolved" for entry in entries
            ),
            "generated_tokens_captured": sum(generated),
            "generated_tokens_delivered": sum(len(entry["generation_token_ids"]) for entry in chain),
        },
    )


def _terminal(record: Row, entries: Sequence[Entry]) -> tuple[str, Entry]:
    """The call that was scored, and how it is known. A declared one must be on record."""
    response = record.get("response")
    own = response.get("id") if isinstance(response, dict) else None
    for method, key, value in (
        ("declared_call", "model_call_id", record.get(TERMINAL_CALL)),
        ("declared_response", "response_id", record.get(TERMINAL_RESPONSE)),
        ("response_id", "response_id", own),
    ):
        found = [entry for entry in entries if value is not None and entry.get(key) == value]
        if len(found) == 1:
            return method, found[0]
        if value is not None and method != "response_id":
            raise Unusable(
                f"the scored call `{value}` is {'not' if not found else 'several times'} on record"
            )
    parents = {entry.get("parent_call_id") for entry in entries}
    ends = [entry for entry in entries if entry["model_call_id"] not in parents]
    if len(ends) != 1:
        raise Unusable(f"{len(ends)} of {len(entries)} calls could be the one that was scored")
    return "only_chain", ends[0]


def _chain(terminal: Entry, entries: Sequence[Entry]) -> list[Entry]:
    """From the first call to the scored one; every link is checked against the tokens."""
    by_id = {entry["model_call_id"]: entry for entry in entries}
    chain = [terminal]
    while (parent_id := chain[0].get("parent_call_id")) is not None:
        parent = by_id.get(parent_id)
        if parent is None or len(chain) > len(entries):
            raise Unusable(f"the call `{parent_id}` is not on record")
        before = [*parent["prompt_token_ids"], *parent["generation_token_ids"]]
        if parent.get("digest") != digest(before) or chain[0]["prompt_token_ids"][: len(before)] != before:
            raise Unusable(f"the tokens of `{chain[0]['model_call_id']}` do not go on from `{parent_id}`")
        chain.insert(0, parent)
    return chain


def _with_tokens(output: Sequence[dict[str, Any]], chain: Sequence[Entry]) -> list[dict[str, Any]]:
    rebuilt = [dict(item) for item in output]
    written = [index for index, item in enumerate(rebuilt) if _is_written_by_a_model(item)]
    authored = [(entry, place, item) for entry in chain for place, item in enumerate(entry["output_items"])]
    if len(written) != len(authored) or not all(
        _is_same(rebuilt[index], item) for index, (_, _, item) in zip(written, authored, strict=True)
    ):
        raise Unusable("the response is not what the calls on record answered")
    for index, (entry, place, _) in zip(written, authored, strict=True):
        if place == entry["token_item_index"]:
            given = {key: entry[key] for key in _TOKENS if entry.get(key) is not None}
            rebuilt[index] |= given
    return rebuilt


def _is_written_by_a_model(item: Mapping[str, Any]) -> bool:
    kind = item.get("type", "message")
    is_message = kind == "message" and item.get("role") == "assistant"
    return is_message or kind in ("reasoning", "function_call")


def _is_same(item: Mapping[str, Any], recorded: Mapping[str, Any]) -> bool:
    keys = ("call_id", "name", "arguments") if item.get("type") == "function_call" else ()
    return item.get("type", "message") == recorded.get("type", "message") and all(
        item.get(key) == recorded.get(key) for key in keys
    )


def _output(record: Row) -> list[dict[str, Any]]:
    response = record.get("response")
    output = response.get("output") if isinstance(response, dict) else None
    return [item for item in output if isinstance(item, dict)] if isinstance(output, list) else []
