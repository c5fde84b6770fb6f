"""CONTRACT 6.1 and 6.2: agents, and the turns of simple_agent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fakes.contract import AGENT_BLOCK
from fakes.exchanges import PARAMS, agent_seed, call, kinds, message, post, reply, row
from fakes.openai_upstream import Reply

from gymctl.servers import ResourcesServer, VerifyRequest, VerifyResponse, tool
from gymctl.servers.inprocess import make_part, serving, serving_folder
from gymctl.servers.stack.app import assemble

SIMPLE = Path(__file__).resolve().parents[3] / "server_images" / "responses_api_agents" / "simple_agent"
SESSIONS = "/v1/agent_sessions"


async def test_6_2_1_run_answers_with_what_the_verifier_says(http, agent_url, upstream):
    upstream.plan(reply(call()), reply(message()))
    told = await post(http, f"{agent_url}/run", row(_ng_task_index=0, _ng_rollout_id="0-0"))
    assert told.status == 200
    assert kinds(told.json["response"]) == ["function_call", "function_call_output", "message"]
    assert isinstance(told.json["reward"], float)
    assert told.json["responses_create_params"]["input"] == "Weather?"
    assert "_ng_rollout_id" not in told.json
    assert all(name.partition("___")[2] for name in told.cookies)


async def test_6_2_2_the_second_model_call_holds_input_and_all_new_outputs(http, agent_url, upstream):
    upstream.plan(reply(call()), reply(message()))
    told = await post(http, f"{agent_url}/v1/responses", PARAMS)
    first, second = (asked.json["input"] for asked in upstream.asked if asked.method == "POST")
    assert [item["role"] for item in first] == ["user"], "a string is one user message"
    assert [item.get("type", "message") for item in second] == [
        "message",
        "function_call",
        "function_call_output",
    ]
    assert told.json["usage"]["total_tokens"] == 30
    assert told.json["usage"]["output_tokens_details"] == {"reasoning_tokens": None}


async def test_6_2_3_incomplete_details_stop_before_the_tools(http, agent_url, upstream):
    upstream.plan(reply(call(), status="incomplete", incomplete_details={"reason": "max_output_tokens"}))
    told = await post(http, f"{agent_url}/v1/responses", PARAMS)
    assert kinds(told.json) == ["function_call"]
    assert told.json["incomplete_details"] == {"reason": "max_output_tokens"}


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ([{"type": "reasoning", "id": "r", "summary": []}], "incomplete_reasoning"),
        ([], "empty_output"),
    ],
)
async def test_6_2_4_a_turn_without_message_and_calls_is_incomplete(
    http, agent_url, upstream, output, reason
):
    upstream.plan(reply(*output))
    told = await post(http, f"{agent_url}/v1/responses", PARAMS)
    assert told.json["status"] == "incomplete"
    assert told.json["metadata"]["ng_termination_reason"] == reason
    assert told.json["metadata"]["ng_termination_message"]
    assert upstream.posts() == 1


async def test_6_2_5_without_execute_tools_only_a_session_may_leave_calls_open(
    http, agent_variant, upstream, fresh
):
    url = await agent_variant(execute_tools=False)
    for path, body in (("/run", row()), ("/v1/responses", PARAMS)):
        assert (await post(http, url + path, body)).status == 500
    upstream.reset()
    upstream.plan(reply(call()))
    jar = (await post(http, url + SESSIONS, agent_seed(fresh))).cookies
    told = await post(http, f"{url}/v1/responses", PARAMS, jar)
    assert (told.status, kinds(told.json)) == (200, ["function_call"])


async def test_6_2_6_max_steps_stops_after_the_tools(http, agent_variant, upstream):
    url = await agent_variant(max_steps=2)
    upstream.plan(*[reply(call())] * 3)
    told = await post(http, f"{url}/v1/responses", PARAMS)
    assert kinds(told.json) == ["function_call", "function_call_output"] * 2
    assert upstream.posts() == 2


async def test_6_2_7_malformed_arguments_are_answered_without_a_call_b84(http, agent_url, upstream):
    upstream.plan(reply(call(arguments='{"city": "Oslo"', call_id="c7")), reply(call()), reply(message()))
    told = await post(http, f"{agent_url}/run", row())
    assert told.status == 200
    second = [asked.json["input"] for asked in upstream.asked if asked.method == "POST"][1]
    assert second[-1]["type"] == "function_call_output"
    assert second[-1]["call_id"] == "c7"
    assert json.loads(second[-1]["output"])["error"].startswith("Invalid tool call arguments: ")
    assert kinds(told.json["response"])[-1] == "message"


@pytest.mark.ours
async def test_6_2_7_malformed_calls_are_counted_b84(http, agent_url, upstream):
    upstream.plan(reply(call(arguments="{")), reply(message()))
    told = await post(http, f"{agent_url}/run", row())
    assert told.json["response"]["metadata"]["ng_malformed_tool_calls"] == "1"


@pytest.mark.ours
async def test_6_2_8_calls_that_the_tool_server_failed_are_counted(http, upstream, model_url):
    """The model reads the error and goes on, as the contract wants; the result still tells of it."""

    class Broken(ResourcesServer):
        @tool
        async def get_weather(self, city: str) -> str:
            raise RuntimeError(f"no thermometer in {city}")

        async def verify(self, request: VerifyRequest) -> VerifyResponse:
            return request.scored(reward=0.0)

    upstream.plan(reply(call()), reply(message()))
    async with serving(assemble(Broken(make_part("tools", "resources_servers", "broken")))) as tools:
        neighbours = {"policy_model": model_url, "weather": tools}
        async with serving_folder(SIMPLE, "variant", AGENT_BLOCK, neighbours) as url:
            told = await post(http, f"{url}/run", row())
    assert told.json["response"]["metadata"] == {"ng_broken_tool_calls": "1"}


async def test_6_2_8_whatever_a_tool_answers_is_its_output(http, agent_url, upstream):
    wrong = [call("get_wether", "{}", "c1"), call("get_weather", "{}", "c2")]
    upstream.plan(reply(*wrong), reply(message()))
    told = await post(http, f"{agent_url}/v1/responses", PARAMS)
    outputs = [item["output"] for item in told.json["output"] if item["type"] == "function_call_output"]
    assert json.loads(outputs[0]) == {"detail": "Not Found"}
    assert json.loads(outputs[1])["detail"][0]["loc"] == ["body", "city"]


async def test_6_2_9_tools_run_one_after_the_other_in_order(http, agent_url, upstream):
    cities = ["Oslo", "Rome", "Lima"]
    calls = [call(arguments=json.dumps({"city": city}), call_id=city) for city in cities]
    upstream.plan(reply(*calls), reply(message()))
    told = await post(http, f"{agent_url}/v1/responses", PARAMS)
    done = [item["call_id"] for item in told.json["output"] if item["type"] == "function_call_output"]
    assert done == cities


async def test_6_2_10_without_a_session_every_cookie_comes_back(http, agent_url, upstream):
    upstream.plan(reply(call()), reply(message()))
    told = await post(http, f"{agent_url}/v1/responses", PARAMS, {"Other___x": "1"})
    assert len(told.cookies) == 4, "the caller's, the tools', the model's and the agent's own"
    assert told.cookies["Other___x"] == "1"


async def test_6_2_11_the_rollout_prefix_is_carried_to_the_model_server(http, agent_url, upstream):
    for prefix in ("/ng-rollout/0-7", "/ng-rollout/0-7/training-token-capture"):
        told = await post(http, f"{agent_url}{prefix}/v1/responses", PARAMS)
        assert told.status == 200


async def test_6_2_12_skip_verification_gives_the_fixed_reward(http, agent_variant, upstream):
    url = await agent_variant(skip_verification=True, skip_verification_reward=0.25)
    told = await post(http, f"{url}/run", row())
    assert (told.json["reward"], told.json["verification_skipped"]) == (0.25, True)
    assert told.json["city"] == "Oslo"
    assert told.json["response"]["object"] == "response"
    empty = await post(http, f"{url}/aggregate_metrics", {"verify_responses": [{"reward": 1.0}]})
    assert (empty.json["agent_metrics"], empty.json["group_level_metrics"]) == ({}, [])


async def test_6_1_unknown_parameters_are_422(http, agent_url):
    told = await post(http, f"{agent_url}/v1/responses", {"input": "x", "colour": 1})
    assert (told.status, told.detail[0]["type"], told.detail[0]["loc"]) == (
        422,
        "extra_forbidden",
        ["body", "colour"],
    )


async def test_6_1_aggregation_is_the_resources_servers(http, agent_url):
    rows = [{"_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 1.0}]
    told = await post(http, f"{agent_url}/aggregate_metrics", {"verify_responses": rows})
    assert told.json["key_metrics"] == {"mean/reward": 1.0}


async def test_6_2_13_a_refusing_model_is_a_500_with_the_inner_body(http, agent_url, upstream):
    upstream.plan(Reply(400, {"error": {"message": "no"}}))
    told = await post(http, f"{agent_url}/run", row())
    assert told.status == 500
    assert told.json.startswith("Hit an exception in SimpleAgent___")
    assert "calling an inner server: b" in told.json
