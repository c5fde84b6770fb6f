"""What every server answers: liveness with identity, cookies, errors; and what a caller that leaves ends."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator

import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from gymctl.contract.responses import JsonObject
from gymctl.servers import Json, ModelServer, Server, json_object
from gymctl.servers.inprocess import make_part, serving
from gymctl.servers.stack.app import assemble
from gymctl.transport import ROLLOUT, Transport, TransportError


class Odd(Server):
    """Every way in which a handler can end."""

    def __init__(self, part) -> None:
        super().__init__(part)
        self.started = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.runs = 0

    def routes(self, app: Starlette) -> None:
        super().routes(app)
        self.post(app, "/echo", self.echo)
        self.post(app, "/raise", self.fail)
        self.post(app, "/group", self.fail_in_group)
        self.post(app, "/refuse", self.refuse)
        self.post(app, "/cancelled", self.cancel_itself)
        self.post(app, "/exit", self.leave)
        self.post(app, "/exit_once", self.leave, is_once_per_key=True)
        self.post(app, "/call", self.call_broken)
        self.post(app, "/slow", self.slow)
        self.post(app, "/slow_once", self.slow, is_once_per_key=True)

    async def echo(self, request: Request) -> Response:
        body = await json_object(request)
        return Json({"body": body, "session": request.session, "rollout": ROLLOUT.get()})

    async def fail(self, request: Request) -> Response:
        raise ValueError("no")

    async def fail_in_group(self, request: Request) -> Response:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.fail(request))
        raise AssertionError("unreachable")

    async def refuse(self, request: Request) -> Response:
        raise HTTPException(409, "not now")

    async def cancel_itself(self, request: Request) -> Response:
        raise asyncio.CancelledError

    async def leave(self, request: Request) -> Response:
        return await asyncio.to_thread(sys.exit, 3)

    async def call_broken(self, request: Request) -> Response:
        answer = await self.client.call_url(self.client.url("self", "/raise"), {})
        from gymctl.servers import checked

        return Json(checked(answer).body)

    async def slow(self, request: Request) -> Response:
        self.runs += 1
        self.started.set()
        try:
            await asyncio.sleep(0.3 if request.headers.get("x-short") else 30)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return Json({"runs": self.runs})


@pytest.fixture
async def odd() -> AsyncIterator[tuple[str, Odd]]:
    server = Odd(make_part("odd", "resources_servers", "odd"))
    async with serving(assemble(server)) as url:
        server.client._urls["self"] = url
        yield url, server


@pytest.mark.parametrize("path", ["/", "/livez", "/readyz", "/healthz", "/health"])
async def test_liveness_names_project_and_server(odd, transport, path):
    answer = await transport.call("GET", odd[0] + path)
    assert (answer.status, answer.body) == (200, b'{"status":"ok"}')
    assert (answer.header("x-gymctl-project"), answer.header("x-gymctl-server")) == ("test", "odd")
    assert answer.cookies == {}


async def test_a_session_lasts_as_long_as_its_cookie_is_handed_on(odd, transport):
    url, _ = odd
    first = await transport.call("POST", f"{url}/echo", b"{}")
    session = first.json()["session"]
    second = await transport.call("POST", f"{url}/echo", b"{}", cookies=first.cookies)
    assert second.json()["session"] == session
    assert second.cookies.keys() == {"Odd___odd"}, "the cookie is sent with every answer"
    assert (await transport.call("POST", f"{url}/echo", b"{}")).json()["session"] != session


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [
        ("/raise", 500, b"\"ValueError('no')\""),
        ("/group", 500, b"\"ValueError('no')\""),
        ("/refuse", 409, b'{"detail":"not now"}'),
        ("/cancelled", 500, b'"Request was cancelled"'),
        ("/exit", 500, b'"An unknown error occurred"'),
        ("/exit_once", 500, b'"An unknown error occurred"'),
        ("/nowhere", 404, b'{"detail":"Not Found"}'),
        (
            "/call",
            500,
            json.dumps(
                "Hit an exception in Odd___odd calling an inner server: " + repr(b"\"ValueError('no')\"")
            ).encode(),
        ),
    ],
)
async def test_failures_have_the_bodies_of_the_contract(odd, transport, path, status, body):
    answer = await transport.call("POST", odd[0] + path, b"{}", key="k")
    assert (answer.status, json.loads(answer.body)) == (status, json.loads(body))
    assert answer.cookies.keys() == {"Odd___odd"}


async def test_what_is_not_a_json_object_is_422(odd, transport, caplog):
    for body in (b"{", b"[1]", b'"x"'):
        answer = await transport.call("POST", f"{odd[0]}/echo", body)
        assert answer.status == 422
        assert answer.json()["detail"][0]["loc"][0] == "body"
    caplog.clear()
    await transport.call("POST", f"{odd[0]}/echo", b"[" + b"1," * 100_000 + b"1]")
    assert len(caplog.text) < 5000


async def test_the_log_of_a_422_holds_no_session_of_others(odd, transport, caplog):
    body = {
        "tool_accesses": [
            {"name": "w", "cookies": {"W___w": "signed"}, "headers": {"X-NeMo-Gym-Session-Token": "token"}},
            {"name": "m", "connection": {"headers": {"X-NeMo-Gym-Session-Token": "token"}}},
        ],
    }
    for sent in (json.dumps([body]).encode(), json.dumps(body).encode() + b"}"):
        answer = await transport.call("POST", f"{odd[0]}/echo", sent)
        assert answer.status == 422
    assert caplog.text.count("422 POST /echo") == 2
    assert '"name":"w"' in caplog.text, "the rest is what people look for"
    assert "signed" not in caplog.text and '"token"' not in caplog.text


async def test_the_log_of_a_failure_begins_where_the_handler_does(odd, transport, caplog):
    await transport.call("POST", f"{odd[0]}/raise", b"{}")
    (record,) = (record for record in caplog.records if record.name == "gymctl.server")
    frames = [line for line in (record.exc_text or "").splitlines() if line.startswith("  File")]
    assert len(frames) == 1 and frames[0].endswith("in fail"), frames


class Leaving(ModelServer):
    """Its author's code ends the process, or means to."""

    async def chat(self, params: JsonObject) -> JsonObject:
        sys.exit(3)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": []}),
        ("/v1/chat/completions", {"messages": [], "stream": True}),
        ("/v1/responses", {"input": "x", "stream": True}),
        ("/v1/messages", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}),
        ("/v1/messages", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1, "stream": True}),
    ],
)
async def test_a_model_that_calls_exit_does_not_end_its_server(transport, path, body):
    async with serving(assemble(Leaving(make_part("leaving", "responses_api_models", "leaving")))) as url:
        answer = await transport.call("POST", url + path, json.dumps(body).encode())
        assert answer.status == 500 or b"response.failed" in answer.body
        assert (await transport.call("GET", f"{url}/livez")).status == 200


async def test_the_schema_offers_nothing_that_is_not_a_tool(odd, transport):
    schema = (await transport.call("GET", f"{odd[0]}/openapi.json")).json()
    assert schema["paths"] == {}


async def test_a_mebibyte_is_read_whole(odd, transport):
    text = "x" * (1 << 20)
    answer = await transport.call("POST", f"{odd[0]}/echo", json.dumps({"text": text}).encode())
    assert answer.json()["body"]["text"] == text


async def test_the_rollout_in_our_context_travels_along(odd, transport):
    ROLLOUT.set("12-0")
    assert (await transport.call("POST", f"{odd[0]}/echo", b"{}")).json()["rollout"] == "12-0"


async def test_a_handler_is_cancelled_when_its_caller_leaves(odd, transport):
    url, server = odd
    call = asyncio.create_task(transport.call("POST", f"{url}/slow", b"{}"))
    await server.started.wait()
    call.cancel()
    async with asyncio.timeout(20):
        await server.cancelled.wait()
    assert (await transport.call("POST", f"{url}/echo", b"{}")).status == 200


async def test_a_keyed_request_survives_its_connection_and_runs_once(odd):
    url, server = odd
    async with Transport() as first:
        call = asyncio.create_task(
            first.call("POST", f"{url}/slow_once", b"{}", key="k", headers={"x-short": "1"})
        )
        await server.started.wait()
        call.cancel()
    async with Transport() as second:
        answer = await second.call("POST", f"{url}/slow_once", b"{}", key="k", headers={"x-short": "1"})
    assert answer.json() == {"runs": 1}
    assert not server.cancelled.is_set()


async def test_a_timeout_is_named(odd, transport):
    with pytest.raises(TransportError) as caught:
        await transport.call("POST", f"{odd[0]}/slow", b"{}", timeout=0.1)
    assert caught.value.kind == "transport_timeout"
