"""CONTRACT 3: what every server does, whatever its kind."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
import uuid
from base64 import b64decode, b64encode
from dataclasses import dataclass
from pathlib import Path

import pytest
from fakes.contract import Process, cookies_of, free_port, sending, until
from fakes.openai_upstream import OpenAIUpstream, Reply
from itsdangerous import TimestampSigner
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from gymctl.contract.part import HttpSettings, Pool, ServerPart
from gymctl.paths import bundled
from gymctl.servers import (
    Json,
    ResourcesServer,
    Server,
    SessionState,
    VerifyRequest,
    VerifyResponse,
    tool,
)
from gymctl.servers.inprocess import make_part, serving, serving_folder
from gymctl.servers.stack import serve
from gymctl.servers.stack.app import assemble

IMAGES = bundled() / "server_images"
LIVENESS = ("/", "/livez", "/readyz", "/healthz", "/health")
WITH_SESSION = ("resources_url", "stateful_url", "agent_url", "model_url")
WITHOUT_SESSION = ("environment_url", "native_environment_url")
AGENT_BLOCK = {
    "model_server": {"type": "responses_api_models", "name": "policy_model"},
    "resources_server": {"type": "resources_servers", "name": "weather"},
}
ROW = {"responses_create_params": {"input": "Weather?"}, "city": "Oslo"}


# 3.1


@pytest.mark.parametrize("server", WITH_SESSION + WITHOUT_SESSION)
async def test_3_1_every_server_answers_its_liveness_routes(request, target, http, server):
    url = request.getfixturevalue(server)
    for path in LIVENESS:
        async with http.get(url + path) as answer:
            assert answer.status == 200
            assert answer.content_type == "application/json"
            assert await answer.json() == {"status": "ok"}


# 3.2


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


# 3.3


async def test_3_3_a_resources_server_takes_the_prefix_on_any_path(http, resources_url):
    for path in ("/ng-rollout/3-0/get_weather", "/ng-rollout/A.b_c-9/get_weather"):
        async with http.post(resources_url + path, json={"city": "Oslo"}) as answer:
            assert answer.status == 200
    async with http.post(f"{resources_url}/ng-rollout/3-0/verify", json={}) as answer:
        assert answer.status == 422
    for path in ("/ng-rollout/-x/get_weather", "/ng-rollout/a%20b/get_weather", "/ng-rollout//get_weather"):
        async with http.post(resources_url + path, json={"city": "Oslo"}) as answer:
            assert answer.status == 404, path


@pytest.mark.parametrize("prefix", ["/ng-rollout/3-0", "/ng-rollout/any text!", "/ng-rollout/-x"])
@pytest.mark.parametrize("capture", ["", "/training-token-capture"])
@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions"])
async def test_3_3_a_model_server_takes_both_forms_on_any_path(
    http, model_url, upstream, prefix, capture, path
):
    body = {"input": "hi"} if path == "/v1/responses" else {"messages": [{"role": "user", "content": "hi"}]}
    async with http.post(model_url + prefix + capture + path, json=body) as answer:
        assert answer.status == 200
    assert upstream.posts() == 1
    assert "ng-rollout" not in upstream.asked[-1].path


@pytest.mark.parametrize("prefix", ["/ng-rollout/3-0", "/ng-rollout/3-0/training-token-capture"])
async def test_3_3_an_agent_takes_both_forms_for_responses_only(http, agent_url, upstream, prefix):
    async with http.post(f"{agent_url}{prefix}/v1/responses", json={"input": "hi"}) as answer:
        assert answer.status == 200
    assert upstream.posts() == 1
    for path in ("/run", "/aggregate_metrics", "/v1/agent_sessions"):
        async with http.post(agent_url + prefix + path, json={}) as answer:
            assert answer.status == 404


@pytest.mark.ours
@pytest.mark.parametrize("prefix", ["", "/ng-rollout/3-0", "/ng-rollout/3-0/training-token-capture"])
async def test_3_3_an_agent_puts_the_prefix_before_its_model_calls(http, prefix):
    async with OpenAIUpstream() as model:
        neighbours = {"policy_model": model.origin, "weather": "http://127.0.0.1:1"}
        folder = IMAGES / "responses_api_agents/simple_agent"
        async with (
            serving_folder(folder, "desk_agent", AGENT_BLOCK, neighbours) as url,
            http.post(f"{url}{prefix}/v1/responses", json={"input": "hi"}) as answer,
        ):
            assert answer.status == 200
        assert [asked.path for asked in model.asked] == [f"{prefix}/v1/responses"]


@pytest.mark.parametrize("server", WITHOUT_SESSION)
async def test_3_3_environment_servers_have_no_prefix(request, target, http, server):
    async with http.post(request.getfixturevalue(server) + "/ng-rollout/3-0/run", json={}) as answer:
        assert answer.status == 404


# 3.4


class Odd(Server):
    """Every way in which a handler can end that no built-in server offers."""

    def __init__(self, part: ServerPart) -> None:
        super().__init__(part)
        self.is_slow = asyncio.Event()

    def routes(self, app: Starlette) -> None:
        super().routes(app)
        self.post(app, "/raise", self.fail)
        self.post(app, "/cancelled", self.cancel_itself)
        self.post(app, "/exit", self.leave)
        self.post(app, "/slow", self.slow)
        self.post(app, "/who", self.who)

    async def fail(self, request: Request) -> Response:
        raise ValueError("no")

    async def cancel_itself(self, request: Request) -> Response:
        raise asyncio.CancelledError

    async def leave(self, request: Request) -> Response:
        raise SystemExit(3)

    async def slow(self, request: Request) -> Response:
        self.is_slow.set()
        await asyncio.sleep(30)
        return Json({})

    async def who(self, request: Request) -> Response:
        assert request.client is not None
        host = request.client.host
        return Json({"host": host, "scheme": request.url.scheme, "session": request.session["session_id"]})


@pytest.mark.ours
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/raise", "ValueError('no')"),
        ("/cancelled", "Request was cancelled"),
        ("/exit", "An unknown error occurred"),
    ],
)
async def test_3_4_a_failure_is_500_with_a_json_string(http, path, body):
    server = assemble(Odd(make_part("odd", "resources_servers", "odd")))
    async with serving(server) as url, http.post(url + path, json={}) as answer:
        assert (answer.status, answer.content_type) == (500, "application/json")
        assert await answer.json() == body


async def test_3_4_a_body_that_does_not_fit_is_422(http, resources_url):
    async with http.post(f"{resources_url}/verify", json={}) as answer:
        assert answer.status == 422
        detail = (await answer.json())["detail"]
    assert {"responses_create_params", "response"} <= {error["loc"][1] for error in detail}
    for error in detail:
        assert error.keys() >= {"type", "loc", "msg", "input"}
        assert error["loc"][0] == "body"


async def test_3_4_an_unknown_path_is_404_with_a_detail(http, resources_url):
    async with http.post(f"{resources_url}/get_wether", json={}) as answer:
        assert (answer.status, await answer.json()) == (404, {"detail": "Not Found"})
    async with http.get(f"{resources_url}/get_weather") as answer:
        assert (answer.status, await answer.json()) == (405, {"detail": "Method Not Allowed"})


OURS_ONLY = (pytest.param(status, marks=pytest.mark.ours) for status in (401, 403))


@pytest.mark.parametrize("status", [400, *OURS_ONLY, 413, 422])
async def test_3_4_a5_an_inner_error_is_500_with_the_bytes_of_its_body(
    http, target, model_url, upstream, status
):
    upstream.always = Reply(status, body={"error": {"message": "no"}})
    async with http.post(f"{model_url}/v1/responses", json={"input": "hi"}) as answer:
        assert answer.status == 500
        text = await answer.json()
    label, _, rest = text.removeprefix("Hit an exception in ").partition(" ")
    assert label.partition("___")[2] == target.servers["model"].name
    assert rest == 'calling an inner server: b\'{"error":{"message":"no"}}\''


async def test_3_4_an_inner_error_passes_through_a_chain_of_servers(http, target, agent_url, upstream):
    upstream.always = Reply(400, body={"error": {"message": "no"}})
    async with http.post(f"{agent_url}/v1/responses", json={"input": "hi"}) as answer:
        assert answer.status == 500
        text = await answer.json()
    label, _, rest = text.removeprefix("Hit an exception in ").partition(" ")
    assert label.partition("___")[2] == target.servers["agent"].name
    inner = rest.removeprefix("calling an inner server: ")
    assert "Hit an exception in " in inner and "message" in inner


async def test_3_4_a_caller_that_leaves_ends_the_work_all_the_way_down(http, agent_url, upstream):
    """Caller, agent, model server, endpoint: the last one notices."""
    upstream.always = Reply(delay=30)
    call = asyncio.create_task(http.post(f"{agent_url}/v1/responses", json={"input": "hi"}))
    await until(lambda: upstream.in_flight)
    call.cancel()
    await until(lambda: not upstream.in_flight)


@pytest.mark.ours
async def test_3_4_a_caller_that_left_is_logged_as_499(http, caplog):
    odd = Odd(make_part("odd", "resources_servers", "odd"))
    async with serving(assemble(odd)) as url:
        call = asyncio.create_task(http.post(f"{url}/slow", json={}))
        await odd.is_slow.wait()
        call.cancel()
        await until(lambda: "499" in caplog.text)


# 3.5


def test_3_5_listening_has_the_settings_of_the_contract():
    settings = serve.settings(None)
    assert (settings.access_log, settings.timeout_keep_alive) == (False, 30)
    assert settings.timeout_graceful_shutdown == 0.5
    assert settings.timeout_worker_healthcheck == 30
    assert settings.proxy_headers is False


def test_3_5_accepted_connections_are_kept_alive():
    pool = Pool(keepalive_idle_seconds=61, keepalive_interval_seconds=11, keepalive_probes=4)
    with serve.listening("127.0.0.1", 0, pool) as listening:
        serve.accepting(listening)
        with socket.create_connection(listening.getsockname()):
            listening.setblocking(True)
            accepted, _ = listening.accept()
            with accepted:
                assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
                assert [accepted.getsockopt(socket.IPPROTO_TCP, option) for option in options] == [61, 11, 4]


FORWARDED = {"x-forwarded-for": "203.0.113.9", "x-forwarded-proto": "https"}


@pytest.mark.ours
@pytest.mark.parametrize(
    ("trusted", "seen"),
    [
        (None, ("127.0.0.1", "http")),
        (("127.0.0.1",), ("203.0.113.9", "https")),
        (("127.0.0.0/8",), ("203.0.113.9", "https")),
        (("10.0.0.0/8",), ("127.0.0.1", "http")),
    ],
)
async def test_3_5_forwarded_headers_are_believed_of_named_proxies_only(http, trusted, seen):
    server = assemble(Odd(make_part("odd", "resources_servers", "odd")))
    async with (
        serving(server, HttpSettings(trusted_proxies=trusted)) as url,
        http.post(f"{url}/who", headers=FORWARDED) as answer,
    ):
        told = await answer.json()
    assert (told["host"], told["scheme"]) == seen


@pytest.mark.ours
async def test_3_5_an_agent_of_several_workers_refuses_sessions(http):
    folder = IMAGES / "responses_api_agents/simple_agent"
    seed = {
        "agent_session_id": "s1",
        "episode_id": {"rollout_id": "0-0"},
        "task_id": {"taskset": "w", "task_id": "17"},
    }
    neighbours = {"policy_model": "http://127.0.0.1:1", "weather": "http://127.0.0.1:2"}
    for workers, status in ((1, 200), (2, 500)):
        async with (
            serving_folder(folder, "desk_agent", AGENT_BLOCK, neighbours, told={"workers": workers}) as url,
            http.post(f"{url}/v1/agent_sessions", json=seed) as answer,
        ):
            assert answer.status == status, workers


@pytest.mark.ours
async def test_3_5_b60_a_server_that_keeps_sessions_refuses_several_workers():
    made = make_part("counter", "resources_servers", "counter")
    part = made.model_copy(update={"bind_port": free_port(), "workers": 4})
    async with Process(part, IMAGES / "resources_servers/counter") as process:
        assert await process.ended() == 1
    text = "\n".join(process.lines)
    assert "(counter) error: `num_workers`: 4, but Counter keeps state of sessions" in text
    assert "it must be 1" in text


CHATTY = """
import os, sys
print("at import", flush=True)
from gymctl.servers import ResourcesServer, VerifyRequest, VerifyResponse, tool

class Chatty(ResourcesServer):
    @tool
    async def talk(self) -> str:
        print("one")
        print("two", end="")
        print(" and", "three", file=sys.stderr)
        print()
        return "told"

    async def verify(self, request: VerifyRequest) -> VerifyResponse:
        return request.scored(reward=0.0)

app = Chatty.app()
"""


@pytest.mark.ours
async def test_3_5_lines_bear_the_servers_id_and_the_limit_of_open_files_is_raised(tmp_path: Path, http):
    (tmp_path / "app.py").write_text(CHATTY)
    made = make_part("chatty", "resources_servers", "chatty")
    http_settings = HttpSettings(show_access_log=True)
    part = made.model_copy(update={"bind_port": free_port(), "http": http_settings})
    async with Process(part, tmp_path, files=(256, 4096)) as process:
        url = await process.ready()
        async with http.post(f"{url}/ng-rollout/3-0/talk", json={}) as answer:
            assert await answer.text() == "told"
        async with http.post(f"{url}/ng-rollout/3-0/talk", json=[]) as answer:
            assert answer.status == 422
    lines = [line for line in process.lines if line]
    assert all(line.startswith("(chatty) ") for line in lines), lines
    assert {"(chatty) at import", "(chatty) one"} <= set(lines)
    assert any("rollout 3-0: 422 POST /talk" in line for line in lines)
    assert any("open files 4096" in line for line in lines)
    (access,) = (line for line in lines if '"POST /talk HTTP/1.1" 200' in line)
    assert access.startswith("(chatty) INFO rollout 3-0: ")
