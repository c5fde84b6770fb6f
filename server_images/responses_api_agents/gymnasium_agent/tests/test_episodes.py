"""What the contract leaves to us: broken connections, callers that leave, settings. Its rules themselves are
tested in tests/integration/contract/test_05_7_step_style.py."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path
from typing import Any

import pytest
from fakes.stepping import Stage

ROW = {"responses_create_params": {"input": "Deal me in."}}
CLOSABLE = {"info": {"supports_explicit_close": True}}
REPEATABLE = {"info": {"supports_step_idempotency": True}}


async def test_a_step_whose_connection_broke_is_asked_for_again_where_the_server_knows_repeats(client):
    stage = Stage([REPEATABLE, None, {"reward": 1.0, "terminated": True}])
    async with stage.playing() as url:
        result = (await client.post(f"{url}/run", ROW)).json()
    first, second = stage.of("/step")
    assert first.body == second.body
    assert (result["reward"], len(stage.model_asked)) == (1.0, 1)


async def test_a_step_whose_connection_broke_is_not_done_twice_otherwise(client):
    stage = Stage([CLOSABLE, None, {"reward": 1.0, "terminated": True}])
    async with stage.playing() as url:
        answer = await client.post(f"{url}/run", ROW)
    assert answer.status == 500
    assert "transport_peer_drop" in answer.json()
    assert (len(stage.of("/step")), len(stage.of("/close"))) == (1, 1)


async def test_an_episode_is_closed_when_its_caller_leaves(client):
    stage = Stage([CLOSABLE, 0])
    async with stage.playing() as url:
        caller = asyncio.create_task(client.post(f"{url}/run", ROW))
        await asyncio.wait_for(stage.waiting.wait(), 30)
        caller.cancel()
        await asyncio.wait_for(stage.closed.wait(), 30)


async def test_system_and_user_messages_of_the_row_stay_before_the_observation(client):
    history = [{"role": "system", "content": "Play."}, {"role": "user", "content": "Deal me in."}]
    stage = Stage([{"observation": "12 against 6"}, {"terminated": True}])
    async with stage.playing() as url:
        await client.post(f"{url}/run", {"responses_create_params": {"input": history, "temperature": None}})
    asked = stage.model_asked[0].body
    assert asked["input"] == [*history, {"type": "message", "role": "user", "content": "12 against 6"}]
    assert "temperature" not in asked


async def test_a_fixed_reward_takes_the_place_of_the_environments(client):
    stage = Stage([{}, {"reward": 3.0, "terminated": True}])
    async with stage.playing(skip_verification=True, skip_verification_reward=0.5) as url:
        result = (await client.post(f"{url}/run", ROW)).json()
        metrics = (await client.post(f"{url}/aggregate_metrics", {"verify_responses": [result]})).json()
    assert (result["reward"], result["verification_skipped"], result["terminated"]) == (0.5, True, True)
    assert metrics["agent_metrics"] == {}


async def test_metrics_come_from_the_environment(client):
    stage = Stage([{}])
    body = {"verify_responses": [{"reward": 1.0, "truncated": True}]}
    async with stage.playing() as url:
        answer = await client.post(f"{url}/aggregate_metrics", body)
    assert answer.json() == {"agent_metrics": {"asked": body}}


@pytest.mark.parametrize(
    "step",
    [
        {"reward": None},
        {"reward": "much"},
        {"info": [1]},
        {"observation": ["x"]},
        {"info": {"tool_outputs": [1]}},
    ],
)
async def test_a_step_that_is_none_fails_the_rollout(client, step: Any):
    stage = Stage([CLOSABLE, {**step, "terminated": True}])
    async with stage.playing() as url:
        answer = await client.post(f"{url}/run", ROW)
    assert answer.status == 500
    assert isinstance(answer.json(), str)
    assert len(stage.of("/close")) == 1


async def test_a_message_without_parts_reaches_everyone_in_one_form(client):
    stage = Stage([{}, {"terminated": True}], [[{"type": "message", "role": "assistant", "content": "hit"}]])
    async with stage.playing() as url:
        result = (await client.post(f"{url}/run", ROW)).json()
    [item] = result["response"]["output"]
    assert item["content"][0]["text"] == "hit"
    assert stage.of("/step")[0].body["response"]["output"] == [item]


async def test_single_turns_and_sessions_are_refused_in_words(client):
    async with Stage([{}]).playing() as url:
        turn = await client.post(f"{url}/v1/responses", ROW["responses_create_params"])
        assert turn.status == 500
        assert "plays whole episodes" in turn.json()
        seed = {"agent_session_id": "s", "episode_id": {"rollout_id": "0-0"}}
        opened = await client.post(
            f"{url}/v1/agent_sessions", {**seed, "task_id": {"taskset": "t", "task_id": "0"}}
        )
        closed = await client.post(f"{url}/v1/agent_sessions/close", seed)
        assert (opened.status, closed.status) == (500, 500)


async def test_64_episodes_at_once_keep_their_cookies_apart(client, start, fake_model, items):
    """Against a real step-style server: each hand is played to its own end."""

    def script(body: dict[str, Any], call: int) -> list[dict[str, Any]]:
        has_hit = any(item.get("role") == "assistant" for item in body["input"])
        return [items.message("<action>stand</action>" if has_hit else "<action>hit</action>")]

    model = await fake_model(script)
    game = await start("resources_servers/blackjack", "game", {"domain": "games"})
    agent = await start(
        "responses_api_agents/gymnasium_agent",
        "player",
        {
            "model_server": {"type": "responses_api_models", "name": "policy_model"},
            "resources_server": {"type": "resources_servers", "name": "game"},
        },
        {"policy_model": model.url, "game": game},
    )

    async def played(seed: int) -> Any:
        return (await client.post(f"{agent}/run", {**ROW, "seed": seed % 32})).json()

    results = await asyncio.gather(*(played(seed) for seed in range(64)))
    assert all(result["terminated"] for result in results)
    for first, second in zip(results[:32], results[32:], strict=True):
        assert first["info"] == second["info"]
        assert first["reward"] == second["reward"]
    assert len({result["info"]["player"] for result in results}) > 10


async def test_a_close_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch, client):
    spec = importlib.util.spec_from_file_location("player", Path(__file__).parents[1] / "app.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "CLOSE_SECONDS", 0.05)

    class Silent:
        async def call(self, server: Any, path: str, *args: Any, **kwargs: Any) -> Any:
            await asyncio.sleep(60)

    server = module.ServerRef(type="resources_servers", name="env")
    environment = module.Environment(Silent(), server, ROW, {})
    assert await environment.close() is None, "a server that offered no close is not asked"
    environment._is_closable = True
    assert "no answer within 0 s" in str(await environment.close())
