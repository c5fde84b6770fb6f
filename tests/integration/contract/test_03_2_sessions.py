"""CONTRACT 3.2: the session of a caller, and the cookie that it travels in."""

from __future__ import annotations

import json
import logging
import time
import uuid
from base64 import b64decode, b64encode
from dataclasses import dataclass

import pytest
from fakes.contract import WITH_SESSION, WITHOUT_SESSION, cookies_of, sending
from fakes.odd_server import Odd
from itsdangerous import TimestampSigner

from gymctl.servers import ResourcesServer, SessionState, VerifyRequest, VerifyResponse, tool
from gymctl.servers.inprocess import make_part, serving
from gymctl.servers.stack.app import assemble

ROW = {"responses_create_params": {"input": "Weather?"}, "city": "Oslo"}


@pytest.mark.parametrize("server", WITH_SESSION)
async def test_3_2_the_cookie_has_the_form_of_the_contract(request, http, target, server):
    url = request.getfixturevalue(server)
    name = target.servers[server.removesuffix("_url")].name
    async with http.post(f"{url}/aggregate_metrics", json={"verify_responses": []}) as answer:
        (line,) = answer.headers.getall("set-cookie")
    pair, *attributes = (part.strip() for part in line.split(";"))
    key, _, value = pair.partition("=")
    assert key.partition("___")[2] == name or not name
    assert {attribute.lower() for attribute in attributes} == {
        "path=/",
        "max-age=1209600",
        "httponly",
        "samesite=lax",
    }
    payload, stamp, signature = value.rsplit(".", 2)
    assert stamp and signature
    session = json.loads(b64decode(payload))
    assert uuid.UUID(session["session_id"]).version == 4
    assert session.keys() == {"session_id"}


async def test_3_2_every_answer_sends_the_cookie_again_errors_too(http, stateful_url):
    async with http.post(f"{stateful_url}/get_counter_value", json={}) as answer:
        jar = cookies_of(answer)
    calls = [
        ("/get_counter_value", {}, 200),
        ("/verify", {}, 422),
        ("/nowhere", {}, 404),
        ("/verify", [], 422),
    ]
    for path, body, status in calls:
        async with http.post(stateful_url + path, json=body, headers=sending(jar)) as answer:
            assert answer.status == status
            assert cookies_of(answer).keys() == jar.keys()


@pytest.mark.parametrize("server", WITHOUT_SESSION)
async def test_3_2_environment_servers_have_no_session(request, target, http, server):
    url = request.getfixturevalue(server)
    async with http.post(f"{url}/nowhere", json={}) as answer:
        assert (answer.status, cookies_of(answer)) == (404, {})


def adding(amount: int) -> dict[str, int]:
    """NeMo Gym's counter calls it `count`."""
    return {"amount": amount, "count": amount}


async def count(http, url, jar) -> tuple[int, dict[str, str]]:
    async with http.post(f"{url}/get_counter_value", json={}, headers=sending(jar)) as answer:
        return (await answer.json())["count"], cookies_of(answer)


async def test_3_2_b57_a_client_that_keeps_only_the_latest_cookie_keeps_its_session(http, stateful_url):
    row = {**ROW, "initial_count": 3, "expected_count": 5}
    async with http.post(f"{stateful_url}/seed_session", json=row) as answer:
        jar = cookies_of(answer)
    for _ in range(2):
        async with http.post(
            f"{stateful_url}/increment_counter", json=adding(1), headers=sending(jar)
        ) as answer:
            jar = cookies_of(answer)
    response = {"id": "r", "created_at": 0, "model": "m", "object": "response", "output": []}
    response |= {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    async with http.post(
        f"{stateful_url}/verify", json={**row, "response": response}, headers=sending(jar)
    ) as answer:
        assert (await answer.json())["reward"] == 1.0


async def test_3_2_a_combined_jar_passes_through_servers(http, stateful_url, resources_url):
    async with http.post(f"{stateful_url}/increment_counter", json=adding(7)) as answer:
        jar = cookies_of(answer)
    async with http.post(
        f"{resources_url}/get_weather", json={"city": "Oslo"}, headers=sending(jar)
    ) as answer:
        jar = {**jar, **cookies_of(answer)}
    assert len(jar) == 2
    assert (await count(http, stateful_url, jar))[0] == 7


@pytest.mark.ours
async def test_3_2_b58_a_forged_cookie_begins_a_new_session(http, stateful_url):
    async with http.post(f"{stateful_url}/increment_counter", json={"amount": 7}) as answer:
        ((name, value),) = cookies_of(answer).items()
    victim = value.rsplit(".", 2)[0].encode()
    async with http.get(f"{stateful_url}/readyz") as answer:
        project = answer.headers["x-gymctl-project"]
    keys = [name, "Counter___counter", "counter", "", project, "a secret for tests"]
    forged = {TimestampSigner(key).sign(victim).decode() for key in keys}
    payload, stamp, signature = value.rsplit(".", 2)
    other = b64encode(b'{"session_id": "victim"}').decode()
    forged |= {
        f"{other}.{stamp}.{signature}",
        f"{payload}.{stamp}.",
        payload,
        f"{payload}.AAAAAA.{signature}",
    }
    for attempt in forged:
        found, fresh = await count(http, stateful_url, {name: attempt})
        assert found == 0
        assert fresh[name].rsplit(".", 2)[0] != payload
    assert (await count(http, stateful_url, {name: value}))[0] == 7, "the victim's state is as it was"


@pytest.mark.ours
async def test_3_2_b58_a_forged_cookie_is_told_without_its_value(http, caplog):
    server = assemble(Odd(make_part("odd", "resources_servers", "odd")))
    value = TimestampSigner("Odd___odd").sign(b64encode(b'{"session_id":"victim"}')).decode()
    async with (
        serving(server) as url,
        http.post(url + "/who", headers={"cookie": f"Odd___odd={value}"}) as answer,
    ):
        assert "victim" not in await answer.text()
    (line,) = (record.getMessage() for record in caplog.records if record.levelno == logging.WARNING)
    assert "Odd___odd is not signed with this project's key" in line
    assert value not in line


@pytest.mark.ours
async def test_3_2_a_cookie_of_fifteen_days_ago_is_too_old(http, caplog, monkeypatch):
    server = assemble(Odd(make_part("odd", "resources_servers", "odd")))
    async with serving(server) as url:
        async with http.post(f"{url}/who") as answer:
            first, jar = (await answer.json())["session"], cookies_of(answer)
        for days, is_kept in ((10, True), (15, False)):
            later = time.time() + days * 24 * 3600
            monkeypatch.setattr(TimestampSigner, "get_timestamp", lambda self, at=later: int(at))
            async with http.post(f"{url}/who", headers=sending(jar)) as answer:
                assert ((await answer.json())["session"] == first) == is_kept
    assert "Odd___odd is too old" in caplog.text


@dataclass
class Notes(SessionState):
    text: str = ""


class Notebook(ResourcesServer):
    @tool
    async def write(self, text: str, notes: Notes) -> str:
        notes.text = text
        return "written"

    @tool
    async def read(self, notes: Notes) -> str:
        return notes.text

    async def verify(self, request: VerifyRequest) -> VerifyResponse:
        return request.scored(reward=0.0)


@pytest.mark.ours
async def test_3_2_b59_ten_kilobytes_of_state_do_not_travel(http):
    text = "x" * 10_000
    async with serving(assemble(Notebook(make_part("notebook", "resources_servers", "notebook")))) as url:
        async with http.post(f"{url}/write", json={"text": text}) as answer:
            jar = cookies_of(answer)
            assert len(answer.headers["set-cookie"]) < 1024
        async with http.post(f"{url}/read", json={}, headers=sending(jar)) as answer:
            assert await answer.text() == text
