"""Tasks and recorded rollouts in the data folder of a NeMo Gym server, put together again.

A recorded rollout holds what its verifier answered, which often lacks the ground truth: that stands in the
task row with the same prompt. Older rows have explicit nulls, and an older shape of `usage`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Json = dict[str, Any]

_OF_THE_RUN = ("response", "reward", "agent_ref")
_RESPONSE: Json = {
    "id": "resp_recorded",
    "created_at": 0,
    "model": "recorded",
    "object": "response",
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}
"""What a response must have, for recorded ones that lack it."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """One recorded rollout with the task that it was made from."""

    row: int
    reward: float
    task: Json
    """The task row; without one, what the rollout itself still says of it."""
    has_task_row: bool
    output: list[Json]
    request: Json
    """The body of `/verify`."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What the model said between two things that it was told."""

    items: list[Json]

    @property
    def calls(self) -> list[Json]:
        return [item for item in self.items if item.get("type") == "function_call"]

    def written(self) -> Json:
        """As a turn of `scripted_model`."""
        calls = [{"name": call["name"], "arguments": call.get("arguments") or ""} for call in self.calls]
        return {"text": _text(self.items), "reasoning": _thought(self.items), "calls": calls}


def tasks(data: Path) -> list[Json]:
    """The five example rows, without numbers of a run: some are one task five times."""
    rows = lines(data / "example.jsonl")
    return [{key: value for key, value in row.items() if key[:4] != "_ng_"} for row in rows]


def rollouts(data: Path) -> list[Recorded]:
    """The recorded ones that have a reward and something to judge, each with its task."""
    known = tasks(data)
    others = [row for file in sorted(data.glob("*example*.jsonl")) for row in lines(file) if _is_task(row)]
    return [
        _joined(number, rollout, [*known, *others])
        for number, rollout in enumerate(lines(data / "example_rollouts.jsonl"))
        if _is_judged(rollout)
    ]


def lines(file: Path) -> list[Json]:
    """The rows of a file; none where it is missing or holds something else."""
    try:
        rows = [json.loads(line) for line in file.read_text("utf-8").split("\n") if line.strip()]
    except (OSError, ValueError):
        return []
    return [row for row in rows if isinstance(row, dict)]


def turns(output: Sequence[Json]) -> list[Turn]:
    """A trajectory, cut where something came back to the model: tool outputs, or a user."""
    found: list[Turn] = []
    is_open = False
    for item in output:
        if item.get("type") == "function_call_output" or item.get("role") in ("user", "system", "developer"):
            is_open = False
        elif is_open:
            found[-1].items.append(item)
        else:
            found.append(Turn([item]))
            is_open = True
    return found


def scripted(row: Json, answers: Sequence[Turn]) -> Json:
    """A row that `scripted_model` answers with these turns."""
    params = row["responses_create_params"]
    script = json.dumps([turn.written() for turn in answers] or ["I do not know."])
    metadata = {**(params.get("metadata") or {}), "script": script}
    return {**row, "responses_create_params": {**params, "metadata": metadata}}


def same_prompt(row: Json, found: Sequence[Recorded]) -> Recorded | None:
    """A recorded rollout of this task."""
    return next((one for one in found if one.has_task_row and one.task == _task(row)), None)


def _joined(number: int, rollout: Json, known: Sequence[Json]) -> Recorded:
    params = _without_nulls(rollout["responses_create_params"])
    task = _task_of(number, rollout, known)
    response = _response(rollout["response"])
    given = _task(task) if task else _own(rollout, known)
    return Recorded(
        row=number,
        reward=float(rollout["reward"]),
        task=given,
        has_task_row=task is not None,
        output=response["output"],
        request={**given, "responses_create_params": params, "response": response},
    )


def _own(rollout: Json, known: Sequence[Json]) -> Json:
    """The fields of tasks that a rollout has; the rest is the verifier's, and does not go back to it."""
    fields = {field for row in known for field in row}
    return {field: value for field, value in _task(rollout).items() if field in fields}


def _task(row: Json) -> Json:
    return {key: value for key, value in row.items() if key not in _OF_THE_RUN and key[:4] != "_ng_"}


def _task_of(number: int, rollout: Json, known: Sequence[Json]) -> Json | None:
    """By the prompt, and the index or the order if several have it; by its beginning and the index if the
    environment wrote into it, too."""
    asked = _prompt(rollout)
    index = rollout.get("_ng_task_index")
    same = [place for place, row in enumerate(known) if _prompt(row) == asked]
    if same:
        likely = (place for place in (index, number) if place in same)
        return known[next(likely, same[0])]
    if not isinstance(index, int) or index >= len(known):
        return None
    beginning = _prompt(known[index])
    return known[index] if asked[: len(beginning)] == beginning else None


def _prompt(row: Json) -> list[str]:
    params = row.get("responses_create_params") or {}
    given = params.get("input") or []
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    return [
        f"{item.get('role') or item.get('type')}: {_content(item).strip()}{_seen(item)}" for item in items
    ]


def _content(item: Json) -> str:
    content = item.get("content") or item.get("arguments") or item.get("output") or ""
    if isinstance(content, str):
        return content
    return "".join(part.get("text") or "" for part in content if isinstance(part, dict))


def _seen(item: Json) -> list[str]:
    """The images of a message: prompts may differ in nothing else."""
    content = item.get("content")
    parts = content if isinstance(content, list) else []
    return [str(part["image_url"]) for part in parts if isinstance(part, dict) and part.get("image_url")]


def _is_task(row: Json) -> bool:
    return "responses_create_params" in row and "response" not in row


def _is_judged(row: Json) -> bool:
    response = row.get("response")
    has_output = isinstance(response, dict) and bool(response.get("output"))
    return has_output and isinstance(row.get("reward"), int | float) and "responses_create_params" in row


def _response(response: Json) -> Json:
    kept = _without_nulls(response)
    if "input_tokens" not in (kept.get("usage") or {}):
        kept.pop("usage", None)
    tools = [{"strict": None, **tool} for tool in kept.get("tools") or []]
    return {**_RESPONSE, **kept, "tools": tools}


def _without_nulls(params: Json) -> Json:
    kept = {key: value for key, value in params.items() if value is not None}
    if "tools" in kept:
        kept["tools"] = [{"strict": None, **tool} for tool in kept["tools"]]
    return kept


def _text(items: Sequence[Json]) -> str:
    return "\n".join(text for text in _texts(items) if text)


def _texts(items: Sequence[Json]) -> Iterator[str]:
    for item in items:
        if item.get("type") in ("message", None) and item.get("role") == "assistant":
            yield _content(item)


def _thought(items: Sequence[Json]) -> str:
    thoughts = [
        part for item in items if item.get("type") == "reasoning" for part in item.get("summary") or ()
    ]
    return "\n".join(part.get("text") or "" for part in thoughts)
