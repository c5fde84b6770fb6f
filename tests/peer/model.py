"""A model endpoint that knows the answers of NeMo Gym's example tasks, and gives some of them.

    with serving(rows) as url: ...        # {url}/responses; bound to every address of this machine

What it answers is a function of the request alone: two programs that send a conversation get the same bytes.
The seed of a repeat (`num_repeats_add_seed`) is part of the request, so repeats differ. An answer is right,
wrong or clumsy (an unknown tool, arguments that no tool takes) by a hash of the conversation. A user's text
that holds one of `FAILURES` is answered with what that word names.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

FAILURES = {
    "MODEL-400": (400, b'{"error":{"message":"no such parameter"}}'),
    "MODEL-GARBLED": (200, b'{"id":'),
}


def answer(body: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The Response to a request; `rows` are the tasks it may be about."""
    items = body["input"] if isinstance(body["input"], list) else [{"role": "user", "content": body["input"]}]
    first = user_text(items)
    row: Mapping[str, Any] = next((row for row in rows if user_text(_input_of(row)) == first), {})
    digest = hashlib.sha256(json.dumps([first, _seed(body)]).encode()).digest()
    output = _output(row, items, mood=digest[0] % 3, number=digest[1])
    turn = sum(item.get("type") == "function_call_output" or item.get("role") == "user" for item in items)
    name = f"{digest.hex()[:12]}_{turn}"
    for position, item in enumerate(output):
        item["id"] = f"{item['type']}_{name}_{position}"
        if item["type"] == "function_call":
            item["call_id"] = f"call_{name}_{position}"
    sent, made = 20 + len(first) % 50 + 7 * turn, 5 + digest[2] % 40
    return {
        "id": f"resp_{name}",
        "created_at": 1790000001.0,
        "model": body["model"],
        "object": "response",
        "output": output,
        "parallel_tool_calls": body.get("parallel_tool_calls") is not False,
        "tool_choice": body.get("tool_choice", "auto"),
        "tools": body.get("tools", []),
        "status": "completed",
        "usage": {
            "input_tokens": sent,
            "input_tokens_details": {"cached_tokens": digest[3] % 8},
            "output_tokens": made,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": sent + made,
        },
    }


def user_text(items: Any) -> str:
    """The text of the last user message before the model's first answer: it names the task."""
    if isinstance(items, str):
        return items
    text = ""
    for item in items if isinstance(items, list) else []:
        if item.get("role") == "assistant" or item.get("type") in ("function_call", "reasoning"):
            break
        if item.get("role") == "user":
            content = item["content"]
            text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
    return text


def _input_of(row: Mapping[str, Any]) -> Any:
    return row.get("responses_create_params", {}).get("input")


def _seed(body: Mapping[str, Any]) -> str:
    return str((body.get("metadata") or {}).get("extra_body", ""))


def _output(
    row: Mapping[str, Any], items: Sequence[Mapping[str, Any]], mood: int, number: int
) -> list[dict[str, Any]]:
    """`mood`: 0 gives the right answer, 1 a wrong one, 2 is clumsy first."""
    outputs = [item for item in items if item.get("type") == "function_call_output"]
    if "options" in row:
        letter = row["expected_answer"] if mood == 0 else "ABC"[number % 3]
        text = f"\\boxed{{{letter}}}" if mood < 2 else f"It is {letter}."
        return [_thought(f"Option {letter} looks right."), _message(text)]
    if "expected_synonyms" in row:
        return _synonyms(row, outputs, mood)
    if "initial_count" in row:
        return _counting(user_text(items), outputs, mood)
    if "follow_ups" in row:
        return [_message(row["expected_answer"] if mood == 0 else f"Not that one, number {number}.")]
    if "expected_call" in row:
        return _one_call(row["expected_call"], outputs, mood)
    city = (row.get("verifier_metadata") or {}).get("expected_city")
    if city and not outputs:
        return [_call("get_weather", {"city": city if mood == 0 else "Oslo"})]
    return [
        _message(
            _told(outputs[-1]).get("weather", _told(outputs[-1]).get("text", "No idea."))
            if outputs
            else "Hi."
        )
    ]


def _synonyms(
    row: Mapping[str, Any], outputs: Sequence[Mapping[str, Any]], mood: int
) -> list[dict[str, Any]]:
    words = row["expected_synonyms"]
    if not outputs:
        return [_call("get_synonym_value", {"synonym": word}) for word in words]
    if len(outputs) == len(words):
        values = [_told(output).get("synonym_value") for output in outputs]
        return [_call("extract_synonym_values", {"synonym_values": values if mood == 0 else values[::-1]})]
    return [_message("Done.")]


def _counting(text: str, outputs: Sequence[Mapping[str, Any]], mood: int) -> list[dict[str, Any]]:
    clumsy = (
        [("increment_counter", {"count": "many"}), ("decrement_counter", {"count": 1})] if mood == 2 else []
    )
    steps = [("increment_counter", {"count": int(count)}) for count in re.findall(r"add (\d+)", text)]
    plan = [*clumsy, *(steps if mood != 1 else steps[:-1]), ("get_counter_value", {})]
    if len(outputs) < len(plan):
        return [_call(*plan[len(outputs)])]
    return [_message(f"The counter says {_told(outputs[-1]).get('count')}.")]


def _one_call(
    expected: Mapping[str, Any], outputs: Sequence[Mapping[str, Any]], mood: int
) -> list[dict[str, Any]]:
    if outputs:
        return [_message("Thanks.")] if mood else []
    name = expected["name"] if mood < 2 else "get_wether"
    return [_call(name, expected["arguments"] if mood != 1 else {"town": "Oslo"})]


def _told(output: Mapping[str, Any]) -> dict[str, Any]:
    """A tool's answer, where it is an object."""
    with contextlib.suppress(ValueError):
        told = json.loads(output["output"])
        if isinstance(told, dict):
            return told
    return {}


def _thought(text: str) -> dict[str, Any]:
    return {"type": "reasoning", "summary": [{"type": "summary_text", "text": text}]}


def _message(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "role": "assistant", "status": "completed", "content": content}


def _call(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "function_call", "name": name, "arguments": json.dumps(arguments), "status": "completed"}


@contextlib.contextmanager
def serving(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The base URL of the endpoint, for as long as the context is open."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._say(200, b'{"object":"list","data":[]}')

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            said = json.dumps(body["input"])
            failure = next((FAILURES[word] for word in FAILURES if word in said), None)
            self._say(*(failure or (200, json.dumps(answer(body, rows)).encode())))

        def _say(self, status: int, content: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *arguments: Any) -> None: ...

    with ThreadingHTTPServer(("", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()
