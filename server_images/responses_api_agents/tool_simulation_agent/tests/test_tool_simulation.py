"""Settings and failures; what the contract says is tested in tests/integration/contract."""

from __future__ import annotations

from typing import Any

import pytest

IMAGE = "responses_api_agents/tool_simulation_agent"
MODEL = {"type": "responses_api_models", "name": "policy_model"}
ROW = {"responses_create_params": {"input": "What is the weather in Oslo?"}, "city": "Oslo"}


@pytest.fixture
def agent(start, fake_model):
    """The agent with `weather` as its verifier, and its model."""

    async def begin(script, **settings: Any):
        model = await fake_model(script)
        weather = await start("resources_servers/weather", "weather", {"domain": "agent"})
        block = {"model_server": MODEL, "resources_server": {"type": "resources_servers", "name": "weather"}}
        urls = {"weather": weather, "policy_model": model.url}
        return await start(IMAGE, "agent", {**block, **settings}, urls), model

    return begin


async def test_the_only_answer_is_scored(agent, client, items):
    url, model = await agent(lambda body, call: [items.message("Snow, -4.")])
    result = (await client.post(f"{url}/run", ROW)).json()
    assert result["reward"] == 1.0
    assert len(model.requests) == 1


async def test_the_limit_that_nemo_gym_configs_name_is_taken(agent, client, items):
    url, model = await agent(lambda body, call: [items.message("Snow, -4.")], max_steps=1)
    assert (await client.post(f"{url}/run", ROW)).json()["reward"] == 1.0
    assert len(model.requests) == 1


async def test_a_fixed_reward_takes_the_place_of_the_verifiers(agent, client, items):
    url, _ = await agent(lambda body, call: [items.message("Sun.")], skip_verification=True)
    result = (await client.post(f"{url}/run", ROW)).json()
    assert (result["reward"], result["verification_skipped"], result["city"]) == (0.0, True, "Oslo")


async def test_a_turn_alone_is_one_model_call_with_its_cookies(agent, client, items):
    call = items.call("get_weather", '{"city":"Oslo"}')
    url, model = await agent(lambda body, count: [call])
    answer = await client.post(f"{url}/v1/responses", {"input": "Weather?"}, cookies={"Other___x": "1"})
    assert answer.json()["output"] == [call]
    assert {"Other___x", "ToolSimulationAgent___agent"} < answer.cookies.keys()
    assert any(name.endswith("___policy_model") for name in answer.cookies)
    assert len(model.requests) == 1


async def test_a_verifier_that_refuses_fails_the_rollout(agent, client, items):
    url, _ = await agent(lambda body, call: [items.message("Snow.")])
    answer = await client.post(f"{url}/run", {"responses_create_params": {"input": "?"}})
    assert answer.status == 500
    assert "city" in answer.json()
