"""CONTRACT 15.2, 6.2 step 4, 6.4 and 7.6: what agents tell of a rollout while observability is on."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from fakes.exchanges import (
    PARAMS,
    agent_close,
    agent_seed,
    call,
    episode,
    message,
    post,
    reply,
    row,
)

from gymctl.contract.observations import Observations, Trajectory
from gymctl.servers.inprocess import serving_folder

IMAGES = Path(__file__).resolve().parents[3] / "server_images"
MODEL = {"type": "responses_api_models", "name": "policy_model"}
TOOLS = {"type": "resources_servers", "name": "weather"}
ON = {"is_observed": True}
Begin = Callable[..., Awaitable[str]]


@pytest.fixture
async def agent(model_url: str, resources_url: str) -> AsyncIterator[Begin]:
    """`await agent("simple_agent")`: the URL of an observed agent."""
    async with AsyncExitStack() as stack:

        async def begin(implementation: str = "simple_agent", told: dict[str, Any] = ON, **more: Any) -> str:
            block = {"model_server": MODEL, "resources_server": TOOLS, **more}
            neighbours = {"policy_model": model_url, "weather": resources_url}
            folder = IMAGES / "responses_api_agents" / implementation
            return await stack.enter_async_context(
                serving_folder(folder, "desk", block, neighbours, told=told)
            )

        yield begin


async def test_6_2_step_4_a_run_has_its_trajectory(http, agent, upstream):
    url = await agent()
    upstream.plan(reply(call()), reply(message(), id="resp_2"))
    given = row(_ng_task_index=3, _ng_rollout_index=1, _ng_attempt_index=2, task_id="oslo")
    told = await post(http, f"{url}/run", given)
    made = Trajectory.model_validate(told.json["ng_trajectory"])
    assert (made.task_id, made.rollout_id) == ("oslo", "3-1-a2")
    [root] = made.invocations
    assert (root.invocation_id, root.status) == ("root", "completed")
    assert [each.response_id for each in root.model_calls] == ["resp_1", "resp_2"]
    assert [item["type"] for item in root.conversation] == [
        *("message", "function_call", "function_call_output", "message")
    ]
    first, second = made.turns
    assert [item["type"] for item in first.answer] == ["function_call"]
    assert [item["type"] for item in second.question] == ["function_call_output"]
    assert (first.step_count, second.step_count) == (0, 1)
    [tool] = made.tool_calls
    assert (tool.tool_call_id, tool.tool_name, tool.status) == ("call_1", "get_weather", "completed")
    assert tool.output == second.question[0]["output"]
    assert [gap.code for gap in made.gaps] == ["resolution_unavailable"]


@pytest.mark.parametrize("skips", [True, False])
async def test_6_2_step_4_other_agents_have_one_too(http, agent, upstream, skips):
    url = await agent("tool_simulation_agent", skip_verification=skips)
    upstream.plan(reply(call()))
    made = Trajectory.model_validate((await post(http, f"{url}/run", row())).json["ng_trajectory"])
    assert [turn.turn_no for turn in made.turns] == [1]
    assert made.invocations[0].status == "completed"


async def test_6_2_step_4_calls_name_the_rollout_even_for_a_client_that_sends_no_header(
    http, agent, upstream
):
    url = await agent()
    made = (await post(http, f"{url}/run", row(_ng_rollout_id="mine"))).json["ng_trajectory"]
    assert made["rollout_id"] == "mine"


async def test_15_2_off_means_that_nothing_is_added(http, agent, upstream):
    url = await agent(told={"is_observed": False})
    assert "ng_trajectory" not in (await post(http, f"{url}/run", row())).json
    name = f"agent-session-{uuid.uuid4().hex}"
    jar = (await post(http, f"{url}/v1/agent_sessions", agent_seed(name))).cookies
    await post(http, f"{url}/v1/responses", PARAMS, jar)
    closed = await post(http, f"{url}/v1/agent_sessions/close", agent_close(name), jar)
    assert closed.json["agent_observations"] is None


async def test_6_4_each_activation_is_a_record_of_the_receipt(http, agent, upstream, resources_url):
    url = await agent()
    name = f"agent-session-{uuid.uuid4().hex}"
    seeded = await post(http, f"{url}/v1/agent_sessions", agent_seed(name, resources_url))
    jar = seeded.cookies
    upstream.plan(reply(call()), reply(message()), reply(message(), id="resp_3"))
    for _ in range(2):
        told = await post(http, f"{url}/v1/responses", PARAMS, jar)
        jar = {**jar, **told.cookies}
    upstream.plan(reply(call()))
    assert (await post(http, f"{url}/v1/responses", {"input": 7}, jar)).status == 422
    closed = await post(http, f"{url}/v1/agent_sessions/close", agent_close(name), jar)
    bundle = Observations.model_validate(closed.json["agent_observations"])
    assert bundle.source == "simple_agent"
    assert [each.invocation_id for each in bundle.invocations] == ["root", "activation-2"]
    assert [record.kind for record in bundle.records] == ["agent_invocation", "tool_call", "agent_invocation"]
    again = await post(http, f"{url}/v1/agent_sessions/close", agent_close(name), jar)
    assert again.json == closed.json


async def test_6_4_an_activation_that_failed_is_told_as_such(http, agent, upstream):
    url = await agent()
    name = f"agent-session-{uuid.uuid4().hex}"
    jar = (await post(http, f"{url}/v1/agent_sessions", agent_seed(name))).cookies
    upstream.plan(reply(call()))
    assert (await post(http, f"{url}/v1/responses", PARAMS, jar)).status == 500, "no tools were granted"
    closed = await post(http, f"{url}/v1/agent_sessions/close", agent_close(name), jar)
    [root] = Observations.model_validate(closed.json["agent_observations"]).invocations
    assert (root.status, root.error_type, len(root.model_calls)) == ("failed", "ValueError", 1)


async def test_7_6_step_8_the_episodes_result_has_the_agents_observations(
    http, agent, upstream, resources_url
):
    folder = IMAGES / "environment_servers" / "single_agent_turn"
    block = {
        "agent_server": {"type": "responses_api_agents", "name": "desk"},
        "resources_server": TOOLS,
        "cleanup_timeout_seconds": 10,
    }
    neighbours = {"desk": await agent(), "weather": resources_url}
    async with serving_folder(folder, "turns", block, neighbours) as url:
        told = await post(http, f"{url}/run", episode(f"observed-{uuid.uuid4().hex}"))
    assert told.json["failure"] is None
    bundle = Observations.model_validate(told.json["result"]["ng_agent_observations"])
    assert [each.invocation_id for each in bundle.invocations] == ["root"]
