"""The relay: bytes, status, headers and repeated cookies go through; nothing of its own is added."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gymctl.servers.inprocess import serving

IMAGE = "environment_servers/legacy_agent"
BLOCK = {"agent_server": {"type": "responses_api_agents", "name": "desk_agent"}}


class FakeAgent:
    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, str], dict[str, str], bytes]] = []
        self.status = 200
        self.url = ""

    async def run(self, request: Request) -> Response:
        body = await request.body()
        self.seen.append((request.url.path, dict(request.headers), dict(request.cookies), body))
        response = Response(body[::-1], self.status, {"x-kept": "yes"}, "application/odd")
        response.raw_headers += [(b"set-cookie", b"A=1; path=/"), (b"set-cookie", b"B=2; path=/")]
        return response


@pytest.fixture
async def agent():
    fake = FakeAgent()
    routes = [Route(path, fake.run, methods=["POST"]) for path in ("/run", "/aggregate_metrics")]
    async with serving(Starlette(routes=routes)) as url:
        fake.url = url
        yield fake


@pytest.mark.parametrize("status", [200, 422, 500])
async def test_bytes_status_and_headers_go_through(start, transport, agent, status):
    agent.status = status
    url = await start(IMAGE, "desk_environment_server", BLOCK, {"desk_agent": agent.url})
    body = b'{"not": "even checked", nonsense \xff' * 3
    answer = await transport.call(
        "POST", f"{url}/run", body, headers={"x-mine": "1", "content-type": "text/plain"}, cookies={"C": "3"}
    )
    assert (answer.status, answer.body) == (status, body[::-1])
    path, headers, cookies, received = agent.seen[0]
    assert (path, received, cookies) == ("/run", body, {"C": "3"})
    assert (headers["x-mine"], headers["content-type"]) == ("1", "text/plain")
    assert [value for name, value in answer.headers if name.lower() == b"set-cookie"] == [
        b"A=1; path=/",
        b"B=2; path=/",
    ]
    assert (answer.header("x-kept"), answer.header("content-type")) == ("yes", "application/odd")
    assert answer.header("content-length") == str(len(body))


async def test_a_mebibyte_goes_through_unchanged(start, transport, agent):
    url = await start(IMAGE, "desk_environment_server", BLOCK, {"desk_agent": agent.url})
    body = bytes(range(256)) * 4096
    answer = await transport.call("POST", f"{url}/aggregate_metrics", body)
    assert answer.body == body[::-1]
    assert agent.seen[0][0] == "/aggregate_metrics"


async def test_unknown_keys_are_an_error_at_start(start):
    from gymctl.errors import ConfigError

    with pytest.raises(ConfigError, match="resources_server"):
        await start(IMAGE, "e", {**BLOCK, "resources_server": {"type": "resources_servers", "name": "w"}})


async def test_a_limit_set_here_is_warned_about(start, agent, caplog):
    await start(IMAGE, "e", {**BLOCK, "default_episode_timeout_seconds": 5}, {"desk_agent": agent.url})
    assert "`default_episode_timeout_seconds` has no effect" in caplog.text
