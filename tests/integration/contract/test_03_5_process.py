"""CONTRACT 3.5: how the process of a server listens, whom it believes, and what it prints."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from fakes.contract import AGENT_BLOCK, Process
from fakes.odd_server import Odd

from gymctl.contract.part import HttpSettings, Pool
from gymctl.paths import bundled
from gymctl.servers.inprocess import make_part, serving, serving_folder
from gymctl.servers.stack import serve
from gymctl.servers.stack.app import assemble

IMAGES = bundled() / "server_images"


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
async def test_3_5_b60_a_server_that_keeps_sessions_refuses_several_workers(free_port):
    made = make_part("counter", "resources_servers", "counter")
    part = made.model_copy(update={"bind_port": free_port, "workers": 4})
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
async def test_3_5_lines_bear_the_servers_id_and_the_limit_of_open_files_is_raised(
    tmp_path: Path, http, free_port
):
    (tmp_path / "app.py").write_text(CHATTY)
    made = make_part("chatty", "resources_servers", "chatty")
    http_settings = HttpSettings(show_access_log=True)
    part = made.model_copy(update={"bind_port": free_port, "http": http_settings})
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
