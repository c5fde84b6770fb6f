"""What training clients run on: a project with token ids, rows of several kinds, what its model says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from fakes import counting

CONFIGS = (
    "responses_api_models/vllm_model/configs/vllm_model_for_training.yaml",
    "resources_servers/weather/configs/weather.yaml",
    "resources_servers/counter/configs/counter.yaml",
)
SETTINGS = """\
head_server: {{host: 127.0.0.1, port: {port}}}
policy_base_url: {engines}
policy_api_key: sk-training
policy_model_name: tiny
"""
WEATHER_TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "Get today's weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": False,
}


def write_settings(folder: Path, port: int, engines: list[str] | str) -> None:
    """An env.yaml. engines: where the model server finds vLLM."""
    (folder / "env.yaml").write_text(SETTINGS.format(port=port, engines=json.dumps(engines)))


def write_rows(folder: Path) -> Path:
    """One tool call, several calls of two other tools with a session, and no tools."""
    count = counting.row(1)
    del count["responses_create_params"]["metadata"]  # the script of a model that is not used here
    rows = [
        _row("weather_simple_agent", "What is the weather in Oslo?", [WEATHER_TOOL], city="Oslo"),
        {**count, "agent_ref": {"type": "responses_api_agents", "name": "counter_simple_agent"}},
        _row("weather_simple_agent", "You know the weather in Oslo. What is it?", None, city="Oslo"),
    ]
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _row(agent: str, question: str, tools: list[Any] | None, **fields: str) -> dict[str, Any]:
    params: dict[str, Any] = {"input": [{"role": "user", "content": question}]}
    if tools:
        params["tools"] = tools
    return {
        "responses_create_params": params,
        "agent_ref": {"type": "responses_api_agents", "name": agent},
        **fields,
    }


def plan(body: dict[str, Any]) -> dict[str, Any]:
    """The right answer to each of the rows, turn by turn."""
    names = [tool["function"]["name"] for tool in body.get("tools") or ()]
    question = next(message["content"] for message in body["messages"] if message["role"] == "user")
    told = [message["content"] for message in body["messages"] if message["role"] == "tool"]
    calls: list[tuple[str, dict[str, Any]]] = []
    if "get_weather" in names:
        calls = [("get_weather", {"city": "Oslo"})]
    elif "increment_counter" in names:
        number = int(re.findall(r"\d+", question)[0])
        calls = [
            ("increment_counter", {"amount": number + 1}),
            ("increment_counter", {"amount": 1}),
            ("get_counter_value", {}),
        ]
    if len(told) < len(calls):
        name, arguments = calls[len(told)]
        return {"text": "", "tool_calls": [(f"call_{len(told)}", name, json.dumps(arguments))]}
    return {"text": f"The answer: {told[-1]}" if told else "In Oslo: snow, -4 degrees."}
