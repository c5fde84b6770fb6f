"""What gymctl.testing gives an author for one server: calls, sessions, a scripted model behind it, errors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from pydantic import BaseModel

from gymctl.errors import ConfigError
from gymctl.servers import (
    AgentServer,
    ResourcesConfig,
    ResourcesServer,
    ServerRef,
    SessionState,
    VerifyRequest,
    VerifyResponse,
    checked,
    tool,
)
from gymctl.testing import ScriptedModel, call, fault, message, serving
from gymctl.transport import TransportError


@dataclass
class Notes(SessionState):
    texts: tuple[str, ...] = ()


class Row(BaseModel):
    first: str


class Wanted(VerifyRequest):
    wanted: str


class JudgeConfig(ResourcesConfig):
    judge: ServerRef
    rounds: int = 1


class Judged(ResourcesServer):
    config: JudgeConfig

    async def seed(self, row: Row, notes: Notes) -> None:
        notes.texts = (row.first,)

    @tool
    async def note(self, text: str, notes: Notes) -> list[str]:
        """Write a text down."""
        notes.texts += (text,)
        return list(notes.texts)

    @tool
    async def hello(self) -> str:
        """Say hello."""
        return "hello"

    async def verify(self, request: Wanted) -> VerifyResponse:
        question = {"input": f"Does {request.answer!r} say {request.wanted!r}?"}
        answer = checked(await self.client.call(self.config.judge, "/v1/responses", question))
        verdict = answer.json()["output"][0]["content"][0]["text"]
        return request.scored(reward=float(verdict == "yes"))


SETTINGS = {"judge": {"type": "responses_api_models", "name": "judge_model"}}


class Echo(AgentServer):
    async def respond(self, params, turn):
        return checked(await self.client.call("policy_model", "/v1/responses", params)).json()


@pytest.fixture
async def judged() -> AsyncIterator[tuple]:
    async with (
        ScriptedModel(["yes", "no"]) as judge,
        serving(Judged, SETTINGS, servers={"judge_model": judge}) as server,
    ):
        yield server, judge


async def test_a_session_keeps_its_cookie_and_another_is_apart(judged) -> None:
    server, _ = judged
    assert await server.seed(first="a") == {}
    assert await server.call("note", text="b") == ["a", "b"]
    other = server.session()
    assert await other.call("note", text="c") == ["c"]
    assert await server.call("note", text="d") == ["a", "b", "d"]
    assert await server.call("hello") == "hello"
    assert server.server.config.rounds == 1


async def test_the_model_behind_it_follows_its_script_and_remembers(judged) -> None:
    server, judge = judged
    assert (await server.verify("It snows.", wanted="snow"))["reward"] == 1.0
    said = {"output": [message("It rains.")]}
    assert (await server.verify(said, wanted="snow"))["reward"] == 0.0
    assert [body["input"] for body in judge.requests] == [
        "Does 'It snows.' say 'snow'?",
        "Does 'It rains.' say 'snow'?",
    ]


async def test_a_request_beyond_the_script_says_so(judged) -> None:
    server, judge = judged
    for _ in range(2):
        await server.verify("x", wanted="x")
    with pytest.raises(
        AssertionError, match=r"/verify was answered with 500: .*2 answers, and this is request 3"
    ):
        await server.verify("x", wanted="x")
    assert len(judge.requests) == 3


async def test_what_the_caller_did_wrong_is_in_the_message(judged) -> None:
    server, _ = judged
    with pytest.raises(AssertionError, match=r"POST /verify was answered with 422: .*wanted.*Field required"):
        await server.verify("x")
    assert (await server.post("/note", b"{")).status == 422
    assert (await server.get("/reverify_mode")).json() == "unknown"


async def test_faults_and_several_items_and_whole_responses() -> None:
    script = [
        [call("note", text="a"), "And then?"],
        {"output": [], "status": "incomplete"},
        fault(503, "busy"),
        fault(),
    ]
    async with ScriptedModel(script) as model, serving(Echo, servers={"policy_model": model}) as agent:
        first = await agent.respond("go", temperature=0)
        assert [item["type"] for item in first["output"]] == ["function_call", "message"]
        assert first["output"][0]["arguments"] == '{"text": "a"}'
        assert (await agent.respond("go"))["status"] == "incomplete"
        with pytest.raises(AssertionError, match="busy"):
            await agent.respond("go")
        with pytest.raises(AssertionError, match="transport_peer_drop"):
            await agent.respond("go")
    assert model.requests[0] == {"input": "go", "temperature": 0}
    assert model.paths == ["/v1/responses"] * 4


async def test_the_scripted_model_speaks_chat_and_refuses_what_a_model_server_refuses() -> None:
    async with ScriptedModel(lambda body, number: f"{number}") as model, serving(Echo) as other:
        caller = other.session()
        caller.url = model.url
        chat = await caller.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]})
        assert chat.json()["choices"][0]["message"]["content"] == "1"
        assert (await caller.post("/v1/responses", {"input": "x", "colour": 1})).status == 422
        await caller.respond("x")
    assert model.asked[0].session_id == model.asked[2].session_id, "the cookie came back"


async def test_a_block_that_does_not_fit_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="`rounds`"):
        async with serving(Judged, {**SETTINGS, "rounds": "many"}):
            pass


async def test_a_key_that_the_server_does_not_know_is_refused_as_in_a_project() -> None:
    with pytest.raises(ConfigError, match="does not know `session_idle_second`") as caught:
        async with serving(Judged, {"session_idle_second": 5}):
            pass
    assert caught.value.hint == "did you mean `session_idle_seconds`?"


async def test_what_fails_at_the_start_is_raised() -> None:
    class Unready(Echo):
        async def startup(self) -> None:
            raise LookupError("no weights")

    with pytest.raises(LookupError, match="no weights"):
        async with serving(Unready):
            pass


async def test_nothing_listens_after_the_block() -> None:
    async with serving(Echo) as agent, serving(Echo) as caller:
        gone = agent.url
    async with serving(Echo) as caller:
        caller.url = gone
        with pytest.raises(TransportError):
            await caller.get("/")
