"""openai_agents_agent in the environment that the process runtime builds for it: the library's own loop, with
our model server and our tools, and nothing of a conversation lost on its way through."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from fakes.own_process import own_process
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from gymctl.config.load import load
from gymctl.config.sources import Selection
from gymctl.runtime.envs import ensure
from gymctl.servers.inprocess import make_part, serving, serving_folder
from gymctl.transport import Transport

REPO = Path(__file__).resolve().parents[3]
IMAGES = REPO / "server_images"
FOLDER = IMAGES / "responses_api_agents" / "openai_agents_agent"
TOKENS = {"prompt_token_ids": [1, 2], "generation_token_ids": [3], "generation_log_probs": [-0.5]}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS = [{"type": "function", "name": "get_weather", "parameters": SCHEMA, "strict": True}]
PARAMS = {"input": "Weather?", "tools": TOOLS, "temperature": 0.5, "instructions": "Be brief."}
ROW = {"responses_create_params": PARAMS, "city": "Oslo"}


class Silent:
    def step(self, name: str, text: str) -> None: ...
    def note(self, text: str) -> None: ...
    def progress(self, text: str) -> None: ...


def call(name: str, arguments: str, number: int) -> dict[str, Any]:
    call_id = f"c{number}"
    return {"type": "function_call", "id": "f", "call_id": call_id, "name": name, "arguments": arguments}


THOUGHT = {
    "type": "reasoning",
    "id": "r1",
    "summary": [],
    "content": [{"type": "reasoning_text", "text": "Oslo is where?"}],
}
ANSWER = {
    "type": "message",
    "id": "m1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Snow, -4.", "annotations": []}],
    **TOKENS,
}
FIRST = [THOUGHT, call("get_weather", '{"city":"Oslo"}', 1), {**call("get_weather", "{", 2), **TOKENS}]
SECOND = [{**call("get_wether", "{}", 3), **TOKENS}]


class Model:
    """Follows a script; gives a cookie of its own with every answer."""

    def __init__(self) -> None:
        self.script: list[Any] = [FIRST, SECOND, [ANSWER]]
        self.paths: list[str] = []
        self.cookies: list[dict[str, str]] = []
        self.requests: list[dict[str, Any]] = []

    async def answer(self, request: Request) -> JSONResponse:
        self.requests.append(await request.json())
        self.paths.append(request.url.path)
        self.cookies.append(dict(request.cookies))
        output = self.script[len(self.requests) - 1]
        if isinstance(output, int):
            return JSONResponse({"error": {"message": "no"}}, status_code=output)
        usage = {
            "input_tokens": 10,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": None},
            "total_tokens": 15,
        }
        number = len(self.requests)
        answer = JSONResponse({"id": f"r{number}", "object": "response", "output": output, "usage": usage})
        answer.set_cookie("Fake___policy_model", f"m{number}", path="/")
        return answer


@pytest.fixture(scope="module")
def python() -> Path:
    """Of the environment with the library in it."""
    config = load(
        Selection(
            resources_server=("weather",), model_type="scripted_model", agent_type="openai_agents_agent"
        )
    )
    (name,) = [
        name for name, block in config.servers.items() if block.implementation == "openai_agents_agent"
    ]
    return asyncio.run(ensure(config, Silent())).pythons[name]


@pytest.fixture
async def tools() -> AsyncIterator[str]:
    async with serving_folder(IMAGES / "resources_servers" / "weather", "wx_tools") as url:
        yield url


@pytest.fixture
async def model() -> AsyncIterator[tuple[Model, str]]:
    made = Model()
    app = Starlette(routes=[Route("/{path:path}", made.answer, methods=["POST"])])
    async with serving(app) as url:
        yield made, url


@pytest.fixture
async def agent(
    python: Path, free_port: int, tmp_path: Path, transport: Transport, tools: str, model: tuple[Model, str]
) -> AsyncIterator[str]:
    settings = {
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
        "resources_server": {"type": "resources_servers", "name": "wx_tools"},
        "max_turns": 3,
    }
    neighbours = {"wx_tools": tools, "policy_model": model[1]}
    part = make_part("desk_agent", "responses_api_agents", "openai_agents_agent", settings, neighbours)
    part = part.model_copy(update={"bind_port": free_port})
    async with own_process(part, FOLDER, python, tmp_path / "part.json", transport) as address:
        yield address


async def test_the_library_plays_a_rollout_and_a_session(
    agent: str, tools: str, model: tuple[Model, str], transport: Transport
) -> None:
    """One server, whose start takes seconds, and what it does one after the other."""
    made, _ = model

    async def post(path: str, body: Any, **more: Any) -> Any:
        return await transport.call("POST", f"{agent}{path}", orjson.dumps(body), **more)

    # A rollout: malformed and unknown tools are answers to the model, and nothing of an item is lost.
    result = (await post("/run", ROW)).json()
    assert result["reward"] == 1.0
    response = result["response"]
    output = response["output"]
    assert [item["type"] for item in output] == [
        "reasoning",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
        "function_call",
        "function_call_output",
        "message",
    ]
    assert [item for item in output if item["type"] != "function_call_output"] == [*FIRST, *SECOND, ANSWER]
    assert orjson.loads(output[3]["output"])["sky"] == "snow"
    assert "Invalid tool call arguments" in output[4]["output"]
    assert "get_wether" in output[6]["output"]
    assert response["metadata"]["ng_malformed_tool_calls"] == "1"
    assert response["usage"]["total_tokens"] == 45

    # What the row asks for reaches the model as it stands there, and items are replayed unchanged.
    assert [request["temperature"] for request in made.requests] == [0.5] * 3
    assert all(
        request["tools"] == TOOLS and request["instructions"] == "Be brief." for request in made.requests
    )
    replayed = [item for item in made.requests[2]["input"] if item.get("type") != "function_call_output"]
    assert replayed[1:] == [*FIRST, *SECOND]
    assert [cookies.get("Fake___policy_model") for cookies in made.cookies] == [None, "m1", "m2"]

    # A turn of a session: granted tools, the rollout's prefix, and an end after `max_turns`.
    made.requests.clear()
    made.paths.clear()
    made.script = [FIRST] * 3
    seed = {
        "agent_session_id": "s1",
        "episode_id": {"rollout_id": "0-0"},
        "task_id": {"taskset": "w", "task_id": "1"},
        "tool_accesses": [{"kind": "direct_http", "name": "w.direct_http", "base_url": tools}],
    }
    opened = await post("/v1/agent_sessions", seed)
    turn = await post("/ng-rollout/0-0/v1/responses", PARAMS, cookies=opened.cookies)
    assert set(made.paths) == {"/ng-rollout/0-0/v1/responses"}
    assert turn.json()["output"][-1]["type"] == "function_call_output"
    assert len(made.requests) == 3
    close = {"agent_session_id": "s1", "episode_id": {"rollout_id": "0-0"}}
    receipt = (await post("/v1/agent_sessions/close", close, cookies=opened.cookies)).json()
    assert receipt["resources_cookies"].keys() == {"Weather___wx_tools"}

    # A model server that refuses fails the rollout with its words.
    made.requests.clear()
    made.script = [400]
    refused = await post("/run", ROW)
    assert (refused.status, len(made.requests)) == (500, 1)
    assert refused.json() == (
        "Hit an exception in OpenAIAgentsAgent___desk_agent calling an inner server: "
        'b\'{"error":{"message":"no"}}\''
    )
