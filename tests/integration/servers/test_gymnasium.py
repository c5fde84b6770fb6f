"""Step-style servers as authors write them: state, releases, threads. The wire rules: contract/test_05_7."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar

import orjson
import pytest
from pydantic import BaseModel

from gymctl.errors import ConfigError
from gymctl.servers import (
    EnvRow,
    EnvServer,
    GymnasiumServer,
    InvalidAction,
    Reset,
    SessionState,
    Step,
    StepRequest,
)
from gymctl.servers.inprocess import make_part, serving
from gymctl.servers.resources.gymnasium_env import plain
from gymctl.servers.stack.app import assemble
from gymctl.transport import Answer


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
            await asyncio.sleep(0.1)
        if request.answer == "fail":
            raise ValueError("no")
        if request.calls:
            outputs = [{"call_id": call["call_id"], "output": "42"} for call in request.calls]
            return Step(info={"tool_outputs": outputs})
        if talk.questions:
            return Step(observation=talk.questions.pop(0))
        return Step(reward=float(request.expected_answer in request.answer), terminated=True)


@pytest.fixture(autouse=True)
def nothing_released() -> None:
    Talk.released.clear()
    Talk.fails = False


class Talker:
    """A client of one session: `reset`, `step` with a text, `close`."""

    def __init__(self, transport: Any, url: str, row: Mapping[str, Any]) -> None:
        self._transport, self._url, self._row = transport, url, row
        self.jar: dict[str, str] = {}

    async def post(self, path: str, body: Mapping[str, Any], **more: Any) -> Answer:
        answer = await self._transport.call(
            "POST", self._url + path, orjson.dumps(body), cookies=self.jar, **more
        )
        self.jar.update(answer.cookies)
        return answer

    async def reset(self) -> Answer:
        return await self.post("/reset", self._row)

    async def step(self, text: str, **more: Any) -> Answer:
        part = {"type": "output_text", "text": text}
        return await self.output([{"type": "message", "role": "assistant", "content": [part]}], **more)

    async def output(self, items: list[Any], **more: Any) -> Answer:
        body = {**self._row, "response": {"output": items}, **more.pop("fields", {})}
        return await self.post("/step", body, **more)


@asynccontextmanager
async def served(server: type[GymnasiumServer], **settings: Any) -> AsyncIterator[tuple[str, Any]]:
    made = server(make_part("env", "resources_servers", "env", {"domain": "games", **settings}))
    async with serving(assemble(made)) as url:
        yield url, made


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
    async with served(Interview) as (url, _):
        talk = Talker(transport, url, INTERVIEW)
        await talk.reset()
        steps = [asyncio.create_task(talk.step("wait")) for _ in range(2)]
        await asyncio.sleep(0.05)
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


# Environments of the gymnasium package


class Slow:
    """An environment that counts who is inside at the same moment, and may take its time."""

    def __init__(self) -> None:
        self.inside = self.most = self.steps = 0
        self.is_closed = False
        self.release = threading.Event()
        self.entered = threading.Event()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        if options == {"fail": True}:
            raise ValueError("no such world")
        return seed, {"options": options}

    def step(self, action: str) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.entered.set()
        if action == "block":
            self.release.wait(20)
        else:
            time.sleep(0.02)
        self.inside -= 1
        self.steps += 1
        return self.steps, 1.0, action == "end", False, {}

    def close(self) -> None:
        self.is_closed = True


class World(EnvServer):
    actions: ClassVar[Mapping[str, Any]] = {"go": "go", "block": "block", "end": "end"}

    def __init__(self, part: Any) -> None:
        super().__init__(part)
        self.made: list[Slow] = []

    def make(self, row: EnvRow) -> Slow:
        self.made.append(Slow())
        return self.made[-1]


WORLD = {"responses_create_params": {"input": "Go."}, "seed": 3}


async def test_seed_and_options_of_the_row_reach_the_environment(transport):
    async with served(World) as (url, _):
        start = (await Talker(transport, url, {**WORLD, "options": {"size": 4}}).reset()).json()
        assert start["observation"] == "3"
        assert start["info"]["options"] == {"size": 4}
        negative = await Talker(transport, url, {**WORLD, "seed": -1}).reset()
        assert negative.status == 422


async def test_a_slow_environment_keeps_neither_liveness_nor_other_sessions_waiting(transport):
    async with served(World) as (url, server):
        slow, quick = Talker(transport, url, WORLD), Talker(transport, url, WORLD)
        await slow.reset()
        await quick.reset()
        blocked = asyncio.create_task(slow.step("<action>block</action>"))
        await asyncio.to_thread(server.made[0].entered.wait, 10)
        async with asyncio.timeout(5):
            assert (await transport.call("GET", f"{url}/livez")).status == 200
            assert (await quick.step("<action>end</action>")).json()["terminated"]
        assert not blocked.done()
        server.made[0].release.set()
        assert (await blocked).json()["reward"] == 1.0


async def test_an_environment_sees_one_call_at_a_time_also_after_its_caller_left(transport):
    async with served(World) as (url, server):
        talk = Talker(transport, url, WORLD)
        await talk.reset()
        left = asyncio.create_task(talk.step("<action>block</action>"))
        [world] = server.made
        await asyncio.to_thread(world.entered.wait, 10)
        left.cancel()
        others = [asyncio.create_task(talk.step("<action>go</action>")) for _ in range(3)]
        await asyncio.sleep(0.1)
        world.release.set()
        assert [(await other).status for other in others] == [200, 200, 200]
        assert (world.most, world.steps) == (1, 4)


async def test_an_environment_is_closed_at_the_end_on_close_and_when_it_does_not_begin(transport):
    async with served(World) as (url, server):
        ended, closed = Talker(transport, url, WORLD), Talker(transport, url, WORLD)
        for talk in (ended, closed):
            await talk.reset()
        await ended.step("<action>end</action>")
        await closed.post("/close", {})
        broken = await Talker(transport, url, {**WORLD, "options": {"fail": True}}).reset()
        assert (broken.status, broken.json()) == (500, "ValueError('no such world')")
        assert [world.is_closed for world in server.made] == [True, True, True]
        assert len(server.sessions) == 0


async def test_an_environment_is_closed_when_the_server_stops(transport):
    async with served(World) as (url, server):
        await Talker(transport, url, WORLD).reset()
    assert [world.is_closed for world in server.made] == [True]


async def test_an_author_may_read_actions_in_a_way_of_their_own(transport):
    class Spoken(World):
        def action(self, turn: StepRequest, env: Any) -> Any:
            if "end" not in turn.answer:
                raise InvalidAction("Say when it ends.")
            return "end"

    async with served(Spoken) as (url, server):
        talk = Talker(transport, url, WORLD)
        await talk.reset()
        assert (await talk.step("hm")).json()["observation"] == "Say when it ends."
        assert server.made[0].steps == 0
        assert (await talk.step("the end")).json()["terminated"]


async def test_a_grid_world_of_the_package_is_wrapped_in_a_few_lines(transport):
    class Lake(EnvServer):
        actions: ClassVar[Mapping[str, Any]] = {"left": 0, "down": 1, "right": 2, "up": 3}

        def make(self, row: EnvRow) -> Any:
            import gymnasium

            return gymnasium.make("FrozenLake-v1", is_slippery=False, render_mode="ansi")

        def observe(self, env: Any, observation: Any) -> str:
            return env.render()

    async with served(Lake) as (url, _):
        talk = Talker(transport, url, WORLD)
        assert "FHFH" in (await talk.reset()).json()["observation"]
        for move in ("down", "down", "right", "right", "down"):
            step = (await talk.step(f"<action>{move}</action>")).json()
            assert (step["terminated"], "prob" in step["info"]) == (False, True)
        last = (await talk.step("<action>Right</action>")).json()
        assert (last["reward"], last["terminated"]) == (1.0, True)


def test_what_environments_report_becomes_json():
    import numpy

    reported = {
        "mask": numpy.array([1, 0]),
        "score": numpy.float32(0.5),
        "bad": float("nan"),
        3: (numpy.int64(2), {"x"}),
        "object": SimpleNamespace(a=1),
    }
    assert plain(reported) == {
        "mask": [1, 0],
        "score": 0.5,
        "bad": "nan",
        "3": [2, ["x"]],
        "object": "namespace(a=1)",
    }


def test_a_reset_may_come_with_info():
    assert Reset(observation="x", info={"seed": 3}).offers("seed") is False
    assert Reset(info={"supports_explicit_close": True}).offers("supports_explicit_close")
