"""CONTRACT 5.7: step-style resources servers, and the agent that plays them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from fakes import exchanges
from fakes.contract import cookies_of, sending
from fakes.stepping import Stage, said

from gymctl.errors import ConfigError
from gymctl.servers import GymnasiumServer, Step, StepRequest
from gymctl.servers.inprocess import make_part, serving
from gymctl.servers.stack.app import assemble

ROW = {"responses_create_params": {"input": "Deal me in."}}


def answered(text: str) -> dict[str, Any]:
    """A row with what the model said to it."""
    return {**ROW, "response": exchanges.reply(*said(text)).body}


HIT, STAND = answered("<action>hit</action>"), answered("<action>stand</action>")


class Counting(GymnasiumServer):
    """Offers nothing; counts its steps."""

    supports_step_idempotency = False

    async def reset(self) -> str | None:
        return None

    async def step(self, request: StepRequest) -> Step:
        return Step(reward=1.0)


@asynccontextmanager
async def counting() -> AsyncIterator[str]:
    part = make_part("env", "resources_servers", "counting", {"domain": "games"})
    async with serving(assemble(Counting(part))) as url:
        yield url


async def post(
    http: aiohttp.ClientSession, url: str, body: Any, jar: dict[str, str] | None = None
) -> tuple[int, Any, dict[str, str]]:
    async with http.post(url, json=body, headers=sending(jar or {})) as answer:
        return answer.status, await answer.json(content_type=None), {**(jar or {}), **cookies_of(answer)}


# The server


async def test_5_7_reset_takes_the_row_and_answers_observation_and_info(http, step_url):
    status, start, jar = await post(http, f"{step_url}/reset", {**ROW, "unknown": 1, "_ng_task_index": 3})
    assert status == 200
    assert start.keys() == {"observation", "info"}
    assert isinstance(start["observation"], str)
    assert isinstance(start["info"], dict)
    assert len(jar) == 1


async def test_5_7_step_answers_five_fields_and_ends_the_session(http, step_url):
    _, _, jar = await post(http, f"{step_url}/reset", ROW)
    status, step, jar = await post(http, f"{step_url}/step", STAND, jar)
    assert status == 200
    assert step.keys() == {"observation", "reward", "terminated", "truncated", "info"}
    assert (step["terminated"], step["truncated"]) == (True, False)
    assert isinstance(step["reward"], float)


@pytest.mark.ours
async def test_5_7_a_step_after_the_end_is_refused(http, step_url):
    _, _, jar = await post(http, f"{step_url}/reset", ROW)
    await post(http, f"{step_url}/step", STAND, jar)
    assert (await post(http, f"{step_url}/step", STAND, jar))[0] >= 400


async def test_5_7_a_step_that_does_not_end_the_episode_keeps_the_session(http, step_url):
    for _ in range(30):  # a card may end the game
        _, _, jar = await post(http, f"{step_url}/reset", ROW)
        _, step, jar = await post(http, f"{step_url}/step", HIT, jar)
        if not step["terminated"]:
            break
    assert (step["terminated"], step["truncated"]) == (False, False)
    assert isinstance(step["observation"], str)
    status, step, _ = await post(http, f"{step_url}/step", STAND, jar)
    assert (status, step["terminated"]) == (200, True)


async def test_5_7_a_session_is_that_of_its_cookie(http, step_url):
    _, _, first = await post(http, f"{step_url}/reset", ROW)
    _, _, second = await post(http, f"{step_url}/reset", ROW)
    assert (await post(http, f"{step_url}/step", STAND, first))[1]["terminated"]
    status, step, _ = await post(http, f"{step_url}/step", STAND, second)
    assert (status, step["terminated"]) == (200, True)


@pytest.mark.parametrize("path", ["seed_session", "verify", "close_session"])
async def test_5_7_routes_of_the_other_style_are_not_there(http, step_url, path):
    status, _, _ = await post(http, f"{step_url}/{path}", STAND)
    assert status == 404


async def test_5_7_there_is_no_reverify_mode(http, step_url):
    async with http.get(f"{step_url}/reverify_mode") as answer:
        assert answer.status == 404


async def test_5_7_metrics_are_aggregated(http, step_url):
    rows = [
        {"_ng_task_index": 0, "_ng_rollout_index": index, "reward": reward, "terminated": True}
        for index, reward in enumerate([1.0, -1.0])
    ]
    _, metrics, _ = await post(http, f"{step_url}/aggregate_metrics", {"verify_responses": rows})
    assert metrics["agent_metrics"]["mean/reward"] == 0.0
    assert metrics["agent_metrics"]["mean/terminated"] == 1.0


async def test_5_7_a_repeated_step_gets_the_first_answer_also_after_the_end(http, step_url):
    _, start, jar = await post(http, f"{step_url}/reset", ROW)
    if start["info"].get("supports_step_idempotency") is not True:
        pytest.skip("the server does not offer it")
    body = {**STAND, "_ng_step_request_id": "once"}
    first = await post(http, f"{step_url}/step", body, jar)
    second = await post(http, f"{step_url}/step", body, jar)
    assert first[:2] == second[:2]
    assert first[1]["terminated"]
    other, _, _ = await post(http, f"{step_url}/step", {**body, "_ng_step_request_id": "twice"}, jar)
    assert other >= 400, "another id is another step"


async def test_5_7_close_ends_an_episode_where_it_is_offered(http, step_url):
    _, start, jar = await post(http, f"{step_url}/reset", ROW)
    if start["info"].get("supports_explicit_close") is not True:
        pytest.skip("the server does not offer it")
    for _ in range(2):
        status, _, _ = await post(http, f"{step_url}/close", {}, jar)
        assert status == 200
    status, _, _ = await post(http, f"{step_url}/step", STAND, jar)
    assert status >= 400


async def test_5_7_a_server_that_offers_nothing_says_nothing(http):
    async with counting() as url:
        _, start, jar = await post(http, f"{url}/reset", ROW)
        assert start == {"observation": None, "info": {}}
        assert (await post(http, f"{url}/close", {}, jar))[0] == 404
        _, step, _ = await post(http, f"{url}/step", STAND, jar)
        assert step == {
            "observation": None,
            "reward": 1.0,
            "terminated": False,
            "truncated": False,
            "info": {},
        }


# The agent


async def test_5_7_a_game_is_played_to_its_end(http, player_url, upstream):
    upstream.plan(exchanges.reply(*said("<action>stand</action>")))
    status, result, _ = await post(http, f"{player_url}/run", ROW)
    assert status == 200
    assert (result["terminated"], result["truncated"]) == (True, False)
    assert result["reward"] in (-1.0, 0.0, 1.0)
    assert isinstance(result["info"], dict)
    start = upstream.asked[-1].json["input"]
    assert [item["role"] for item in start] == ["user", "user"], "the task, then the observation"
    assert result["response"]["output"][0]["content"][0]["text"] == "<action>stand</action>"


def user(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": text}


async def run(http: aiohttp.ClientSession, stage: Stage, row: Any = ROW, **settings: Any) -> tuple[int, Any]:
    async with stage.playing(**settings) as url:
        status, result, _ = await post(http, f"{url}/run", row)
        return status, result


async def test_5_7_observations_become_user_messages(http):
    stage = Stage(
        [
            {"observation": "start", "info": {}},
            {"observation": "on", "reward": 0},
            {"observation": "the end", "terminated": True},
        ],
        ["one", "two"],
    )
    _, result = await run(http, stage)
    given = [{"role": "user", "content": "Deal me in."}, user("start")]
    assert stage.model_asked[0].body["input"] == given
    assert stage.model_asked[1].body["input"] == [*given, *said("one"), user("on")]
    assert result["responses_create_params"]["input"] == given
    assert result["response"]["output"] == [*said("one"), user("on"), *said("two"), user("the end")]


async def test_5_7_no_observation_adds_no_message(http):
    stage = Stage([{"observation": None, "info": {}}, {}, {"terminated": True}])
    _, result = await run(http, stage)
    assert stage.model_asked[0].body["input"] == [{"role": "user", "content": "Deal me in."}]
    assert result["response"]["output"] == said("go on") * 2


async def test_5_7_rewards_and_usage_are_summed(http):
    stage = Stage([{}, {"reward": 0.25}, {"reward": -1}, {"reward": 2.0, "terminated": True}])
    _, result = await run(http, stage)
    assert result["reward"] == 1.25
    assert result["response"]["usage"]["total_tokens"] == 45


async def test_5_7_tool_outputs_become_items_before_the_observation(http):
    call = {"type": "function_call", "id": "fc", "call_id": "c1", "name": "look", "arguments": "{}"}
    outputs = [{"call_id": "c1", "output": "a wall"}, {"call_id": "c2", "output": "a door"}]
    stage = Stage(
        [{}, {"observation": "go on", "info": {"tool_outputs": outputs}}, {"terminated": True}],
        [[call], "done"],
    )
    _, result = await run(http, stage)
    items = [{"type": "function_call_output", "id": None, "status": None, **output} for output in outputs]
    assert result["response"]["output"] == [call, *items, user("go on"), *said("done")]
    assert stage.model_asked[1].body["input"][1:] == [call, *items, user("go on")]


@pytest.mark.parametrize("how", ["terminated", "truncated"])
async def test_5_7_the_environment_ends_the_loop(http, how):
    stage = Stage([{}, {}, {how: True, "info": {"result": "won"}}, {"reward": 99}])
    _, result = await run(http, stage)
    assert len(stage.of("/step")) == 2
    assert (result["terminated"], result["truncated"]) == (how == "terminated", how == "truncated")
    assert result["info"] == {"result": "won"}


@pytest.mark.parametrize(("settings", "steps"), [({}, 10), ({"max_steps": 3}, 3), ({"max_steps": 1}, 1)])
async def test_5_7_after_max_steps_the_episode_is_truncated(http, settings, steps):
    stage = Stage([{}, {"observation": "on", "reward": 1.0}])
    _, result = await run(http, stage, **settings)
    assert len(stage.model_asked) == len(stage.of("/step")) == steps
    assert (result["reward"], result["terminated"], result["truncated"]) == (steps, False, True)
    assert result["response"]["output"][-1] == user("on")


async def test_5_7_max_steps_is_at_least_one():
    with pytest.raises(ConfigError, match="greater than or equal to 1"):
        async with Stage([{}]).playing(max_steps=0):
            pass


async def test_5_7_a_step_carries_the_row_and_this_turns_response(http):
    row = {**ROW, "follow_ups": ["and then?"], "seed": None, "_ng_task_index": 7}
    stage = Stage([{"observation": "start"}, {"observation": "on"}, {"terminated": True}], ["one", "two"])
    await run(http, stage, row)
    reset = stage.of("/reset")[0].body
    for name in ("follow_ups", "seed", "_ng_task_index"):
        assert reset[name] == row[name]
    for step, text in zip(stage.of("/step"), ("one", "two"), strict=True):
        assert {key: value for key, value in step.body.items() if key != "response"} == reset
        assert step.body["response"]["output"] == said(text)


@pytest.mark.parametrize("offer", [True, False, None, "true"])
async def test_5_7_steps_carry_an_id_only_if_the_server_offered_it(http, offer):
    info = {} if offer is None else {"supports_step_idempotency": offer}
    stage = Stage([{"info": info}, {}, {"terminated": True}])
    await run(http, stage)
    ids = [step.body.get("_ng_step_request_id") for step in stage.of("/step")]
    if offer is True:
        assert all(isinstance(one, str) for one in ids)
        assert len(set(ids)) == 2
    else:
        assert ids == [None, None]


@pytest.mark.parametrize("offer", [True, False, None])
async def test_5_7_close_is_called_only_if_the_server_offered_it(http, offer):
    info = {} if offer is None else {"supports_explicit_close": offer}
    stage = Stage([{"info": info}, {"terminated": True}])
    _, result = await run(http, stage)
    assert [close.body for close in stage.of("/close")] == ([{}] if offer else [])
    assert "cleanup_warning" not in result["info"]


@pytest.mark.parametrize(
    ("step", "answers", "detail"),
    [(500, ["x"], "scripted"), (422, ["x"], "scripted"), ({}, [500], "no")],
    ids=["environment", "refusal", "model"],
)
async def test_5_7_a_failure_closes_too_and_is_a_failed_rollout(http, step, answers, detail):
    stage = Stage([{"info": {"supports_explicit_close": True}}, step], answers)
    status, error = await run(http, stage)
    assert status == 500
    assert error.startswith("Hit an exception in GymnasiumAgent___desk_agent calling an inner server: ")
    assert detail in error
    assert len(stage.of("/close")) == 1


async def test_5_7_a_close_that_fails_after_success_is_a_warning(http):
    stage = Stage(
        [{"info": {"supports_explicit_close": True}}, {"reward": 1.0, "terminated": True}], close=500
    )
    status, result = await run(http, stage)
    assert (status, result["reward"], result["terminated"]) == (200, 1.0, True)
    assert "env could not close the episode: 500" in result["info"]["cleanup_warning"]


async def test_5_7_a_close_that_fails_after_a_failure_does_not_hide_it(http):
    stage = Stage([{"info": {"supports_explicit_close": True}}, 418], close=503)
    status, error = await run(http, stage)
    assert (status, "scripted" in error) == (500, True)


async def test_5_7_cookies_go_back_to_their_servers(http):
    stage = Stage([{"info": {"supports_explicit_close": True}}, {}, {"terminated": True}])
    async with stage.playing() as url:
        jar = {"Trace___caller": "t1"}
        _, _, after = await post(http, f"{url}/run", ROW, jar)
    assert after.keys() == {"Trace___caller", "GymnasiumAgent___desk_agent"}
    assert [asked.cookies.get("Env___env") for asked in stage.asked] == [None, "e1", "e2", "e3"]
    assert all(asked.cookies["Trace___caller"] == "t1" for asked in stage.asked)
    assert [asked.cookies.get("Model___policy_model") for asked in stage.model_asked] == [None, "m1"]


async def test_5_7_the_result_is_shaped_like_a_verdict(http):
    stage = Stage([{}, {"terminated": True}])
    _, result = await run(http, stage, {**ROW, "expected_answer": "42"})
    assert result.keys() == {
        *("responses_create_params", "response", "reward", "mask_sample", "failure_kind", "failure_reason"),
        *("terminated", "truncated", "info"),
    }
    assert (result["mask_sample"], result["failure_kind"], result["failure_reason"]) == (False, None, None)
    assert result["responses_create_params"]["tools"] == []
