"""Native episodes over real servers: a scored result, and every failure as HTTP 200 with its stage."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from starlette.responses import JSONResponse

IMAGE = "environment_servers/single_agent_turn"
REFERENCES = {
    "agent_server": {"type": "responses_api_agents", "name": "desk_agent"},
    "resources_server": {"type": "resources_servers", "name": "tools"},
    "resources_tool_transports": ["direct_http"],
    "cleanup_timeout_seconds": 5,
}


@pytest.fixture
def desk(start, fake_model):
    async def begin(script, resources="counter", agent: dict[str, Any] | None = None, **settings: Any):
        model = await fake_model(script)
        tools = await start(f"resources_servers/{resources}", "tools")
        reference = {"model_server": {"type": "responses_api_models", "name": "policy_model"}}
        agent_url = await start(
            "responses_api_agents/simple_agent",
            "desk_agent",
            {**reference, **(agent or {})},
            {"policy_model": model.url},
        )
        neighbours = {"desk_agent": agent_url, "tools": tools}
        url = await start(IMAGE, "desk_environment_server", {**REFERENCES, **settings}, neighbours)
        return url, model

    return begin


def episode(rollout: str = "0-1", attempt: int = 0, text: str = "go", **data: Any) -> dict[str, Any]:
    return {
        "episode_id": {"rollout_id": rollout, "attempt": attempt},
        "task": {
            "task_id": {"taskset": "w", "task_id": "18"},
            "task_input": {"responses_create_params": {"input": text}, "task_data": data},
        },
    }


async def test_an_episode_is_scored_and_sessions_do_not_mix(desk, client, items):
    def script(body: dict[str, Any], call: int) -> list[dict[str, Any]]:
        done = [item for item in body["input"] if item.get("type") == "function_call_output"]
        if not done:
            return [items.call("increment_counter", json.dumps({"amount": int(body["input"][0]["content"])}))]
        return [items.message("done")]

    url, model = await desk(script)

    async def play(number: int) -> None:
        asked = episode(f"{number}-0", text=str(number), initial_count=10, expected_count=10 + number)
        answer = await client.post(f"{url}/run", asked)
        assert answer.status == 200
        body = answer.json()
        assert body["failure"] is None
        assert body["episode_id"] == {"rollout_id": f"{number}-0", "attempt": 0}
        assert body["task_id"] == {"taskset": "w", "task_id": "18"}
        result = body["result"]
        assert (result["reward"], result["final_count"]) == (1.0, 10 + number)
        assert result["ng_agent_observations"] is None
        assert len(result["response"]["output"]) == 3

    async with asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(play(number))
    assert set(model.paths) == {f"/ng-rollout/{number}-0/v1/responses" for number in range(20)}


async def test_a_later_attempt_has_its_own_capture_key(desk, client, items):
    url, model = await desk(lambda body, call: [items.message("x")])
    await client.post(f"{url}/run", episode(attempt=2, expected_count=0))
    assert model.paths == ["/ng-rollout/0-1-a2/v1/responses"]


async def test_a_failing_agent_is_an_answer_with_status_200(desk, client):
    url, _ = await desk(lambda body, call: JSONResponse({"error": "no"}, status_code=500))
    answer = await client.post(f"{url}/run", episode(expected_count=0))
    assert answer.status == 200
    body = answer.json()
    assert body["result"] is None
    failure = body["failure"]
    assert failure.keys() == {"failure_reason", "terminal", "stage", "partial_response"}
    assert (failure["stage"], failure["terminal"], failure["partial_response"]) == ("agent", False, None)
    assert failure["failure_reason"].startswith(
        "500, message='Internal Server Error', url='http://127.0.0.1:"
    )
    assert failure["failure_reason"].endswith("/ng-rollout/0-1/v1/responses'")


async def test_a_failing_verifier_keeps_the_response(desk, client, items):
    url, _ = await desk(lambda body, call: [items.message("x")])
    failure = (await client.post(f"{url}/run", episode())).json()["failure"]  # no expected_count: 422
    assert (failure["stage"], failure["terminal"]) == ("verification", True)
    assert failure["partial_response"]["output"][0]["type"] == "message"


async def test_a_refused_seed_fails_at_its_stage(desk, client, items):
    url, _ = await desk(lambda body, call: [items.message("x")])
    asked = episode(initial_count="many", expected_count=1)
    failure = (await client.post(f"{url}/run", asked)).json()["failure"]
    assert (failure["stage"], failure["terminal"]) == ("seed", True)


async def test_mcp_without_an_offer_is_a_terminal_seed_failure(desk, client, items):
    url, _ = await desk(lambda body, call: [items.message("x")], resources_tool_transports=["mcp"])
    failure = (await client.post(f"{url}/run", episode(expected_count=0))).json()["failure"]
    assert (failure["stage"], failure["terminal"]) == ("seed", True)


async def test_waiting_for_a_place_times_out_with_status_200(desk, client, items):
    held, asked = asyncio.Event(), asyncio.Event()

    def script(body: dict[str, Any], call: int) -> Any:
        asked.set()
        return _Held(held, items.message("x"))

    url, _ = await desk(script, max_concurrent_episodes=1, queue_timeout_seconds=0.2)
    first = asyncio.create_task(client.post(f"{url}/run", episode("1-0", expected_count=0)))
    await asked.wait()
    second = await client.post(f"{url}/run", episode("2-0", expected_count=0))
    assert second.status == 200
    assert second.json()["failure"] == {
        "failure_reason": "Episode admission timed out",
        "terminal": False,
        "stage": "admission",
        "partial_response": None,
    }
    held.set()
    assert (await first).json()["result"]["reward"] == 1.0


async def test_the_episode_deadline_is_a_failure_without_stage(desk, client, items):
    url, _ = await desk(
        lambda body, call: _Held(asyncio.Event(), items.message("x")), default_episode_timeout_seconds=0.3
    )
    answer = await client.post(f"{url}/run", episode(expected_count=0))
    assert answer.json()["failure"] == {
        "failure_reason": "Episode timed out",
        "terminal": False,
        "partial_response": None,
    }


async def test_malformed_episodes_are_422(desk, client, items):
    url, _ = await desk(lambda body, call: [items.message("x")])
    bad_id = await client.post(f"{url}/run", episode("0-1-a2"))
    assert bad_id.status == 422
    detail = bad_id.json()["detail"][0]
    assert (detail["type"], detail["loc"]) == ("value_error", ["body", "episode_id", "rollout_id"])
    assert detail["input"] == "0-1-a2"

    extra = await client.post(f"{url}/run", {**episode(), "colour": 1})
    assert (extra.status, extra.json()["detail"][0]["type"]) == (422, "extra_forbidden")

    unknown = episode()
    unknown["task"]["task_input"]["responses_create_params"]["colour"] = 1
    refused = await client.post(f"{url}/run", unknown)
    place = ["body", "task", "task_input", "responses_create_params", "colour"]
    assert (refused.status, refused.json()["detail"][0]["loc"]) == (422, place)

    conflict = episode(expected_count=1)
    conflict["task"]["task_input"]["expected_count"] = 2
    assert (await client.post(f"{url}/run", conflict)).status == 422


async def test_loose_fields_count_as_task_data(desk, client, items):
    url, _ = await desk(lambda body, call: [items.message("x")])
    asked = episode(initial_count=4)
    asked["task"]["task_input"]["expected_count"] = 4
    assert (await client.post(f"{url}/run", asked)).json()["result"]["reward"] == 1.0


async def test_aggregation_is_the_resources_servers(desk, client, items):
    url, _ = await desk(lambda body, call: [items.message("x")])
    answer = await client.post(f"{url}/aggregate_metrics", {"verify_responses": []})
    assert answer.json() == {
        "group_level_metrics": [],
        "agent_metrics": {},
        "key_metrics": {},
        "perf_summary": None,
        "repeat_level_metrics": [],
    }


async def test_places_without_a_queue_limit_are_an_error_at_start(start):
    from gymctl.errors import ConfigError

    with pytest.raises(ConfigError, match="queue_timeout_seconds"):
        await start(IMAGE, "e", {**REFERENCES, "max_concurrent_episodes": 1})


class _Held(JSONResponse):
    """An answer that is sent when the event is set."""

    def __init__(self, event: asyncio.Event, message: dict[str, Any]) -> None:
        super().__init__({"id": "resp", "object": "response", "output": [message]})
        self._event = event

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._event.wait()
        await super().__call__(scope, receive, send)


async def test_episodes_wait_for_a_place_at_a_full_resources_server(start, fake_model, client, items):
    model = await fake_model(lambda body, call: [items.message("x")])
    tools = await start("resources_servers/counter", "tools", {"max_sessions": 1})
    reference = {"model_server": {"type": "responses_api_models", "name": "policy_model"}}
    agent = await start(
        "responses_api_agents/simple_agent", "desk_agent", reference, {"policy_model": model.url}
    )
    url = await start(IMAGE, "turns", REFERENCES, {"desk_agent": agent, "tools": tools})
    blocker = {"resources_session_id": "b", "episode_id": {"rollout_id": "9-9"}}
    seed = {**blocker, "task_id": {"taskset": "w", "task_id": "1"}, "task_data": {}}
    assert (await client.post(f"{tools}/seed_session", seed)).status == 200
    waiting = [
        asyncio.create_task(client.post(f"{url}/run", episode(f"{number}-0", expected_count=0)))
        for number in range(3)
    ]
    await asyncio.sleep(0.3)
    assert not any(task.done() for task in waiting)
    await client.post(f"{tools}/close_session", blocker)
    for answer in await asyncio.gather(*waiting):
        assert answer.json()["result"]["reward"] == 1.0


async def test_mcp_tools_are_granted_to_the_agent_with_the_sessions_token(start, client, items):
    """The agent here is a stand-in that uses its grant with the official MCP client."""
    import httpx
    from mcp import ClientSession
    from mcp.client.streamable_http import streamable_http_client
    from starlette.applications import Starlette
    from starlette.routing import Route

    from gymctl.servers.inprocess import serving

    granted: list[Any] = []

    async def seed(request: Any) -> JSONResponse:
        granted.extend((await request.json())["tool_accesses"])
        return JSONResponse({"agent_session_id": "s"})

    async def respond(request: Any) -> JSONResponse:
        connection = granted[0]["connection"]
        async with (
            httpx.AsyncClient(headers=connection["headers"], trust_env=False) as http,
            streamable_http_client(connection["url"], http_client=http) as (incoming, outgoing, _),
            ClientSession(incoming, outgoing) as session,
        ):
            await session.initialize()
            await session.call_tool("increment_counter", {"amount": 2})
        name = f"mcp__{granted[0]['name']}__increment_counter"
        return JSONResponse({"id": "r", "object": "response", "output": [items.call(name, '{"amount": 2}')]})

    async def close(request: Any) -> JSONResponse:
        receipt = {"agent_session_id": "s", "agent_observations": None, "resources_cookies": None}
        return JSONResponse(receipt)

    agent = Starlette(
        routes=[
            Route("/v1/agent_sessions", seed, methods=["POST"]),
            Route("/v1/agent_sessions/close", close, methods=["POST"]),
            Route("/{path:path}", respond, methods=["POST"]),
        ]
    )
    tools = await start("resources_servers/counter", "tools", {"expose_tools_over_mcp": True})
    async with serving(agent) as agent_url:
        settings = {**REFERENCES, "resources_tool_transports": ["mcp"]}
        url = await start(IMAGE, "turns", settings, {"desk_agent": agent_url, "tools": tools})
        answer = await client.post(f"{url}/run", episode(initial_count=3, expected_count=5))
    grant = granted[0]
    assert (grant["kind"], grant["name"], grant["required"]) == ("mcp", "tools", True)
    assert grant["connection"]["transport"] == "streamable_http"
    assert grant["connection"]["url"] == f"{tools}/mcp"
    body = answer.json()
    assert body["failure"] is None, body["failure"]
    assert (body["result"]["reward"], body["result"]["final_count"]) == (1.0, 5)
    assert body["result"]["response"]["output"][0]["name"] == "mcp__tools__increment_counter"
