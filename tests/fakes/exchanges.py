"""What the contract tests of agents and environments send and plan: rows, episodes, seeds, model answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import aiohttp
from fakes.contract import cookies_of, sending
from fakes.openai_upstream import Reply

TOOL = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}, "strict": True}
PARAMS = {"input": "Weather?", "tools": [TOOL]}
OSLO = '{"city":"Oslo"}'


@dataclass(frozen=True)
class Told:
    """One answer."""

    status: int
    body: bytes
    json: Any
    cookies: dict[str, str]

    @property
    def detail(self) -> Any:
        return self.json["detail"]


async def post(
    http: aiohttp.ClientSession, url: str, body: Any, jar: dict[str, str] | None = None, **headers: str
) -> Told:
    async with http.post(url, json=body, headers={**sending(jar or {}), **headers}) as answer:
        return Told(answer.status, await answer.read(), await answer.json(), cookies_of(answer))


def call(name: str = "get_weather", arguments: str = OSLO, call_id: str = "call_1") -> dict[str, Any]:
    return {
        "type": "function_call",
        "id": "fc_1",
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
        "status": "completed",
    }


def message(text: str = "Snow, -4.") -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}


def reply(*output: dict[str, Any], **more: Any) -> Reply:
    """A model's answer; 10 tokens in, 5 out."""
    usage = {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": None},
        "total_tokens": 15,
    }
    body = {
        "id": "resp_1",
        "created_at": 1790000001.0,
        "model": "tiny-1",
        "object": "response",
        "output": list(output),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "status": "completed",
        "usage": usage,
    }
    return Reply(body={**body, **more})


def kinds(response: dict[str, Any]) -> list[str]:
    return [item["type"] for item in response["output"]]


def row(**fields: Any) -> dict[str, Any]:
    return {"responses_create_params": PARAMS, "city": "Oslo", **fields}


def episode(rollout: str, attempt: int = 0, **task_input: Any) -> dict[str, Any]:
    given = {"responses_create_params": PARAMS, "task_data": {"city": "Oslo"}, **task_input}
    return {
        "episode_id": {"rollout_id": rollout, "attempt": attempt},
        "task": {"task_id": {"taskset": "weather", "task_id": "17"}, "task_input": given},
    }


def agent_seed(session_id: str, tools: str | None = None, **more: Any) -> dict[str, Any]:
    access = {"kind": "direct_http", "name": "w.direct_http", "required": True, "base_url": tools}
    return {
        "agent_session_id": session_id,
        "episode_id": {"rollout_id": "0-0"},
        "task_id": {"taskset": "w", "task_id": "17"},
        "tool_accesses": [] if tools is None else [access],
        **more,
    }


def agent_close(session_id: str, rollout: str = "0-0") -> dict[str, Any]:
    return {"agent_session_id": session_id, "episode_id": {"rollout_id": rollout}}
