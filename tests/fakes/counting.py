"""Rows that drive the `counter` server through its two tools by script, each with numbers of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fakes.program import read_lines

TOOLS = [
    {
        "type": "function",
        "name": "increment_counter",
        "description": "Add an amount to the counter.",
        "parameters": {
            "type": "object",
            "properties": {"amount": {"type": "integer"}},
            "required": ["amount"],
        },
        "strict": False,
    },
    {
        "type": "function",
        "name": "get_counter_value",
        "description": "Read the counter.",
        "parameters": {"type": "object", "properties": {}},
        "strict": False,
    },
]


def row(number: int) -> dict[str, Any]:
    """Start at 1000 x number, add number + 1 and then 1, read; no two rows pass through the same count."""
    script = [
        {"calls": [{"name": "increment_counter", "arguments": {"amount": number + 1}}]},
        {"calls": [{"name": "increment_counter", "arguments": {"amount": 1}}]},
        {"calls": [{"name": "get_counter_value"}]},
        "done",
    ]
    return {
        "responses_create_params": {
            "input": [{"role": "user", "content": f"Count, number {number}."}],
            "tools": TOOLS,
            "metadata": {"script": json.dumps(script)},
        },
        "number": number,
        "initial_count": 1000 * number,
        "expected_count": expected(number),
    }


def expected(number: int) -> int:
    return 1000 * number + number + 2


def write_rows(path: Path, count: int) -> Path:
    path.write_text("".join(json.dumps(row(number)) + "\n" for number in range(count)), encoding="utf-8")
    return path


def counts_seen(output: Path) -> dict[int, list[int]]:
    """Task index -> the counts that `get_counter_value` told the model in its rollouts."""
    seen: dict[int, list[int]] = {}
    for record in read_lines(output):
        outputs = [
            json.loads(item["output"])
            for item in record["response"]["output"]
            if item["type"] == "function_call_output"
        ]
        counts = [answer["count"] for answer in outputs if "count" in answer]
        seen.setdefault(record["_ng_task_index"], []).extend(counts)
    return seen
