"""Environments of the gymnasium package behind a step-style server: threads, release, what they report."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, ClassVar

from fakes.talking import Talker, served

from gymctl.servers import EnvRow, EnvServer, InvalidAction, StepRequest
from gymctl.servers.resources.gymnasium_env import plain


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
            self.release.wait(90)
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
        assert await asyncio.to_thread(server.made[0].entered.wait, 30)
        async with asyncio.timeout(30):
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
        assert await asyncio.to_thread(world.entered.wait, 30)
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
