"""Flat rows become episodes: where identity comes from, what is refused, and both forms of an answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from gymctl.servers.inprocess import serving

IMAGE = "environment_servers/single_agent_turn_legacy"
BLOCK = {
    "agent_server": {"type": "responses_api_agents", "name": "desk_agent"},
    "resources_server": {"type": "resources_servers", "name": "tools"},
    "resources_tool_transports": ["direct_http"],
    "cleanup_timeout_seconds": 5,
}


@pytest.fixture
def desk(start, fake_model):
    async def begin(script, **settings: Any):
        model = await fake_model(script)
        tools = await start("resources_servers/counter", "tools")
        reference = {"model_server": {"type": "responses_api_models", "name": "policy_model"}}
        agent = await start(
            "responses_api_agents/simple_agent", "desk_agent", reference, {"policy_model": model.url}
        )
        neighbours = {"desk_agent": agent, "tools": tools}
        return await start(IMAGE, "desk_environment_server", {**BLOCK, **settings}, neighbours), model

    return begin


def row(**fields: Any) -> dict[str, Any]:
    return {
        "responses_create_params": {"input": "go"},
        "_ng_task_index": 0,
        "_ng_rollout_index": 1,
        "expected_count": 3,
        **fields,
    }


async def test_a_row_is_played_and_answered_flat(desk, client, items):
    turns = [[items.call("increment_counter", '{"amount":3}')], [items.message("done")]]
    url, model = await desk(lambda body, call: turns[call - 1])
    given = row(agent_ref={"name": "desk_agent"}, task_source="tools", skills_ref={"hash": "x"})
    answer = await client.post(f"{url}/run", given)
    assert answer.status == 200
    record = answer.json()
    assert (record["reward"], record["final_count"]) == (1.0, 3)
    assert record["agent_ref"] == {"name": "desk_agent"}
    assert "ng_agent_observations" not in record
    assert not any(key.startswith("_ng_") for key in record)
    assert set(model.paths) == {"/ng-rollout/0-1/v1/responses"}


async def test_a_native_episode_is_answered_with_a_flat_record(desk, client, items):
    url, _ = await desk(lambda body, call: [items.message("x")])
    task = {
        "task_id": {"taskset": "w", "task_id": "18"},
        "task_input": {"responses_create_params": {"input": "go"}, "expected_count": 0},
    }
    answer = await client.post(f"{url}/run", {"episode_id": {"rollout_id": "0-1"}, "task": task})
    assert (answer.json()["reward"], answer.json()["agent_ref"]) == (1.0, {"name": "desk_agent"})
    answer = await client.post(f"{url}/run", {"episode_id": {"rollout_id": "0-1-a1"}, "task": task})
    assert answer.status == 422


@pytest.mark.parametrize(
    ("identity", "path"),
    [
        ({"_ng_rollout_id": "mine"}, "/ng-rollout/mine/v1/responses"),
        ({"_ng_attempt_index": 2}, "/ng-rollout/0-1-a2/v1/responses"),
    ],
)
async def test_the_rollout_id_is_the_rows_own_or_made_of_its_indices(desk, client, items, identity, path):
    url, model = await desk(lambda body, call: [items.message("x")])
    await client.post(f"{url}/run", row(**identity))
    assert model.paths == [path]


async def test_a_failed_episode_is_a_flat_record_with_status_200(desk, client):
    url, _ = await desk(lambda body, call: JSONResponse({"error": "no"}, status_code=500))
    answer = await client.post(f"{url}/run", row())
    assert answer.status == 200
    record = answer.json()
    message = record.pop("_ng_failure_message")
    assert message.startswith("500, message='Internal Server Error', url='http://127.0.0.1:")
    assert record == {
        "_ng_failure_class": "environment_server_failed",
        "_ng_failure_terminal": False,
        "_ng_failure_stage": "agent",
        "agent_ref": {"name": "desk_agent"},
    }


async def test_a_failing_verifier_keeps_the_response(desk, client, items):
    url, _ = await desk(lambda body, call: [items.message("x")])
    record = (await client.post(f"{url}/run", row(expected_count="many"))).json()
    assert (record["_ng_failure_stage"], record["_ng_failure_terminal"]) == ("verification", True)
    assert record["_ng_failure_partial_response"]["output"][0]["type"] == "message"


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"agent_ref": {"name": "zz"}}, "agent_ref 'zz' does not match configured agent server 'desk_agent'"),
        ({"task_source": "zz"}, "task_source 'zz' does not match"),
        ({"_ng_attempt_index": -1}, "_ng_attempt_index must be a non-negative integer, got -1"),
        ({"_ng_attempt_index": True}, "_ng_attempt_index must be a non-negative integer, got True"),
        ({"_ng_rollout_index": None}, "Row needs _ng_rollout_id"),
    ],
)
async def test_a_row_that_is_not_ours_is_refused(desk, client, items, wrong, text):
    url, model = await desk(lambda body, call: [items.message("x")])
    answer = await client.post(f"{url}/run", row(**wrong))
    assert answer.status == 500
    assert answer.json().startswith("ValueError(")
    assert text in answer.json()
    assert model.requests == []


async def test_malformed_params_are_422_at_their_place_in_the_row(desk, client, items):
    url, _ = await desk(lambda body, call: [items.message("x")])
    missing = await client.post(f"{url}/run", {"_ng_task_index": 0, "_ng_rollout_index": 0})
    assert missing.json()["detail"][0]["loc"] == ["body", "responses_create_params"]
    unknown = await client.post(f"{url}/run", row(responses_create_params={"input": "x", "colour": 1}))
    assert (unknown.status, unknown.json()["detail"][0]["loc"][-1]) == (422, "colour")


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, ("tools", "0")),
        ({"task_id": "", "problem_id": 7, "instance_id": "i"}, ("tools", "7")),
        ({"task_source": "desk_environment_server", "instance_id": "i"}, ("desk_environment_server", "i")),
    ],
)
async def test_task_and_taskset_are_named_by_the_row(start, client, fields, wanted):
    """Seen by a resources server that refuses every seed."""
    bodies = []

    async def refuse(request):
        bodies.append(await request.json())
        return JSONResponse({"detail": "no"}, status_code=400)

    async with serving(Starlette(routes=[Route("/{path:path}", refuse, methods=["POST"])])) as tools:
        url = await start(IMAGE, "desk_environment_server", BLOCK, {"desk_agent": tools, "tools": tools})
        record = (await client.post(f"{url}/run", row(**fields))).json()
    assert (record["_ng_failure_stage"], record["_ng_failure_terminal"]) == ("seed", True)
    seed = bodies[0]
    assert (seed["task_id"]["taskset"], seed["task_id"]["task_id"]) == wanted
    assert "responses_create_params" not in seed["task_data"]
    assert not any(key.startswith("_ng_") for key in seed["task_data"])
    assert json.dumps(seed["task_data"]["expected_count"]) == "3"
