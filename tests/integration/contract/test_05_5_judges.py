"""CONTRACT 5.5: what becomes of a verdict when its judge fails, is slow, or is left."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fakes.contract import until
from fakes.resources import ROW, SAID, post, served
from pydantic import Field
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gymctl.servers import (
    JudgeConfig,
    ResourcesServer,
    VerifyRequest,
    VerifyResponse,
)
from gymctl.servers.inprocess import serving


class Essay(VerifyRequest):
    essay: str
    instance_config: dict[str, Any] = Field(default_factory=dict)


class Essays(ResourcesServer):
    config: JudgeConfig

    async def verify(self, request: Essay) -> VerifyResponse:
        if request.essay == "twice":
            async with asyncio.TaskGroup() as group:
                asked = [group.create_task(self.judge.ask("broken")) for _ in range(2)]
            return request.scored(float(len(asked)))
        opinion = await self.judge.ask(request.essay, max_output_tokens=5)
        return request.scored(1.0 if opinion == "GOOD" else 0.0)


class JudgeModel:
    """`/v1/responses` that answers by what it is asked; knows what is being asked right now."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.active = 0
        self.most = 0
        self.left = asyncio.Event()
        self.awaited = 1
        """So many `slow` questions are waited for before the first of them is answered."""

    async def answer(self, request: Request) -> Response:
        body = json.loads(await request.body())
        self.bodies.append(body)
        question = body["input"]
        self.active += 1
        self.most = max(self.most, self.active)
        try:
            if question == "slow":
                await until(lambda: self.most >= self.awaited)
                await asyncio.sleep(0.1)  # for one that is too many
            if question == "slow for ever":
                await _gone_or(request, 60)
        finally:
            self.active -= 1
            self.left.set()
        if question == "broken":
            return JSONResponse({"error": "x" * 5000}, status_code=500)
        if question == "garbled":
            return Response(b"{", media_type="application/json")
        if question == "empty":
            return JSONResponse({})
        text = "GOOD" if question in ("good", "slow") else "what?"
        content = [{"type": "output_text", "text": text}]
        return JSONResponse({"output": [{"type": "message", "content": content}]})


async def _gone_or(request: Request, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not await request.is_disconnected():  # noqa: ASYNC110
        await asyncio.sleep(0.02)


@asynccontextmanager
async def judged(**settings: Any) -> AsyncIterator[tuple[str, JudgeModel]]:
    model = JudgeModel()
    reference = {"type": "responses_api_models", "name": "judge_model"}
    app = Starlette(routes=[Route("/v1/responses", model.answer, methods=["POST"])])
    async with (
        serving(app) as judge,
        served(Essays, {"judge_model": judge}, judge_model_server=reference, **settings) as (url, _),
    ):
        yield url, model


def essay(text: str, **more: Any) -> dict[str, Any]:
    return {**ROW, "response": SAID, "essay": text, **more}


async def test_5_5_a_judge_is_asked_with_the_parameters_of_the_block(http):
    async with judged(judge_responses_create_params={"temperature": 0.0, "max_output_tokens": 9}) as (
        url,
        model,
    ):
        status, verdict, _ = await post(http, f"{url}/verify", essay("good"))
        assert (status, verdict["reward"], verdict["mask_sample"]) == (200, 1.0, False)
        assert model.bodies == [{"temperature": 0.0, "max_output_tokens": 5, "input": "good"}]


async def test_5_5_an_unparsable_verdict_is_a_score(http):
    async with judged() as (url, _):
        _, verdict, _ = await post(http, f"{url}/verify", essay("unheard of"))
        assert (verdict["reward"], verdict["mask_sample"], verdict["failure_kind"]) == (0.0, False, None)
        assert "_ng_failure_class" not in verdict


@pytest.mark.parametrize("question", ["broken", "garbled", "empty", "slow for ever", "twice"])
async def test_5_5_a_failed_call_of_the_judge_masks_the_sample(http, question):
    async with judged(judge_timeout_seconds=0.3) as (url, _):
        body = essay(question, instance_config={"image": "x"}, undeclared=1)
        status, verdict, _ = await post(http, f"{url}/verify", body)
    assert status == 200
    assert (verdict["reward"], verdict["mask_sample"]) == (0.0, True)
    assert verdict["failure_kind"] == verdict["_ng_failure_class"] == "judge_failed"
    assert verdict["instance_config"] == {"image": "x", "mask_sample": True}
    reason = verdict["failure_reason"]
    assert reason == verdict["_ng_failure_judge_error"]
    assert reason.startswith("judge `judge_model`: ") and len(reason) <= 2000
    assert verdict["essay"] == question and verdict["response"] == SAID
    assert verdict["responses_create_params"]["input"] == "Weather?"
    assert "undeclared" not in verdict


async def test_5_5_an_unreachable_judge_masks_the_sample(http):
    reference = {"type": "responses_api_models", "name": "judge_model"}
    nobody = {"judge_model": "http://127.0.0.1:9"}
    settings = {"judge_model_server": reference, "judge_timeout_seconds": 0.3}
    async with served(Essays, nobody, **settings) as (url, _):
        _, verdict, _ = await post(http, f"{url}/verify", essay("good"))
    assert verdict["failure_kind"] == "judge_failed"
    assert "no answer within 0.3 s" in verdict["failure_reason"]


async def test_b64_one_slow_judgement_holds_nobody_up(http):
    async with judged() as (url, model):
        slow = asyncio.create_task(post(http, f"{url}/verify", essay("slow for ever")))
        while not model.active:  # noqa: ASYNC110 - a counter of the fake
            await asyncio.sleep(0.01)
        began = time.monotonic()
        answers = await asyncio.gather(*(post(http, f"{url}/verify", essay("good")) for _ in range(4)))
        assert all(answer[1]["reward"] == 1.0 for answer in answers) and not slow.done()
        assert time.monotonic() - began < 20
        slow.cancel()
        await asyncio.wait([slow])


async def test_b64_slow_judgements_run_side_by_side_up_to_the_limit(http):
    for limit, most in ((64, 8), (2, 2)):
        async with judged(judge_max_concurrency=limit) as (url, model):
            model.awaited = most
            answers = await asyncio.gather(*(post(http, f"{url}/verify", essay("slow")) for _ in range(8)))
            assert [answer[1]["reward"] for answer in answers] == [1.0] * 8
            assert model.most == most


async def test_b65_the_judge_is_left_when_the_caller_leaves(http):
    async with judged() as (url, model):
        caller = asyncio.create_task(post(http, f"{url}/verify", essay("slow for ever")))
        await until(lambda: model.active)
        caller.cancel()
        async with asyncio.timeout(20):
            await model.left.wait()
        assert model.active == 0
