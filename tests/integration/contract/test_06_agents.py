"""CONTRACT 6: agents. Golden exchanges A13 and A14."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from fakes.exchanges import PARAMS, agent_close, agent_seed, call, kinds, message, post, reply, row
from fakes.openai_upstream import Reply

from gymctl.servers import ResourcesServer, VerifyRequest, VerifyResponse, tool
from gymctl.servers.inprocess import make_part, serving, serving_folder
from gymctl.servers.stack.app import assemble

SIMPLE = Path(__file__).resolve().parents[3] / "server_images" / "responses_api_agents" / "simple_agent"
MODEL = {"type": "responses_api_models", "name": "policy_model"}
TOOLS = {"type": "resources_servers", "name": "weather"}
SESSIONS = "/v1/agent_sessions"
CLOSE = "/v1/agent_sessions/close"
DIRECT = {"kind": "direct_http", "name": "a", "required": True, "base_url": "http://x"}
SANDBOX = {
    "connection": {"kind": "direct", "provider_config_ref": "local", "descriptor": {}},
    "workdir": "/",
}
MAPS = {
    "kind": "mcp",
    "name": "maps",
    "required": True,
    "connection": {"transport": "streamable_http", "url": "http://maps/mcp"},
}

Variant = Callable[..., Awaitable[str]]


@pytest.fixture
async def variant(model_url: str, resources_url: str) -> AsyncIterator[Variant]:
    """A simple_agent of our own with other settings, between the target's model and tools."""
    async with AsyncExitStack() as stack:

        async def begin(**settings: Any) -> str:
            block = {"model_server": MODEL, "resources_server": TOOLS, **settings}
            neighbours = {"policy_model": model_url, "weather": resources_url}
            return await stack.enter_async_context(serving_folder(SIMPLE, "variant", block, neighbours))

        yield begin


@pytest.fixture
def fresh() -> str:
    """A session id that no other test has used."""
    return f"agent-session-{uuid.uuid4().hex}"


# 6.2


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
    http, variant, upstream, fresh
):
    url = await variant(execute_tools=False)
    for path, body in (("/run", row()), ("/v1/responses", PARAMS)):
        assert (await post(http, url + path, body)).status == 500
    upstream.reset()
    upstream.plan(reply(call()))
    jar = (await post(http, url + SESSIONS, agent_seed(fresh))).cookies
    told = await post(http, f"{url}/v1/responses", PARAMS, jar)
    assert (told.status, kinds(told.json)) == (200, ["function_call"])


async def test_6_2_6_max_steps_stops_after_the_tools(http, variant, upstream):
    url = await variant(max_steps=2)
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
        block = {"model_server": MODEL, "resources_server": TOOLS}
        neighbours = {"policy_model": model_url, "weather": tools}
        async with serving_folder(SIMPLE, "variant", block, neighbours) as url:
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


async def test_6_2_12_skip_verification_gives_the_fixed_reward(http, variant, upstream):
    url = await variant(skip_verification=True, skip_verification_reward=0.25)
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


# 6.3


async def test_6_3_1_a_new_session_is_in_the_cookie_and_a_repeat_is_the_same_a13(http, agent_url, fresh):
    seed = agent_seed(fresh)
    first = await post(http, agent_url + SESSIONS, seed)
    assert (first.status, first.json) == (200, {"agent_session_id": fresh})
    assert len(first.cookies) == 1
    again = await post(http, agent_url + SESSIONS, seed, first.cookies)
    assert (again.status, again.json) == (200, {"agent_session_id": fresh})
    without = await post(http, agent_url + SESSIONS, seed)
    assert without.status == 200


async def test_6_3_2_another_seed_for_the_id_is_409_a13(http, agent_url, fresh):
    await post(http, agent_url + SESSIONS, agent_seed(fresh))
    other = agent_seed(fresh, task_id={"taskset": "w", "task_id": "18"})
    told = await post(http, agent_url + SESSIONS, other)
    assert (told.status, told.detail) == (
        409,
        "agent_session_id is already bound to another seed request",
    )


async def test_6_3_3_a_cookie_of_another_session_is_409(http, agent_url, fresh):
    jar = (await post(http, agent_url + SESSIONS, agent_seed(fresh))).cookies
    told = await post(http, agent_url + SESSIONS, agent_seed(f"{fresh}-b"), jar)
    assert (told.status, told.detail) == (409, "agent_session_id does not match the session cookie")


@pytest.mark.parametrize("is_seeded", [True, False])
async def test_6_3_4_a_closed_id_is_never_seeded_again_a14(http, agent_url, fresh, is_seeded):
    if is_seeded:
        await post(http, agent_url + SESSIONS, agent_seed(fresh))
    assert (await post(http, agent_url + CLOSE, agent_close(fresh))).status == 200
    told = await post(http, agent_url + SESSIONS, agent_seed(fresh))
    assert (told.status, told.detail) == (409, "Agent session is already closed")


async def test_6_3_5_a_cookie_whose_record_is_gone_is_409(http, variant, upstream, fresh):
    """As after a restart: signatures depend on name and secret only, so the cookie still reads well."""
    jar = (await post(http, await variant() + SESSIONS, agent_seed(fresh))).cookies
    told = await post(http, await variant() + SESSIONS, agent_seed(fresh), jar)
    assert (told.status, told.detail) == (409, "Agent session cookie has expired")


async def test_6_3_6_what_the_harness_cannot_serve_is_500(http, agent_url, resources_url, fresh):
    direct = [{**DIRECT, "name": name, "base_url": resources_url} for name in "ab"]
    for wrong in (
        {"tool_accesses": [MAPS]},
        {"tool_accesses": direct},
        {"sandbox_access": SANDBOX},
    ):
        assert (await post(http, agent_url + SESSIONS, {**agent_seed(fresh), **wrong})).status == 500
    optional = {"tool_accesses": [{**MAPS, "required": False}]}
    assert (await post(http, agent_url + SESSIONS, {**agent_seed(fresh), **optional})).status == 200


@pytest.mark.parametrize(
    "wrong",
    [
        {"colour": 1},
        {"tool_accesses": [{**DIRECT, "kind": "ftp"}]},
        {"tool_accesses": [{**DIRECT, "name": "-a"}]},
        {"tool_accesses": [DIRECT] * 2},
        {"tool_accesses": [{**MAPS, "connection": {"transport": "sse", "url": "http://x"}}]},
        {"episode_id": {"rollout_id": "0-1-a2"}},
    ],
)
async def test_6_3_7_malformed_seeds_are_422(http, agent_url, fresh, wrong):
    assert (await post(http, agent_url + SESSIONS, {**agent_seed(fresh), **wrong})).status == 422


async def test_6_3_8_configured_accesses_are_overlaid_by_name(http, variant, resources_url, upstream, fresh):
    nowhere = {"kind": "direct_http", "name": "w.direct_http", "base_url": "http://127.0.0.1:1"}
    url = await variant(tool_accesses=[nowhere])
    jar = (await post(http, url + SESSIONS, agent_seed(fresh, resources_url))).cookies
    upstream.plan(reply(call()), reply(message()))
    told = await post(http, f"{url}/v1/responses", PARAMS, jar)
    assert kinds(told.json) == ["function_call", "function_call_output", "message"]


@pytest.mark.ours
async def test_6_1_an_agent_without_sessions_answers_500_on_seed_and_close(http, fresh):
    from gymctl.servers import AgentServer
    from gymctl.servers.inprocess import make_part, serving
    from gymctl.servers.stack.app import assemble

    plain = AgentServer(make_part("plain", "responses_api_agents", "plain"))
    async with serving(assemble(plain)) as url:
        assert (await post(http, url + SESSIONS, agent_seed(fresh))).status == 500
        assert (await post(http, url + CLOSE, agent_close(fresh))).status == 500


@pytest.mark.ours
async def test_6_3_9_sessions_need_one_worker(http, fresh):
    from gymctl.servers.inprocess import make_part, serving
    from gymctl.servers.load import imported
    from gymctl.servers.stack.app import assemble

    block = {"model_server": MODEL}
    part = make_part("a", "responses_api_agents", "simple_agent", block).model_copy(update={"workers": 2})
    server = imported("app.py", SIMPLE).server_class(part)
    async with serving(assemble(server)) as url:
        assert (await post(http, url + SESSIONS, agent_seed(fresh))).status == 500


# 6.4


async def test_6_4_1_a_close_has_one_receipt_a14(http, agent_url, resources_url, tools_url, upstream, fresh):
    seeded = await post(http, f"{resources_url}/seed_session", row())
    seed = agent_seed(fresh, tools_url)
    seed["tool_accesses"][0]["cookies"] = seeded.cookies
    jar = (await post(http, agent_url + SESSIONS, seed)).cookies
    upstream.plan(reply(call()), reply(message()))
    turn = await post(http, f"{agent_url}/ng-rollout/0-0/v1/responses", PARAMS, jar)
    assert kinds(turn.json) == ["function_call", "function_call_output", "message"]

    first, again = [await post(http, agent_url + CLOSE, agent_close(fresh), jar) for _ in range(2)]
    assert first.status == 200
    assert first.body == again.body
    assert first.json["agent_session_id"] == fresh
    assert first.json["resources_cookies"].keys() == seeded.cookies.keys()
    assert first.json.keys() == {"agent_session_id", "agent_observations", "resources_cookies"}

    other = await post(http, agent_url + CLOSE, agent_close(fresh, "9-9"), jar)
    assert (other.status, other.detail) == (409, "episode_id does not match the seeded agent session")
    late = await post(http, f"{agent_url}/v1/responses", PARAMS, jar)
    assert (late.status, late.detail) == (409, "Unknown or closing agent_session_id")


async def test_6_4_2_an_unknown_id_is_closed_with_nulls_a14(http, agent_url, fresh):
    told = await post(http, agent_url + CLOSE, agent_close(fresh))
    assert (told.status, told.body) == (
        200,
        json.dumps(
            {"agent_session_id": fresh, "agent_observations": None, "resources_cookies": None},
            separators=(",", ":"),
        ).encode(),
    )


async def test_6_4_3_an_expired_receipt_with_its_cookie_is_409(http, variant, fresh):
    url = await variant(session_close_retry_window_seconds=1e-6)
    jar = (await post(http, url + SESSIONS, agent_seed(fresh))).cookies
    assert (await post(http, url + CLOSE, agent_close(fresh), jar)).status == 200
    assert (await post(http, url + CLOSE, agent_close(fresh), jar)).status == 409


async def test_6_4_4_a_session_has_several_turns_and_keeps_only_the_models_cookie(
    http, agent_url, tools_url, upstream, fresh
):
    jar = (await post(http, agent_url + SESSIONS, agent_seed(fresh, tools_url))).cookies
    for _ in range(2):
        upstream.plan(reply(call()), reply(message()))
        told = await post(http, f"{agent_url}/v1/responses", PARAMS, jar)
        assert (told.status, len(told.cookies)) == (200, 2), "the agent's own and the model's"
        jar = {**jar, **told.cookies}
    receipt = (await post(http, agent_url + CLOSE, agent_close(fresh), jar)).json
    assert receipt["resources_cookies"], "the tools' cookies are only told at the close"


async def test_6_4_5_a_tool_call_without_an_access_is_500(http, agent_url, upstream, fresh):
    jar = (await post(http, agent_url + SESSIONS, agent_seed(fresh))).cookies
    upstream.plan(reply(call()))
    assert (await post(http, f"{agent_url}/v1/responses", PARAMS, jar)).status == 500


@pytest.mark.ours
async def test_6_4_6_a_close_ends_the_turn_that_runs(http, agent_url, upstream, fresh):
    jar = (await post(http, agent_url + SESSIONS, agent_seed(fresh))).cookies
    upstream.plan(Reply(delay=30))
    turn = asyncio.create_task(post(http, f"{agent_url}/v1/responses", PARAMS, jar))
    async with asyncio.timeout(25):
        while not upstream.posts():  # noqa: ASYNC110 - counted in another thread
            await asyncio.sleep(0.02)
        assert (await post(http, agent_url + CLOSE, agent_close(fresh), jar)).status == 200
        assert (await turn).json == "Request was cancelled"
