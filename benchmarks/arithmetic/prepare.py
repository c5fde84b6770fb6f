"""Writes the rows of the arithmetic benchmark: sums and differences of two single digits, from reasoning-gym.

    uv run --with reasoning-gym==0.1.25 benchmarks/arithmetic/prepare.py

The committed file is this script's output; the same arguments give the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FAMILY = "chain_sum"
DIFFICULTY = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}


def prepare(*, size: int = 100, seed: int = 42, output: str | Path | None = None) -> Path:
    """Write `size` rows and return the file's absolute path."""
    path = Path(output) if output else Path(__file__).parent / "data" / "arithmetic.jsonl"
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows(size, seed))
    if not path.exists() or path.read_text("utf-8") != text:
        path.write_text(text, "utf-8")
    return path


def rows(size: int, seed: int) -> Iterator[dict[str, Any]]:
    """A row names its task; the verifier makes the task again and needs no answer from the row."""
    import reasoning_gym

    tasks = reasoning_gym.create_dataset(FAMILY, seed=seed, size=size, **DIFFICULTY)
    for index in range(size):
        expression = tasks[index]["metadata"]["expression"]
        question = f"What is {expression}? Answer with a number."
        yield {
            "responses_create_params": {
                "input": [{"role": "user", "content": question}],
                "temperature": 0.7,
                "max_output_tokens": 32,
            },
            "family": FAMILY,
            "seed": seed,
            "index": index,
            "config": DIFFICULTY,
        }


if __name__ == "__main__":
    print(prepare())
