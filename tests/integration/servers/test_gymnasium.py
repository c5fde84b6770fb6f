"""Step-style servers as authors write them: state, releases, threads. The wire rules: contract/test_05_7."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
from fakes.contract import until
from fakes.talking import Talker, served
from pydantic import BaseModel
from starlette.responses import Response

from gymctl.errors import ConfigError
from gymctl.servers import GymnasiumServer, Reset, SessionState, Step, StepRequest
from gymctl.servers.inprocess import make_part


@dataclass
class Talk(SessionState):
    questions: list[str] = field(default_factory=list)
    steps: int = 0
    released: ClassVar[list[int]] = []
    fails: ClassVar[bool] = False

    async def close(self) -> None:
        if Talk.fails:
            raise OSError("still in use")
        Talk.released.append(self.steps)


class Questions(BaseModel):
    follow_ups: list[str] = []


class Answered(StepRequest):
    expected_answer: str


class Interview(GymnasiumServer):
    """Asks the row's follow-ups one by one; the last answer is scored."""

    supports_explicit_close = True

    async def reset(self, row: Questions, talk: Talk) -> None:
        talk.questions = list(row.follow_ups)

    async def step(self, request: Answered, talk: Talk) -> Step:
        talk.steps += 1
        if request.answer == "wait":
            await asyncio.sleep(0.4)
        if request.answer == "fail":
            raise ValueError("no")
        if request.calls:
            outputs = [{"call_id": call["call_id"], "output": "42"} for call in request.calls]
            return Step(info={"tool_outputs": outputs})
        if talk.questions:
            return Step(observation=talk.questions.pop(0))
        return Step(reward=float(request.expected_answer in request.answer), terminated=True)


class Counted(Interview):
    arrived = 0
    """Steps that were asked for."""

    async def _stepped(self, session_id: str, body: dict[str, Any]) -> Response:
        self.arrived += 1
        return await super()._stepped(session_id, body)


@pytest.fixture(autouse=True)
def nothing_released() -> None:
    Talk.released.clear()
    Talk.fails = False


INTERVIEW = {
    "responses_create_params": {"input": "Where?"},
    "follow_ups": ["When?", "Why?"],
    "expected_answer": "tower",
}


async def test_an_episode_is_played_with_state_and_released_at_its_end(transport):
    async with served(Interview) as (url, server):
        talk = Talker(transport, url, INTERVIEW)
        assert (await talk.reset()).json()["observation"] is None
        assert (await talk.step("here")).json()["observation"] == "When?"
        assert (await talk.step("now")).json()["observation"] == "Why?"
        last = (await talk.step("for the tower")).json()
        assert (last["reward"], last["terminated"]) == (1.0, True)
        assert Talk.released == [3]
        assert len(server.sessions) == 0
        again = await talk.step("more")
        assert again.status == 409
        assert again.json() == {"detail": "no episode in this session; POST /reset begins one"}


async def test_tool_calls_are_the_steps_to_answer(transport):
    async with served(Interview) as (url, _):
        talk = Talker(transport, url, INTERVIEW)
        await talk.reset()
        call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
        step = (await talk.output([call])).json()
        assert step["info"] == {"tool_outputs": [{"call_id": "c1", "output": "42"}]}


async def test_a_second_reset_begins_anew_and_releases_the_first(transport):
    async with served(Interview) as (url, server):
        talk = Talker(transport, url, INTERVIEW)
        await talk.reset()
        await talk.step("here")
        await talk.reset()
        assert Talk.released == [1]
        assert (await talk.step("here")).json()["observation"] == "When?"
        assert len(server.sessions) == 1


async def test_steps_of_one_session_happen_one_after_the_other_and_close_waits_for_them(transport):
    async with served(Counted) as (url, server):
        talk = Talker(transport, url, INTERVIEW)
        await talk.reset()
        steps = [asyncio.create_task(talk.step("wait")) for _ in range(2)]
        await until(lambda: server.arrived == 2)
        closed = await talk.post("/close", {})
        answers = [(await step).json() for step in steps]
        assert closed.status == 200
        told = [answer.get("observation") or answer["detail"] for answer in answers]
        assert sorted(told) == ["When?", "Why?"]
        assert Talk.released == [2]


async def test_a_step_that_waited_for_the_last_one_finds_the_episode_over(transport):
    async with served(Interview) as (url, _):
        talk = Talker(transport, url, {**INTERVIEW, "follow_ups": None})
        await talk.reset()
        both = await asyncio.gather(talk.step("wait"), talk.step("wait"))
        assert sorted(answer.status for answer in both) == [200, 409]


async def test_a_step_with_the_same_id_or_key_happens_once(transport):
    async with served(Interview) as (url, _):
        talk = Talker(transport, url, INTERVIEW)
        await talk.reset()
        by_id = [await talk.step("x", fields={"_ng_step_request_id": "a"}) for _ in range(3)]
        assert [answer.json()["observation"] for answer in by_id] == ["When?"] * 3
        by_key = [await talk.step("x", key="b") for _ in range(2)]
        assert [answer.json()["observation"] for answer in by_key] == ["Why?"] * 2


async def test_an_id_of_one_session_says_nothing_in_another(transport):
    async with served(Interview) as (url, _):
        for _ in range(2):
            talk = Talker(transport, url, INTERVIEW)
            await talk.reset()
            step = await talk.step("x", fields={"_ng_step_request_id": "same"})
            assert step.json()["observation"] == "When?"


async def test_a_release_that_fails_at_the_end_keeps_the_answer_and_is_tried_again(transport):
    async with served(Interview) as (url, server):
        talk = Talker(transport, url, {**INTERVIEW, "follow_ups": []})
        await talk.reset()
        Talk.fails = True
        last = (await talk.step("tower")).json()
        assert (last["reward"], last["terminated"]) == (1.0, True)
        assert "still in use" in last["info"]["cleanup_warning"]
        assert (await talk.post("/close", {})).status == 500
        assert (await talk.step("tower")).status == 409
        Talk.fails = False
        assert (await talk.post("/close", {})).status == 200
        assert (Talk.released, len(server.sessions)) == ([1], 0)


async def test_a_step_that_fails_keeps_the_episode_and_close_releases_it(transport):
    async with served(Interview) as (url, server):
        talk = Talker(transport, url, INTERVIEW)
        await talk.reset()
        failed = await talk.step("fail")
        assert (failed.status, failed.json()) == (500, "ValueError('no')")
        assert len(server.sessions) == 1
        await talk.post("/close", {})
        assert len(server.sessions) == 0


async def test_a_row_or_response_that_does_not_fit_is_refused_with_its_place(transport):
    async with served(Interview) as (url, _):
        row = {**INTERVIEW, "follow_ups": "When?"}
        refused = await Talker(transport, url, row).reset()
        assert (refused.status, refused.json()["detail"][0]["loc"]) == (422, ["body", "follow_ups"])
        talk = Talker(transport, url, INTERVIEW)
        await talk.reset()
        without = await talk.post("/step", INTERVIEW)
        assert (without.status, without.json()["detail"][0]["loc"]) == (422, ["body", "response"])


def test_what_a_step_style_server_cannot_have_is_refused_at_the_start():
    def made(workers: int = 1, **settings: Any) -> None:
        part = make_part("env", "resources_servers", "env", {"domain": "games", **settings})
        Interview(part.model_copy(update={"workers": workers}))

    with pytest.raises(ConfigError, match="num_workers"):
        made(workers=2)

    class Wrong(Interview):
        async def step(self, request: Questions) -> Step:  # type: ignore[override]
            return Step()

    with pytest.raises(TypeError, match="must extend StepRequest"):
        Wrong(make_part("env", "resources_servers", "env", {}))


def test_a_reset_may_come_with_info():
    assert Reset(observation="x", info={"seed": 3}).offers("seed") is False
    assert Reset(info={"supports_explicit_close": True}).offers("supports_explicit_close")
