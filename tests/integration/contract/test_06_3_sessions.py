"""CONTRACT 6.3 and 6.4: sessions of an agent, opened and closed. Golden exchanges A13 and A14."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from fakes.contract import AGENT_BLOCK
from fakes.exchanges import PARAMS, agent_close, agent_seed, call, kinds, message, post, reply, row
from fakes.openai_upstream import Reply

from gymctl.servers import AgentServer
from gymctl.servers.inprocess import make_part, serving
from gymctl.servers.load import imported
from gymctl.servers.stack.app import assemble

SIMPLE = Path(__file__).resolve().parents[3] / "server_images" / "responses_api_agents" / "simple_agent"
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


async def test_6_3_5_a_cookie_whose_record_is_gone_is_409(http, agent_variant, upstream, fresh):
    """As after a restart: signatures depend on name and secret only, so the cookie still reads well."""
    jar = (await post(http, await agent_variant() + SESSIONS, agent_seed(fresh))).cookies
    told = await post(http, await agent_variant() + SESSIONS, agent_seed(fresh), jar)
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


async def test_6_3_8_configured_accesses_are_overlaid_by_name(
    http, agent_variant, resources_url, upstream, fresh
):
    nowhere = {"kind": "direct_http", "name": "w.direct_http", "base_url": "http://127.0.0.1:1"}
    url = await agent_variant(tool_accesses=[nowhere])
    jar = (await post(http, url + SESSIONS, agent_seed(fresh, resources_url))).cookies
    upstream.plan(reply(call()), reply(message()))
    told = await post(http, f"{url}/v1/responses", PARAMS, jar)
    assert kinds(told.json) == ["function_call", "function_call_output", "message"]


@pytest.mark.ours
async def test_6_1_an_agent_without_sessions_answers_500_on_seed_and_close(http, fresh):

    plain = AgentServer(make_part("plain", "responses_api_agents", "plain"))
    async with serving(assemble(plain)) as url:
        assert (await post(http, url + SESSIONS, agent_seed(fresh))).status == 500
        assert (await post(http, url + CLOSE, agent_close(fresh))).status == 500


@pytest.mark.ours
async def test_6_3_9_sessions_need_one_worker(http, fresh):

    part = make_part("a", "responses_api_agents", "simple_agent", AGENT_BLOCK)
    server = imported("app.py", SIMPLE).server_class(part.model_copy(update={"workers": 2}))
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


async def test_6_4_3_an_expired_receipt_with_its_cookie_is_409(http, agent_variant, fresh):
    url = await agent_variant(session_close_retry_window_seconds=1e-6)
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
    upstream.plan(Reply(delay=120))
    turn = asyncio.create_task(post(http, f"{agent_url}/v1/responses", PARAMS, jar))
    async with asyncio.timeout(60):
        while not upstream.posts():  # noqa: ASYNC110 - counted in another thread
            await asyncio.sleep(0.02)
        assert (await post(http, agent_url + CLOSE, agent_close(fresh), jar)).status == 200
        assert (await turn).json == "Request was cancelled"
