"""CONTRACT 6.2, last line: `tool_simulation_agent` asks the model once and has the answer verified."""

from __future__ import annotations

from typing import Any

import pytest
from fakes.exchanges import post, reply
from fakes.stepping import Stage
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

ROW = {"responses_create_params": {"input": "Weather?"}, "expected_call": "get_weather", "_ng_task_index": 2}
CALL = {"type": "function_call", "id": "fc", "call_id": "c1", "name": "get_weather", "arguments": "{}"}


class Verifier(Stage):
    """Answers `/verify`; a request to any other path is remembered and refused."""

    async def environment(self, request: Request) -> Response:
        await super().environment(request)
        known = request.url.path == "/verify"
        return JSONResponse({"reward": 0.5, "kept": True} if known else {}, 200 if known else 404)


@pytest.fixture
async def played(http):
    """The verifier after one rollout, and what the agent answered; the caller brought a cookie."""
    stage = Verifier([{}], [[CALL]])
    async with (
        stage.playing("tool_simulation_agent") as url,
        http.post(f"{url}/run", json=ROW, headers={"cookie": "Other___x=1"}) as answer,
    ):
        return stage, answer.status, await answer.json()


async def test_6_2_tool_simulation_one_model_call_and_no_tool(played):
    stage, status, _ = played
    assert status == 200
    assert [asked.path for asked in stage.model_asked] == ["/v1/responses"]
    assert stage.model_asked[0].body["input"] == "Weather?"


async def test_6_2_tool_simulation_verifies_without_a_seed(played):
    stage, _, _ = played
    assert [asked.path for asked in stage.asked] == ["/verify"]
    body: dict[str, Any] = stage.asked[0].body
    assert body["response"]["output"] == [CALL]
    assert (body["expected_call"], body["_ng_task_index"]) == ("get_weather", 2)
    assert body["responses_create_params"]["tools"] == [], "known parameters are there, nulls included"


async def test_6_2_tool_simulation_sends_no_cookies(played):
    stage, _, _ = played
    assert [asked.cookies for asked in [*stage.asked, *stage.model_asked]] == [{}, {}]


async def test_6_2_tool_simulation_answers_the_verdict_as_it_is(played):
    _, _, result = played
    assert result == {"reward": 0.5, "kept": True}


async def test_6_2_tool_simulation_leaves_the_call_open(http, simulation_url, upstream):
    upstream.plan(reply(CALL))
    told = await post(http, f"{simulation_url}/run", {**ROW, "city": "Oslo"})
    assert told.status == 200
    assert isinstance(told.json["reward"], float)
    (item,) = told.json["response"]["output"]
    assert CALL.items() <= item.items()
    assert upstream.posts() == 1
