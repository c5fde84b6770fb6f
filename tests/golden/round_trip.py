"""Recorded conversations through the converters: Responses -> chat -> Responses, and what was lost.

    GYMCTL_GOLDEN_DATA=/path/to/rollouts python tests/golden/round_trip.py

The folder's `*rollouts*.jsonl` files hold one rollout a line: `responses_create_params` and `response`. The
input and the output of each are one conversation. Prints figures by file and every reason; exit code 1 if a
conversation that chat can carry did not survive. Opt-in: such recordings are not part of the repository.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from gymctl.contract.responses import drop_nulls
from gymctl.servers.models.dialects.chat_over_responses import responses_params
from gymctl.servers.models.dialects.errors import ConversionError
from gymctl.servers.models.dialects.reasoning import split
from gymctl.servers.models.dialects.responses_to_chat import chat_request

JsonObject = dict[str, Any]

PARAMS = (
    "instructions",
    "temperature",
    "top_p",
    "max_output_tokens",
    "metadata",
    "user",
    "reasoning",
    "text",
)


def conversation(row: JsonObject) -> JsonObject:
    params = drop_nulls(row["responses_create_params"])
    items = params.get("input") or []
    if isinstance(items, str):
        items = [{"role": "user", "content": [{"type": "input_text", "text": items}]}]
    output = (row.get("response") or {}).get("output") or []
    kept = {key: params[key] for key in (*PARAMS, "tools", "tool_choice") if params.get(key) is not None}
    return {**kept, "input": [*items, *output]}


def normal(items: list[JsonObject]) -> list[tuple[Any, ...]]:
    """What a conversation says, without the ways of writing it: one entry a text, thought, call or result;
    assistant texts and thoughts of one turn joined, as chat joins them."""
    said: list[tuple[Any, ...]] = []
    text = thought = ""
    calls: list[tuple[Any, ...]] = []

    def flush() -> None:
        nonlocal text, thought
        if text or thought or calls:
            said.append(("assistant", thought, text, *calls))
        text = thought = ""
        calls.clear()

    for item in items:
        kind = item.get("type") or "message"
        if kind == "message" and item["role"] == "assistant":
            inside, outside = split(_text(item.get("content")))
            thought, text = thought + "".join(inside), text + outside
        elif kind == "reasoning":
            thought += "".join(part["text"] for part in item.get("summary") or ())
        elif kind == "function_call":
            calls.append((item["call_id"], item["name"], item["arguments"]))
        else:
            flush()
            said.append(
                (item.get("role"), item.get("call_id"), _text(item.get("content", item.get("output"))))
            )
    flush()
    return said


def _text(content: Any) -> Any:
    if content is None or isinstance(content, str):
        return content or ""
    if all("text" in part for part in content):
        return "".join(part["text"] for part in content)
    return json.dumps([{"detail": "auto", **part} for part in content], sort_keys=True)


def outcome(row: JsonObject) -> str:
    request = conversation(row)
    try:
        chat = chat_request(request)
    except ConversionError as error:
        return f"chat cannot carry it: {error}"
    back = responses_params(chat)
    if chat_request(back) != chat:
        return "LOST: the second translation differs from the first"
    if normal(back["input"]) != normal([*_instructions(request), *request["input"]]):
        return "LOST: another conversation came back"
    options = {key for key in PARAMS[1:] if request.get(key) != back.get(key)}
    return f"LOST: {', '.join(sorted(options))}" if options else "equal"


def _instructions(request: JsonObject) -> list[JsonObject]:
    text = request.get("instructions")
    return [{"role": "system", "content": text}] if text else []


def main() -> int:
    folder = Path(os.environ["GYMCTL_GOLDEN_DATA"])
    total: Counter[str] = Counter()
    for file in sorted(folder.rglob("*rollouts*.jsonl")):
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line]
        found = Counter(outcome(row) for row in rows if "responses_create_params" in row)
        total += found
        print(f"{file.relative_to(folder)}: {dict(found)}")
    print(f"\n{sum(total.values())} conversations")
    for reason, count in total.most_common():
        print(f"{count:6} {reason}")
    return 1 if any(reason.startswith("LOST") for reason in total) else 0


if __name__ == "__main__":
    sys.exit(main())
