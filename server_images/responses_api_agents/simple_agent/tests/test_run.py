"""`POST /run`: seed, loop, verify; what goes where, and what each stop condition leaves behind."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from starlette.responses import JSONResponse

IMAGE = "responses_api_agents/simple_agent"
MODEL = {"type": "responses_api_models", "name": "policy_model"}
TOOLS = [{"type": "function", "name": "get_weather", "parameters": {"type": "object"}, "strict": True}]


@pytest.fixture
def desk(start, fake_model):
    """An agent, `weather` as its resources server, and a model that follows a script."""

    async def begin(script, resources="weather", **settings: Any):
        model = await fake_model(script)
        tools = await start(f"resources_servers/{resources}", "wx_tools")
        neighbours = {"wx_tools": tools, "policy_model": model.url}
        block = {
            "model_server": MODEL,
            "resources_server": {"type": "resources_servers", "name": "wx_tools"},
            **settings,
        }
        return await start(IMAGE, "desk_agent", block, neighbours), model

    return begin


def row(**fields: Any) -> dict[str, Any]:
    return {"responses_create_params": {"input": "Weather?", "tools": TOOLS}, "city": "Oslo", **fields}


async def test_run_plays_tools_and_returns_the_verdict(desk, client, items):
    turns = [[items.call("get_weather", '{"city":"Oslo"}')], [items.message("Snow, -4.")]]
    url, model = await desk(lambda body, call: turns[call - 1])
    answer = await client.post(f"{url}/run", row(_ng_task_index=0, _ng_rollout_index=1, _ng_rollout_id="0-1"))
    assert answer.status == 200
    assert answer.cookies.keys() == {"SimpleAgent___desk_agent"}
    result = answer.json()
    assert result["reward"] == 1.0
    assert "error" not in result
    assert result["responses_create_params"]["input"] == "Weather?"
    assert [item["type"] for item in result["response"]["output"]] == [
        "function_call",
        "function_call_output",
        "message",
    ]
    output = json.loads(result["response"]["output"][1]["output"])
    assert output == {"city": "Oslo", "sky": "snow", "temperature_celsius": -4}
    assert result["response"]["usage"]["total_tokens"] == 30
    assert result["response"]["usage"]["output_tokens_details"] == {"reasoning_tokens": None}
    # The second call replays the first one's items, and the model's cookie.
    assert [item.get("type") for item in model.requests[1]["input"]] == [
        None,
        "function_call",
        "function_call_output",
    ]
    assert model.asked[1].session_id == model.asked[0].session_id


async def test_64_rollouts_at_once_keep_their_counts_apart(desk, client, items):
    def script(body: dict[str, Any], call: int) -> list[dict[str, Any]]:
        done = [item for item in body["input"] if item.get("type") == "function_call_output"]
        amount = int(body["input"][0]["content"])
        if len(done) == 0:
            return [items.call("increment_counter", json.dumps({"amount": amount}))]
        if len(done) == 1:
            return [items.call("get_counter_value", "{}")]
        return [items.message(done[1]["output"])]

    url, _ = await desk(script, resources="counter")

    async def rollout(amount: int) -> None:
        params = {"input": str(amount)}
        result = await client.post(
            f"{url}/run",
            {"responses_create_params": params, "initial_count": 1000, "expected_count": 1000 + amount},
        )
        verdict = result.json()
        assert (verdict["reward"], verdict["final_count"]) == (1.0, 1000 + amount)
        assert json.loads(verdict["response"]["output"][3]["output"]) == {"count": 1000 + amount}

    async with asyncio.TaskGroup() as group:
        for amount in range(64):
            group.create_task(rollout(amount))


async def test_nulls_in_params_count_as_absent(desk, client, items):
    url, model = await desk(lambda body, call: [items.message("Snow, -4.")])
    tool = {
        **TOOLS[0],
        "parameters": {"type": "object", "properties": {"day": None, "city": {"type": "string"}}},
    }
    params = {"input": "Weather?", "tools": [tool], "temperature": None}
    answer = await client.post(f"{url}/run", row(responses_create_params=params))
    assert answer.json()["reward"] == 1.0
    assert "temperature" not in model.requests[0]
    assert model.requests[0]["tools"][0]["parameters"]["properties"] == {"city": {"type": "string"}}


async def test_a_tool_error_is_tool_output(desk, client, items):
    calls = [
        items.call("get_wether", "{}", "c1"),
        items.call("get_weather", "{not json", "c2"),
        items.call("verify", "{}", "c3"),
        items.call("get_weather", "{}", "c4"),
    ]
    url, _ = await desk(lambda body, call: calls if call == 1 else [items.message("done")])
    output = (await client.post(f"{url}/run", row())).json()["response"]["output"]
    outputs = {item["call_id"]: item["output"] for item in output if item["type"] == "function_call_output"}
    assert outputs["c1"] == '{"detail":"Not Found"}'
    assert json.loads(outputs["c2"])["error"].startswith("Invalid tool call arguments: ")
    assert outputs["c3"] == '{"detail":"Not Found"}', "a model must not reach the verifier as a tool"
    assert json.loads(outputs["c4"])["detail"][0]["loc"] == ["body", "city"]


@pytest.mark.parametrize("name", ["verify", "ng-rollout/0-0/verify", "seed_session"])
async def test_the_model_does_not_reach_the_verifier_by_a_tool_call(desk, client, items, name):
    arguments = json.dumps({"responses_create_params": {}, "response": {}, "city": "Oslo"})
    turns = [[items.call(name, arguments)], [items.message("Snow, -4.")]]
    url, _ = await desk(lambda body, call: turns[call - 1])
    output = (await client.post(f"{url}/run", row())).json()["response"]["output"]
    assert output[1]["output"] == '{"detail":"Not Found"}'


async def test_arguments_that_are_no_json_are_answered_without_a_call(desk, client, items):
    turns = [[items.call("get_weather", broken) for broken in ("{", "", "[" * 50_000)], [items.message("x")]]
    url, _ = await desk(lambda body, call: turns[call - 1])
    output = (await client.post(f"{url}/run", row())).json()["response"]["output"]
    assert all("Invalid tool call arguments" in item["output"] for item in output[3:6])


async def test_what_an_upstream_words_differently_reaches_clients_in_one_form(desk, client):
    said = {"type": "message", "role": "assistant", "content": "Snow, -4.", "prompt_token_ids": None}
    url, _ = await desk(lambda body, call: [said])
    result = (await client.post(f"{url}/run", row())).json()
    assert result["reward"] == 1.0
    parts = [{"type": "output_text", "text": "Snow, -4.", "annotations": []}]
    assert result["response"]["output"] == [{"type": "message", "role": "assistant", "content": parts}]


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ([{"type": "reasoning", "id": "r", "summary": []}], "incomplete_reasoning"),
        ([], "empty_output"),
    ],
)
async def test_a_turn_without_message_is_incomplete(desk, client, output, reason):
    url, model = await desk(lambda body, call: output)
    response = (await client.post(f"{url}/run", row())).json()["response"]
    assert (response["status"], response["metadata"]["ng_termination_reason"]) == ("incomplete", reason)
    assert response["metadata"]["ng_termination_message"]
    assert len(model.requests) == 1


async def test_incomplete_details_stop_before_the_tools(desk, client, items):
    cut = {"output": [items.call("get_weather", "{}")], "incomplete_details": {"reason": "max_output_tokens"}}
    url, model = await desk(lambda body, call: cut)
    response = (await client.post(f"{url}/run", row())).json()["response"]
    assert [item["type"] for item in response["output"]] == ["function_call"]
    assert len(model.requests) == 1


async def test_max_steps_stops_after_the_tools(desk, client, items):
    url, model = await desk(lambda body, call: [items.call("get_weather", '{"city":"Oslo"}')], max_steps=2)
    response = (await client.post(f"{url}/run", row())).json()["response"]
    assert len(model.requests) == 2
    assert response["output"][-1]["type"] == "function_call_output"


async def test_an_upstream_refusal_is_a_500_with_the_inner_body(desk, client):
    refusal = JSONResponse({"error": {"message": "no"}}, status_code=400)
    url, _ = await desk(lambda body, call: refusal)
    answer = await client.post(f"{url}/run", row())
    assert answer.status == 500
    assert answer.json() == (
        "Hit an exception in SimpleAgent___desk_agent calling an inner server: "
        'b\'{"error":{"message":"no"}}\''
    )


async def test_skip_verification_gives_the_fixed_reward(desk, client, items):
    url, _ = await desk(
        lambda body, call: [items.message("hm")], skip_verification=True, skip_verification_reward=0.5
    )
    result = (await client.post(f"{url}/run", row())).json()
    assert (result["reward"], result["verification_skipped"], result["city"]) == (0.5, True, "Oslo")
    empty = await client.post(f"{url}/aggregate_metrics", {"verify_responses": [{"reward": 1.0}]})
    assert empty.json()["agent_metrics"] == {}


async def test_bad_rows_are_refused_with_their_place(desk, client, items):
    url, _ = await desk(lambda body, call: [items.message("hm")])
    missing = await client.post(f"{url}/run", {"city": "Oslo"})
    assert (missing.status, missing.json()["detail"][0]["loc"]) == (422, ["body", "responses_create_params"])
    inner = await client.post(f"{url}/run", {"responses_create_params": {"input": "x", "colour": 1}})
    assert inner.json()["detail"][0]["loc"] == ["body", "responses_create_params", "colour"]
    unknown = await client.post(f"{url}/v1/responses", {"input": "x", "colour": 1})
    assert unknown.status == 422
    assert unknown.json()["detail"][0]["loc"] == ["body", "colour"]


async def test_a_repeated_run_plays_once(desk, client, items):
    url, model = await desk(lambda body, call: [items.message("Snow, -4.")])
    first, second = [await client.post(f"{url}/run", row(), key="run-1") for _ in range(2)]
    assert first.body == second.body
    assert len(model.requests) == 1


async def test_responses_alone_hands_back_every_cookie(desk, client, items):
    turns = [[items.call("get_weather", '{"city":"Oslo"}')], [items.message("Snow.")]]
    url, model = await desk(lambda body, call: turns[call - 1])
    jar = {"Other___x": "1"}
    answer = await client.post(
        f"{url}/ng-rollout/0-7/v1/responses", {"input": "Weather?", "tools": TOOLS}, cookies=jar
    )
    assert answer.cookies.keys() == {
        "Other___x",
        "Weather___wx_tools",
        "ScriptedModel___policy_model",
        "SimpleAgent___desk_agent",
    }
    assert set(model.paths) == {"/ng-rollout/0-7/v1/responses"}


async def test_aggregation_is_the_resources_servers(desk, client, items):
    url, _ = await desk(lambda body, call: [items.message("hm")])
    rows = [{"_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 1.0}]
    answer = (await client.post(f"{url}/aggregate_metrics", {"verify_responses": rows})).json()
    assert answer["key_metrics"] == {"mean/reward": 1.0}
    assert answer["group_level_metrics"][0]["rollout_infos"][0]["rollout_id"] == "0:0"


async def test_whatever_a_rollouts_id_holds_goes_before_the_model_calls(desk, client, items):
    url, model = await desk([[items.message("Done.")]])
    answer = await client.post(f"{url}/ng-rollout/a%3Fb%23c%2520d/v1/responses", {"input": "Weather?"})
    assert answer.status == 200, answer.body
    assert model.paths == ["/ng-rollout/a?b#c%20d/v1/responses"]


async def test_a_tool_whose_name_no_url_can_hold_is_one_that_is_not_there(desk, client, items):
    turns = [[items.call("get_\ud83d", "{}")], [items.message("Done.")]]
    url, model = await desk(turns)
    assert (await client.post(f"{url}/run", row())).status == 200
    (output,) = [item for item in model.requests[1]["input"] if item.get("type") == "function_call_output"]
    assert "Not Found" in output["output"]
