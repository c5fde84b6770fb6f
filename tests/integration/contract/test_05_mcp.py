"""CONTRACT 5.6: the tools of a resources server over MCP, used by the official client over real HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import mcp.types as types
import pytest
from fakes.contract import cookies_of, sending
from mcp import ClientSession, McpError
from mcp.client.streamable_http import streamable_http_client
from starlette.applications import Starlette
from starlette.requests import Request

from gymctl.errors import ConfigError
from gymctl.servers import (
    Json,
    ResourcesServer,
    SessionState,
    VerifyRequest,
    VerifyResponse,
    json_object,
    tool,
)
from gymctl.servers.inprocess import make_part, serving
from gymctl.servers.stack.app import assemble

TOKEN = "X-NeMo-Gym-Session-Token"
ROW: dict[str, Any] = {"responses_create_params": {"input": "note it"}}


@dataclass
class Notes(SessionState):
    text: str = ""


class Verdict(VerifyResponse):
    called: list[str]
    text: str


class Notebook(ResourcesServer):
    waiting: asyncio.Event
    stopped: asyncio.Event

    async def startup(self) -> None:
        type(self).waiting = asyncio.Event()
        type(self).stopped = asyncio.Event()

    @tool
    async def write_note(self, text: str, notes: Notes) -> str:
        """Write a note."""
        notes.text += text
        return notes.text

    @tool
    async def read_note(self, notes: Notes) -> dict[str, str]:
        """Read the note."""
        return {"note": notes.text}

    @tool
    async def tear_page(self) -> str:
        raise ValueError("no page left")

    @tool
    async def wait(self) -> str:
        self.waiting.set()
        try:
            await asyncio.sleep(60)
        finally:
            self.stopped.set()
        return ""

    def offered_tools(self, row: dict[str, Any]) -> list[str] | None:
        return row.get("only")

    async def verify(self, request: VerifyRequest, notes: Notes) -> Verdict:
        names = [item["name"] for item in request.response["output"] if item["type"] == "function_call"]
        return Verdict.of(request, reward=1.0, called=names, text=notes.text)

    def routes(self, app: Starlette) -> None:
        super().routes(app)
        self.post(app, "/plain", self._plain)
        self.post(app, "/pages/{page}", self._plain)

    async def _plain(self, request: Request) -> Json:
        return Json(await json_object(request))


def notebook(**settings: Any) -> Starlette:
    part = make_part("notes", "resources_servers", "notes", {"expose_tools_over_mcp": True, **settings})
    return assemble(Notebook(part))


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with serving(notebook()) as served:
        yield served


@asynccontextmanager
async def client(url: str, headers: dict[str, str] | None = None) -> AsyncIterator[ClientSession]:
    async with (
        httpx.AsyncClient(headers=headers, trust_env=False) as http,
        streamable_http_client(f"{url}/mcp", http_client=http) as (incoming, outgoing, _),
        ClientSession(incoming, outgoing) as session,
    ):
        await session.initialize()
        yield session


@contextmanager
def refused(error: type[Exception]) -> Iterator[list[Exception]]:
    """Like pytest.raises, through the groups in which the client's task groups wrap what is raised."""
    found: list[Exception] = []
    try:
        yield found
    except BaseException as raised:
        while isinstance(raised, BaseExceptionGroup):
            raised = raised.exceptions[0]
        if not isinstance(raised, error):
            raise
        found.append(raised)
    assert found, f"{error.__name__} was not raised"


async def seeded(http: Any, url: str, row: dict[str, Any] | None = None) -> tuple[dict[str, Any], Any]:
    async with http.post(f"{url}/seed_session", json=row or ROW) as answer:
        assert answer.status == 200
        return (await answer.json())["mcp"], cookies_of(answer)


def text_of(result: types.CallToolResult) -> str:
    (content,) = result.content
    assert isinstance(content, types.TextContent)
    return content.text


async def test_5_6_a_flat_seed_says_where_the_tools_are(http, url):
    offer, _ = await seeded(http, url)
    token = offer["headers"].pop(TOKEN)
    assert offer == {"server_name": "notes", "url_path": "/mcp", "transport": "http", "headers": {}}
    assert token


async def test_5_6_a_typed_seed_says_it_in_resources_tools_only(http, url):
    body = {
        "resources_session_id": "r-1",
        "episode_id": {"rollout_id": "0-0"},
        "task_id": {"taskset": "n", "task_id": "0"},
        "task_data": {"only": ["read_note"]},
    }
    async with http.post(f"{url}/seed_session", json=body) as answer:
        seed = await answer.json()
    assert seed.keys() == {"resources_session_id", "resources_tools", "sandbox_access"}
    assert seed["resources_tools"]["transport"] == "http"
    async with client(url, seed["resources_tools"]["headers"]) as session:
        assert [entry.name for entry in (await session.list_tools()).tools] == ["read_note"]


async def test_5_6_a_tool_is_found_and_called(http, mcp_url):
    offer, _ = await seeded(http, mcp_url)
    assert (offer["url_path"], offer["transport"], [*offer["headers"]]) == ("/mcp", "http", [TOKEN])
    async with client(mcp_url) as session:
        tools = {entry.name: entry for entry in (await session.list_tools()).tools}
        assert (await session.call_tool("get_weather", {"city": "Oslo"})).isError, "no token"
    assert tools.keys() == {"get_weather"}
    assert tools["get_weather"].inputSchema["properties"].keys() == {"city"}
    async with client(mcp_url, offer["headers"]) as session:
        found = await session.call_tool("get_weather", {"city": "Oslo"})
        assert not found.isError and text_of(found)
        unknown = await session.call_tool("get_wether", {})
        assert unknown.isError and "get_weather" in text_of(unknown)
        invalid = await session.call_tool("get_weather", {})
        assert invalid.isError and "HTTP 422 from POST /get_weather: " in text_of(invalid)


async def test_5_6_messages_of_a_target_are_json_and_need_no_session(http, mcp_url):
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    headers = {"accept": "application/json, text/event-stream", "host": "somewhere.example"}
    async with http.post(f"{mcp_url}/mcp", json=message, headers=headers) as answer:
        assert (answer.status, answer.content_type) == (200, "application/json")
        assert "mcp-session-id" not in answer.headers


async def test_5_6_tools_are_the_plain_post_routes(url):
    async with client(url) as session:
        tools = {entry.name: entry for entry in (await session.list_tools()).tools}
    assert list(tools) == ["write_note", "read_note", "tear_page", "wait", "plain"]
    assert tools["write_note"].description == "Write a note."
    assert tools["write_note"].inputSchema["properties"] == {"text": {"type": "string"}}
    assert tools["plain"].inputSchema == {"type": "object", "additionalProperties": True}


async def test_5_6_a_call_acts_in_the_session_of_its_token(http, url):
    offers = [await seeded(http, url) for _ in range(2)]
    for number, (offer, _) in enumerate(offers):
        async with client(url, offer["headers"]) as session:
            for _ in range(2):
                written = await session.call_tool("write_note", {"text": str(number)})
            assert (text_of(written), written.isError) == (str(number) * 2, False)
            assert text_of(await session.call_tool("read_note", {})) == f'{{"note":"{number}{number}"}}'
            assert text_of(await session.call_tool("plain", {"a": [1]})) == '{"a":[1]}'
    for number, (_, jar) in enumerate(offers):
        async with http.post(f"{url}/read_note", json={}, headers=sending(jar)) as answer:
            assert await answer.json() == {"note": str(number) * 2}


async def test_5_6_a_call_needs_a_valid_token(http, url):
    offer, _ = await seeded(http, url)
    good = offer["headers"][TOKEN]
    for headers in ({}, {TOKEN: "x"}, {TOKEN: f"{good}x"}):
        if headers:
            with refused(McpError):
                async with client(url, headers) as session:
                    await session.list_tools()
        async with client(url, headers) as session:
            result = await session.call_tool("write_note", {"text": "a"})
            assert result.isError and TOKEN in text_of(result)
    async with client(url, offer["headers"]) as session:
        assert text_of(await session.call_tool("read_note", {})) == '{"note":""}'


async def test_5_6_the_token_of_another_server_is_not_valid(http, url):
    part = make_part("other", "resources_servers", "notes", {"expose_tools_over_mcp": True})
    async with serving(assemble(Notebook(part))) as other:
        offer, _ = await seeded(http, other)
    async with client(url, offer["headers"]) as session:
        assert (await session.call_tool("read_note", {})).isError


async def test_5_6_an_unknown_tool_is_an_error_that_lists_the_tools(http, url):
    offer, _ = await seeded(http, url)
    async with client(url, offer["headers"]) as session:
        for name in ("read_notes", "verify", "seed_session", "close_session", "aggregate_metrics", "mcp"):
            result = await session.call_tool(name, {})
            assert result.isError
            assert text_of(result) == (
                f"unknown tool `{name}`; there are: write_note, read_note, tear_page, wait, plain"
            )


async def test_5_6_a_failing_handler_is_an_error_with_its_status(http, url):
    offer, _ = await seeded(http, url)
    async with client(url, offer["headers"]) as session:
        failed = await session.call_tool("tear_page", {})
        assert failed.isError
        assert text_of(failed) == "HTTP 500 from POST /tear_page: ValueError('no page left')"
        invalid = await session.call_tool("write_note", {})
        assert invalid.isError
        assert text_of(invalid).startswith('HTTP 422 from POST /write_note: [{"type":"missing"')


async def test_5_6_a_session_sees_and_calls_its_own_tools_only(http, url):
    offer, _ = await seeded(http, url, {**ROW, "only": ["read_note"]})
    async with client(url, offer["headers"]) as session:
        assert [entry.name for entry in (await session.list_tools()).tools] == ["read_note"]
        result = await session.call_tool("write_note", {"text": "x"})
        assert result.isError
        assert text_of(result) == "unknown tool `write_note`; there are: read_note"
        assert not (await session.call_tool("read_note", {})).isError


async def test_5_6_verify_scores_bare_names_and_echoes_the_emitted_ones(http, url):
    offer, jar = await seeded(http, url)
    async with client(url, offer["headers"]) as session:
        await session.call_tool("write_note", {"text": "kept"})
    emitted = ["mcp__notes__write_note", "read_note", "mcp__notes__nothing", "mcp__others__read_note"]
    output = [{"type": "function_call", "call_id": "c", "name": name, "arguments": "{}"} for name in emitted]
    body = {**ROW, "response": {"output": output}}
    async with http.post(f"{url}/verify", json=body, headers=sending(jar)) as answer:
        verdict = await answer.json()
    assert verdict["called"] == ["write_note", *emitted[1:]]
    assert [item["name"] for item in verdict["response"]["output"]] == emitted
    assert verdict["text"] == "kept"


async def test_5_6_messages_are_json_need_no_session_and_go_before_all_routes(http, url):
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    headers = {"accept": "application/json", "host": "somewhere.example"}
    for path in ("/mcp", "/mcp/", "/ng-rollout/0-0/mcp"):
        async with http.post(url + path, json=message, headers=headers) as answer:
            assert (answer.status, answer.content_type) == (200, "application/json")
            assert "mcp-session-id" not in answer.headers
            assert len((await answer.json())["result"]["tools"]) == 5
    async with http.get(f"{url}/mcp", headers={"accept": "text/event-stream"}) as answer:
        assert answer.status == 405
    async with http.post(
        f"{url}/mcp", data=b"{", headers={**headers, "content-type": "application/json"}
    ) as bad:
        assert bad.status == 400


async def test_5_6_without_the_key_there_is_no_mcp(http):
    async with serving(notebook(expose_tools_over_mcp=False)) as url:
        async with http.post(f"{url}/seed_session", json=ROW) as answer:
            assert await answer.json() == {}
        async with http.post(f"{url}/mcp", json={}) as answer:
            assert answer.status == 404


@pytest.mark.parametrize("path", ["/mcp", "/mcp/tools"])
def test_5_6_a_server_with_an_mcp_route_of_its_own_is_refused_at_start(path):
    class Taken(Notebook):
        def routes(self, app: Starlette) -> None:
            super().routes(app)
            self.get(app, path, self._plain)

    part = make_part("notes", "resources_servers", "notes", {"expose_tools_over_mcp": True})
    with pytest.raises(ConfigError, match=f"already serves `{path}`"):
        assemble(Taken(part))


async def test_5_6_a_client_that_leaves_ends_the_tool(http, url):
    offer, _ = await seeded(http, url)
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "wait", "arguments": {}}}
    headers = {"accept": "application/json", **offer["headers"]}
    async with asyncio.timeout(20):
        call = asyncio.create_task(http.post(f"{url}/mcp", json=message, headers=headers))
        await Notebook.waiting.wait()
        call.cancel()
        await Notebook.stopped.wait()
