"""Agent sessions: what binds, what conflicts, and the receipt of a close (CONTRACT 6.3, 6.4)."""

from __future__ import annotations

from typing import Any

import pytest

IMAGE = "responses_api_agents/simple_agent"
MODEL = {"type": "responses_api_models", "name": "policy_model"}
EPISODE = {"rollout_id": "0-0"}


@pytest.fixture
def agent(start, fake_model):
    async def begin(script, **settings: Any):
        model = await fake_model(script)
        tools = await start("resources_servers/counter", "counter")
        url = await start(
            IMAGE, "desk_agent", {"model_server": MODEL, **settings}, {"policy_model": model.url}
        )
        return url, tools, model

    return begin


def seed(session_id: str, tools: str | None = None, jar: dict[str, str] | None = None, **more: Any) -> dict:
    grants = []
    if tools is not None:
        grants = [{"kind": "direct_http", "name": "c.direct_http", "base_url": tools, "cookies": jar or {}}]
    return {
        "agent_session_id": session_id,
        "episode_id": EPISODE,
        "task_id": {"taskset": "w", "task_id": "17"},
        "tool_accesses": grants,
        **more,
    }


def close(session_id: str, rollout: str = "0-0") -> dict[str, Any]:
    return {"agent_session_id": session_id, "episode_id": {"rollout_id": rollout}}


def detail(answer) -> str:
    return answer.json()["detail"]


async def test_a_session_plays_with_its_granted_tools_and_returns_their_cookies(agent, client, items):
    turns = [[items.call("increment_counter", '{"amount":3}')], [items.message("ok")]]
    url, tools, model = await agent(lambda body, call: turns[call - 1])
    jar = (await client.post(f"{tools}/seed_session", {})).cookies
    opened = await client.post(f"{url}/v1/agent_sessions", seed("s1", tools, jar))
    assert opened.json() == {"agent_session_id": "s1"}

    turn = await client.post(f"{url}/ng-rollout/0-0/v1/responses", {"input": "go"}, cookies=opened.cookies)
    assert [item["type"] for item in turn.json()["output"]] == [
        "function_call",
        "function_call_output",
        "message",
    ]
    assert turn.cookies.keys() == {"ScriptedModel___policy_model", "SimpleAgent___desk_agent"}
    assert set(model.paths) == {"/ng-rollout/0-0/v1/responses"}

    receipts = [
        await client.post(f"{url}/v1/agent_sessions/close", close("s1"), cookies=opened.cookies)
        for _ in range(2)
    ]
    assert receipts[0].body == receipts[1].body
    receipt = receipts[0].json()
    assert receipt["agent_observations"] is None
    value = await client.post(f"{tools}/get_counter_value", {}, cookies=receipt["resources_cookies"])
    assert value.json() == {"count": 3}

    other = await client.post(f"{url}/v1/agent_sessions/close", close("s1", "9-9"), cookies=opened.cookies)
    assert (other.status, detail(other)) == (409, "episode_id does not match the seeded agent session")
    late = await client.post(f"{url}/v1/responses", {"input": "go"}, cookies=opened.cookies)
    assert (late.status, detail(late)) == (409, "Unknown or closing agent_session_id")


async def test_seed_conflicts_are_409_with_their_reason(agent, client, items):
    url, _, _ = await agent(lambda body, call: [items.message("ok")])
    first = await client.post(f"{url}/v1/agent_sessions", seed("s1"))
    same = await client.post(f"{url}/v1/agent_sessions", seed("s1"), cookies=first.cookies)
    assert (same.status, same.json()) == (200, {"agent_session_id": "s1"})

    body = seed("s1", task_id={"taskset": "w", "task_id": "18"})
    bound = await client.post(f"{url}/v1/agent_sessions", body)
    assert (bound.status, detail(bound)) == (
        409,
        "agent_session_id is already bound to another seed request",
    )
    foreign = await client.post(f"{url}/v1/agent_sessions", seed("s2"), cookies=first.cookies)
    assert (foreign.status, detail(foreign)) == (
        409,
        "agent_session_id does not match the session cookie",
    )


async def test_close_before_seed_leaves_a_tombstone(agent, client, items):
    url, _, _ = await agent(lambda body, call: [items.message("ok")])
    unknown = await client.post(f"{url}/v1/agent_sessions/close", close("u"))
    assert unknown.json() == {"agent_session_id": "u", "agent_observations": None, "resources_cookies": None}
    late = await client.post(f"{url}/v1/agent_sessions", seed("u"))
    assert (late.status, detail(late)) == (409, "Agent session is already closed")


async def test_a_cookie_without_its_session_has_expired(agent, client, items):
    # Two servers with one name and one secret: the second has never heard of the first one's session.
    before, _, _ = await agent(lambda body, call: [items.message("ok")])
    jar = (await client.post(f"{before}/v1/agent_sessions", seed("s1"))).cookies
    after, _, _ = await agent(lambda body, call: [items.message("ok")])
    late = await client.post(f"{after}/v1/agent_sessions", seed("s1"), cookies=jar)
    assert (late.status, detail(late)) == (409, "Agent session cookie has expired")


async def test_a_receipt_expires(agent, client, items):
    url, _, _ = await agent(lambda body, call: [items.message("ok")], session_close_retry_window_seconds=1e-9)
    jar = (await client.post(f"{url}/v1/agent_sessions", seed("s1"))).cookies
    first = await client.post(f"{url}/v1/agent_sessions/close", close("s1"), cookies=jar)
    assert first.status == 200
    late = await client.post(f"{url}/v1/agent_sessions/close", close("s1"), cookies=jar)
    assert late.status == 409


@pytest.mark.parametrize(
    "wrong",
    [
        {"colour": 1},
        {"tool_accesses": [{"kind": "ftp", "name": "a"}]},
        {"tool_accesses": [{"kind": "direct_http", "name": "-a", "base_url": "http://x"}]},
        {"tool_accesses": [{"kind": "direct_http", "name": "a", "base_url": "http://x"}] * 2},
        {"episode_id": {"rollout_id": "0-1-a2"}},
    ],
)
async def test_malformed_seeds_are_422(agent, client, items, wrong):
    url, _, _ = await agent(lambda body, call: [items.message("ok")])
    assert (await client.post(f"{url}/v1/agent_sessions", {**seed("s1"), **wrong})).status == 422


async def test_what_the_agent_cannot_do_is_refused_and_the_id_stays_free(agent, client, items):
    url, tools, _ = await agent(lambda body, call: [items.message("ok")])
    connection = {"transport": "streamable_http", "url": "http://maps/mcp"}
    mcp = {"kind": "mcp", "name": "maps", "required": True, "connection": connection}
    direct = [{"kind": "direct_http", "name": name, "base_url": tools} for name in ("a", "b")]
    for wrong in ({"tool_accesses": [mcp]}, {"tool_accesses": direct}, {"sandbox_access": {"workdir": "/"}}):
        refused = await client.post(f"{url}/v1/agent_sessions", {**seed("s1"), **wrong})
        assert refused.status == 500
    optional = {"tool_accesses": [{**mcp, "required": False}]}
    assert (await client.post(f"{url}/v1/agent_sessions", {**seed("s1"), **optional})).status == 200


async def test_a_tool_call_without_access_is_an_error(agent, client, items):
    url, _, _ = await agent(lambda body, call: [items.call("get_counter_value", "{}")])
    jar = (await client.post(f"{url}/v1/agent_sessions", seed("s1"))).cookies
    assert (await client.post(f"{url}/v1/responses", {"input": "go"}, cookies=jar)).status == 500


async def test_execute_tools_false_leaves_calls_to_the_session_owner(agent, client, items):
    url, _, _ = await agent(lambda body, call: [items.call("anything", "{}")], execute_tools=False)
    alone = await client.post(f"{url}/v1/responses", {"input": "go"})
    assert alone.status == 500
    jar = (await client.post(f"{url}/v1/agent_sessions", seed("s1"))).cookies
    turn = await client.post(f"{url}/v1/responses", {"input": "go"}, cookies=jar)
    assert [item["type"] for item in turn.json()["output"]] == ["function_call"]
