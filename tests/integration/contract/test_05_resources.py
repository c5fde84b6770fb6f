"""CONTRACT 5: resources servers, with the golden exchanges A6 to A9."""

from __future__ import annotations

import asyncio
import logging
import math
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from fakes.contract import sending
from fakes.resources import ROW, SAID, closing, post, served, typed
from pydantic import BaseModel

from gymctl.servers import (
    MultiRewardResponse,
    ResourcesServer,
    SessionState,
    VerifyRequest,
    VerifyResponse,
    tool,
)

RELEASED: set[str] = set()


# 5.1, 5.2: routes and the two bodies of a seed, with A6 to A9


async def test_a6_a_flat_seed_is_answered_with_an_empty_object_and_a_cookie(http, resources_url):
    async with http.post(f"{resources_url}/seed_session", json={**ROW, "city": "Oslo"}) as answer:
        assert (answer.status, await answer.read()) == (200, b"{}")
        (cookie,) = answer.headers.getall("set-cookie")
    name, _, rest = cookie.partition("=")
    assert "___" in name and rest.startswith("eyJ")


@pytest.fixture
def fresh() -> str:
    """A session id that no other test, and no other run against the same target, has used."""
    return f"resources-session-{uuid.uuid4().hex}"


async def test_a7_a_typed_seed_and_its_close_echo_the_id(http, resources_url, fresh):
    status, seeded, jar = await post(http, f"{resources_url}/seed_session", typed(fresh, city="Oslo"))
    assert status == 200 and jar
    assert seeded == {"resources_session_id": fresh, "resources_tools": None, "sandbox_access": None}
    for name in (fresh, f"{fresh}-never-seen"):
        status, closed, _ = await post(http, f"{resources_url}/close_session", closing(name))
        assert (status, closed) == (200, {"resources_session_id": name})


async def test_a8_a_tool_answers_its_json_and_an_unknown_tool_404(http, resources_url):
    _, _, jar = await post(http, f"{resources_url}/seed_session", {**ROW, "city": "Oslo"})
    status, answer, _ = await post(http, f"{resources_url}/get_weather", {"city": "Oslo"}, jar)
    assert (status, answer["city"]) == (200, "Oslo")
    status, answer, _ = await post(http, f"{resources_url}/get_wether", {}, jar)
    assert (status, answer) == (404, {"detail": "Not Found"})


async def test_a9_verify_echoes_the_question_and_drops_undeclared_fields(http, resources_url):
    _, _, jar = await post(http, f"{resources_url}/seed_session", {**ROW, "city": "Oslo"})
    body = {**ROW, "response": SAID, "city": "Oslo", "_ng_task_index": 3}
    status, verdict, _ = await post(http, f"{resources_url}/verify", body, jar)
    assert status == 200
    assert (verdict["reward"], verdict["mask_sample"]) == (1.0, False)
    assert verdict["failure_kind"] is verdict["failure_reason"] is None
    params = verdict["responses_create_params"]
    assert (params["input"], params["parallel_tool_calls"], params["tools"]) == ("Weather?", True, [])
    assert verdict["response"]["output"][-1]["content"][0]["text"] == "Oslo has snow at -4 degrees."
    assert "city" not in verdict and "_ng_task_index" not in verdict


async def test_a9_verify_without_its_fields_names_them(http, resources_url):
    status, answer, _ = await post(http, f"{resources_url}/verify", {})
    assert status == 422
    missing = {tuple(error["loc"]) for error in answer["detail"]}
    assert {("body", "responses_create_params"), ("body", "response")} <= missing


async def test_5_1_the_reverify_mode_is_a_json_string(http, resources_url):
    async with http.get(f"{resources_url}/reverify_mode") as answer:
        assert await answer.json() in ("stateless", "unsupported", "unknown")


async def test_5_1_an_empty_aggregation(http, resources_url):
    status, answer, _ = await post(http, f"{resources_url}/aggregate_metrics", {"verify_responses": []})
    assert (status, answer) == (
        200,
        {
            "group_level_metrics": [],
            "agent_metrics": {},
            "key_metrics": {},
            "perf_summary": None,
            "repeat_level_metrics": [],
        },
    )


@pytest.mark.parametrize(
    ("path", "body"),
    [
        pytest.param("seed_session", typed("r-x"), marks=pytest.mark.ours),
        ("close_session", closing("r-x")),
    ],
)
async def test_5_1_an_unknown_key_of_a_typed_body_is_422(http, resources_url, path, body):
    status, answer, _ = await post(http, f"{resources_url}/{path}", {**body, "colour": 1})
    assert (status, answer["detail"][0]["type"]) == (422, "extra_forbidden")


async def test_5_2_a_row_with_a_column_of_that_name_is_still_flat(http, resources_url):
    body = {**ROW, "resources_session_id": "mine", "episode_id": 7}
    assert (await post(http, f"{resources_url}/seed_session", body))[:2] == (200, {})


@pytest.mark.ours
async def test_5_2_a_typed_seed_without_an_episode_is_422(http, resources_url):
    body = typed("r-y")
    del body["episode_id"]
    status, answer, _ = await post(http, f"{resources_url}/seed_session", body)
    assert (status, answer["detail"][0]["loc"]) == (422, ["body", "episode_id"])


# 5.3: sessions


async def test_5_3_1_an_identical_seed_gets_the_same_answer(http, sessions_url, fresh):
    status, first, jar = await post(http, f"{sessions_url}/seed_session", typed(fresh, initial_count=5))
    assert (status, first["resources_session_id"]) == (200, fresh)
    assert jar
    status, again, _ = await post(http, f"{sessions_url}/seed_session", typed(fresh, initial_count=5))
    assert (status, again) == (200, first)


@pytest.mark.ours
async def test_5_3_1_an_identical_seed_joins_its_session(http, stateful_url, fresh):
    _, _, jar = await post(http, f"{stateful_url}/seed_session", typed(fresh, initial_count=5))
    await post(http, f"{stateful_url}/increment_counter", {"amount": 1}, jar)
    _, _, jar = await post(http, f"{stateful_url}/seed_session", typed(fresh, initial_count=5))
    _, value, _ = await post(http, f"{stateful_url}/get_counter_value", {}, jar)
    assert value == {"count": 6}


async def test_5_3_2_repeated_close_is_fine(http, sessions_url, fresh):
    await post(http, f"{sessions_url}/seed_session", typed(fresh, initial_count=5))
    for name in (fresh, fresh, f"{fresh}-never-seeded"):
        status, closed, _ = await post(http, f"{sessions_url}/close_session", closing(name))
        assert (status, closed) == (200, {"resources_session_id": name})


async def test_5_3_3_a_seed_after_a_close_is_refused(http, sessions_url, fresh):
    assert (await post(http, f"{sessions_url}/seed_session", typed(fresh, initial_count=5)))[0] == 200
    for name in (fresh, f"{fresh}-never-seeded"):
        assert (await post(http, f"{sessions_url}/close_session", closing(name)))[0] == 200
        status, _, _ = await post(http, f"{sessions_url}/seed_session", typed(name, initial_count=5))
        assert status >= 400


@dataclass
class Held(SessionState):
    name: str = ""
    fails: int = 0

    async def close(self) -> None:
        if self.fails:
            self.fails -= 1
            raise OSError("still busy")
        RELEASED.add(self.name)


class Holder(ResourcesServer):
    """Its sessions hold something that may refuse to be released."""

    async def seed(self, row: Holding, held: Held) -> None:
        if row.is_broken:
            raise RuntimeError("no room in here")
        await asyncio.sleep(0.02)
        held.name, held.fails = row.name, row.fails

    @tool
    async def name(self, held: Held) -> str:
        return held.name

    async def verify(self, request: VerifyRequest, held: Held) -> VerifyResponse:
        if request.answer == "raise":
            raise RuntimeError("the verifier broke")
        return request.scored(1.0)


class Holding(BaseModel):
    name: str = ""
    fails: int = 0
    is_broken: bool = False


async def test_5_3_4_a_session_that_is_not_released_can_be_closed_again(http):
    async with served(Holder) as (url, server):
        await post(http, f"{url}/seed_session", typed("s-4", name="s-4", fails=1))
        status, answer, _ = await post(http, f"{url}/close_session", closing("s-4"))
        assert (status, answer) == (500, "OSError('still busy')")
        assert len(server.sessions) == 1 and "s-4" not in RELEASED
        assert (await post(http, f"{url}/close_session", closing("s-4")))[0] == 200
        assert len(server.sessions) == 0 and "s-4" in RELEASED


async def test_5_3_5_the_cookie_of_a_typed_seed_leads_to_the_session_of_its_id(http):
    async with served(Holder) as (url, server):
        _, _, jar = await post(http, f"{url}/seed_session", typed("s-5", name="five"))
        async with http.post(f"{url}/name", json={}, headers=sending(jar)) as answer:
            assert await answer.text() == "five"
        await post(http, f"{url}/close_session", closing("s-5"))
        assert "five" in RELEASED and len(server.sessions) == 0


async def test_b61_a_late_call_is_told_that_its_session_is_over(http):
    async with served(Holder, session_idle_seconds=0.4) as (url, server):
        server.sessions._idle_seconds = 3600  # nobody is idle before both are where they should be
        _, _, closed = await post(http, f"{url}/seed_session", typed("late", name="x"))
        await post(http, f"{url}/close_session", closing("late"))
        _, _, idle = await post(http, f"{url}/seed_session", {**ROW, "name": "y"})
        server.sessions._idle_seconds = 0.4
        async with asyncio.timeout(30):
            while len(server.sessions):  # noqa: ASYNC110 - the server's own sweep is what we wait for
                await asyncio.sleep(0.05)
        for jar, why in ((closed, "it was closed"), (idle, "`session_idle_seconds`")):
            for path, body in (("name", {}), ("verify", {**ROW, "response": SAID})):
                status, answer, _ = await post(http, f"{url}/{path}", body, jar)
                assert status == 410
                assert answer["detail"].startswith("session expired: ") and why in answer["detail"]
        assert (await post(http, f"{url}/verify", {**ROW, "response": SAID}))[0] == 200
        assert (await post(http, f"{url}/seed_session", {**ROW, "name": "z"}, idle))[0] == 200


async def test_b61_sessions_end_after_their_verdict_also_when_the_verifier_breaks(http):
    said = {"output": [{"type": "message", "content": [{"type": "output_text", "text": "raise"}]}]}
    async with served(Holder, max_sessions=1) as (url, server):
        for name in "abc":
            _, _, jar = await post(http, f"{url}/seed_session", {**ROW, "name": name})
            status, _, _ = await post(http, f"{url}/verify", {**ROW, "response": said}, jar)
            assert status == 500
        assert len(server.sessions) == 1


class Careless(ResourcesServer):
    async def verify(self, request: VerifyRequest) -> Any:
        return 1.0


async def test_5_4_a_verifier_that_returns_no_verdict_is_told_so(http):
    async with served(Careless) as (url, _):
        status, answer, _ = await post(http, f"{url}/verify", {**ROW, "response": SAID})
    assert status == 500
    assert "Careless.verify returned a float, not a VerifyResponse" in answer


async def test_b61_a_seed_that_fails_keeps_no_session(http):
    async with served(Holder, max_sessions=1) as (url, server):
        for body in ({**ROW, "is_broken": True}, {**ROW, "name": []}, typed("s-9", is_broken=True)):
            assert (await post(http, f"{url}/seed_session", body))[0] in (422, 500)
        assert len(server.sessions) == 0


async def test_b62_one_session_too_many_is_told_the_limit_its_key_and_when_to_come_back(http):
    async with served(Holder, max_sessions=2) as (url, _):
        for name in "ab":
            assert (await post(http, f"{url}/seed_session", typed(name, name=name)))[0] == 200
        async with http.post(f"{url}/seed_session", json=typed("c", name="c")) as refused:
            assert refused.status == 503
            assert int(refused.headers["retry-after"]) > 0
            detail = (await refused.json())["detail"]
        assert "all 2 sessions" in detail and "`max_sessions`" in detail
        await post(http, f"{url}/close_session", closing("a"))
        assert (await post(http, f"{url}/seed_session", typed("c", name="c")))[0] == 200


async def test_b63_two_first_calls_at_once_make_one_session(http):
    async with served(Holder) as (url, server):
        _, _, jar = await post(http, f"{url}/seed_session", {**ROW, "name": "before"})
        for body, cookies, headers in (
            ({**ROW, "name": "both"}, jar, {}),
            ({**ROW, "name": "keyed"}, None, {"idempotency_key": "k-1"}),
            (typed("s-6", name="typed"), None, {}),
        ):
            count = len(server.sessions)
            answers = await asyncio.gather(
                *(post(http, f"{url}/seed_session", body, cookies, **headers) for _ in range(2))
            )
            assert [answer[0] for answer in answers] == [200, 200]
            assert len(server.sessions) == count + (cookies is None)
            for _, _, given in answers:
                async with http.post(f"{url}/name", json={}, headers=sending(given)) as answer:
                    assert await answer.text() == (body.get("name") or "typed")
        answers = await asyncio.gather(
            *(post(http, f"{url}/close_session", closing("s-6")) for _ in range(2))
        )
        assert [answer[0] for answer in answers] == [200, 200]


# 5.4: verdicts


class Lenient(VerifyRequest):
    city: str = "Rome"
    kind: str | None = None


class Detailed(MultiRewardResponse):
    city: str


class Critic(ResourcesServer):
    async def verify(self, request: Lenient) -> Detailed:
        components = {"style": 0.5, "truth": math.nan if request.city == "Nowhere" else 1.0}
        masked = (
            {"mask_sample": True, "failure_kind": request.kind, "failure_reason": "x"} if request.kind else {}
        )
        return Detailed.of(request, reward=0.75, reward_components=components, **masked)


async def test_5_4_declared_fields_stay_and_several_rewards_go_along(http):
    async with served(Critic) as (url, _):
        _, verdict, _ = await post(http, f"{url}/verify", {**ROW, "response": SAID, "city": "Oslo", "b": 1})
        assert (verdict["city"], verdict["reward"]) == ("Oslo", 0.75)
        assert verdict["reward_components"] == {"style": 0.5, "truth": 1.0}
        assert "b" not in verdict and "kind" not in verdict
        status, answer, _ = await post(http, f"{url}/verify", {**ROW, "response": SAID, "city": "Nowhere"})
        assert status == 500 and "finite" in answer


async def test_5_4_unknown_failure_kinds_are_kept_and_warned_about_once(http, caplog):
    async with served(Critic) as (url, _):
        for kind in ("sandbox_lost", "sandbox_lost", "verifier_error", "critic:no_style"):
            with caplog.at_level(logging.WARNING, "gymctl.server"):
                _, verdict, _ = await post(http, f"{url}/verify", {**ROW, "response": SAID, "kind": kind})
            assert (verdict["mask_sample"], verdict["failure_kind"]) == (True, kind)
            assert verdict["failure_reason"] == "x"
    told = [record.getMessage() for record in caplog.records if "failure_kind" in record.getMessage()]
    assert len(told) == 1 and "'sandbox_lost'" in told[0]


@pytest.fixture(autouse=True)
def _nothing_is_left_in_released() -> Iterator[None]:
    yield
    RELEASED.clear()
