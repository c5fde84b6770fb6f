"""What a model server does when its endpoint is slow, overloaded, dead or behind a proxy."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import socket
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from fakes.contract import until
from fakes.ports import held_port

from gymctl.connections import Connections
from gymctl.contract.part import Pool
from gymctl.errors import ConfigError
from gymctl.servers.models import breaker
from gymctl.servers.models.upstream import Upstream
from gymctl.transport import Transport

ASK = {"input": "x"}


def block(url: str, **settings: Any) -> dict[str, Any]:
    return {
        "openai_base_url": url,
        "openai_api_key": "sk-secret-of-the-test",
        "openai_model": "tiny-1",
        "upstream_unreachable_seconds": 0.6,
        **settings,
    }


@pytest.fixture
def dead_url() -> Iterator[str]:
    with held_port() as port:
        yield f"http://127.0.0.1:{port}/v1"


async def seconds(work: Any) -> tuple[float, Any]:
    began = time.monotonic()
    result = await work
    return time.monotonic() - began, result


async def test_b72_a_dead_upstream_is_told_at_once(start, dead_url, caplog):
    caplog.set_level(logging.INFO)
    server = await start("openai_model", **block(dead_url, upstream_unreachable_seconds=600))
    waiting = asyncio.create_task(server.post("/v1/responses", ASK))

    def lines() -> list[str]:
        return [record.getMessage() for record in caplog.records if "openai_base_url" in record.getMessage()]

    await until(lines)
    told = lines()
    assert len(told) == 1 and not waiting.done()
    assert dead_url in told[0] and "600 s" in told[0]
    waiting.cancel()


async def test_b72_a_dead_upstream_is_given_up_in_time(start, dead_url):
    server = await start("openai_model", **block(dead_url))
    took, (status, answer) = await seconds(server.post("/v1/responses", ASK))
    assert status == 500 and 0.5 <= took < 20
    assert "Cannot connect" in answer and answer.count("not been reachable") == 1
    assert dead_url in answer and "`openai_base_url` has not been reachable for 0.6 s" in answer

    async with asyncio.timeout(30):  # 48 s if each waited
        for _ in range(80):
            status, answer = await server.post("/v1/responses", ASK)
            assert status == 500
            assert "calls fail at once until it is back" in answer


async def test_13_2_an_upstream_that_was_given_up_is_found_again(start, dead_url, upstream, monkeypatch):
    monkeypatch.setattr(breaker, "PROBE_SECONDS", 0.3)
    server = await start("openai_model", **block(dead_url, upstream_unreachable_seconds=0))
    assert (await server.post("/v1/responses", ASK))[0] == 500

    knocks, release = 0, asyncio.Event()

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal knocks
        knocks += 1
        await release.wait()  # looking takes a while: nobody else may look meanwhile
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"POST /v1/responses" in head
        body = b'{"id": "r", "object": "response", "output": []}'
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s" % (len(body), body)
        )
        await writer.drain()
        writer.close()

    port = int(dead_url.split(":")[2].partition("/")[0])
    async with await asyncio.start_server(refuse, "127.0.0.1", port):
        await asyncio.sleep(0.35)
        calls = [asyncio.create_task(server.post("/v1/responses", ASK)) for _ in range(8)]
        await until(lambda: sum(call.done() for call in calls) == 7)
        release.set()
        answers = await asyncio.gather(*calls)
        assert sorted(status for status, _ in answers) == [200] + [500] * 7
        assert knocks == 1
        answers = await asyncio.gather(*(server.post("/v1/responses", ASK) for _ in range(3)))
        assert {status for status, _ in answers} == {200}


async def test_calls_that_wait_for_the_same_dead_upstream_are_given_up_together(start, dead_url):
    server = await start("openai_model", **block(dead_url, upstream_unreachable_seconds=1.5))
    ends: list[float] = []

    async def call() -> None:
        assert (await server.post("/v1/responses", ASK))[0] == 500
        ends.append(time.monotonic())

    async with asyncio.TaskGroup() as group:
        group.create_task(call())
        await asyncio.sleep(1.2)
        group.create_task(call())
    assert ends[1] - ends[0] < 0.6, "1.2 s if the second one waited its own 1.5 s"


async def test_b43_model_traffic_and_the_probe_use_the_proxy_that_the_setting_names(start, upstream):
    server = await start("openai_model", **block("http://model.invalid/v1", upstream_proxy=upstream.origin))
    assert (await server.post("/v1/responses", ASK))[0] == 200
    assert upstream.asked[0].headers["host"] == "model.invalid"
    (state,) = (await server.get("/gymctl/upstream"))[1]
    assert (state["state"], state["url"]) == ("answering", "http://model.invalid/v1")


async def test_b43_without_the_setting_the_environment_leads_nowhere(start, upstream, monkeypatch, dead_url):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, dead_url.removesuffix("/v1"))
    server = await start("openai_model", **block(upstream.url))
    assert (await server.post("/v1/responses", ASK))[0] == 200
    (state,) = (await server.get("/gymctl/upstream"))[1]
    assert state["state"] == "answering"


async def test_a_user_name_in_the_url_and_a_key_are_refused_at_the_start(start, upstream):
    url = upstream.url.replace("http://", "http://me:secret-password@")
    with pytest.raises(ConfigError, match="`openai_base_url` holds a user name") as caught:
        await start("openai_model", **block(url))
    assert "secret-password" not in str(caught.value) + str(caught.value.hint)


async def test_a_user_name_in_the_url_works_without_a_key_and_is_never_told(start, upstream, reply):
    url = upstream.url.replace("http://", "http://me:secret-password@")
    server = await start("openai_model", **block(url, openai_api_key=""))
    assert (await server.post("/v1/responses", ASK))[0] == 200
    assert upstream.asked[0].headers["authorization"].startswith("Basic ")
    assert "secret-password" not in str(await server.get("/gymctl/upstream"))
    upstream.always = reply(is_dropped=True)
    assert "secret-password" not in str(await server.post("/v1/responses", ASK))


async def test_b68_the_workers_of_a_model_server_share_the_pool(upstream, reply):
    upstream.always = reply(delay=0.05)
    async with Transport(Pool(limit_per_host=8), workers=4) as transport:
        endpoint = Upstream(transport, upstream.url)
        await asyncio.gather(*(endpoint.post("/responses", b"{}") for _ in range(10)))
    assert upstream.peak == 2


async def test_b69_cancelled_waiters_neither_block_the_pool_nor_let_others_starve(upstream, reply):
    upstream.always = reply(delay=0.01)
    async with Transport(Pool(limit=2)) as transport:
        endpoint = Upstream(transport, upstream.url)
        calls = [asyncio.create_task(endpoint.post("/responses", b"%d" % n)) for n in range(200)]
        await asyncio.sleep(0.05)
        for call in random.Random(1).sample(calls[20:], 60):
            call.cancel()
        async with asyncio.timeout(60):
            await asyncio.gather(*calls, return_exceptions=True)
        in_turn = [n for n in range(200) if not calls[n].cancelled()]
        places = {entry.json: place for place, entry in enumerate(upstream.asked)}
        assert len(places) == len(in_turn) == 140
        assert all(abs(places[n] - place) < 4 for place, n in enumerate(in_turn)), "nobody starves"
        assert upstream.peak <= 2
        async with asyncio.timeout(60):
            await asyncio.gather(*(endpoint.post("/responses", b"{}") for _ in range(50)))


async def test_b70_a_peer_that_vanished_is_noticed_by_the_kernel_within_two_minutes(upstream, monkeypatch):
    made: list[socket.socket] = []
    original = Connections._socket

    def remembered(self: Connections, address: Any) -> socket.socket:
        made.append(original(self, address))
        return made[-1]

    monkeypatch.setattr(Connections, "_socket", remembered)
    async with Transport() as transport:
        await Upstream(transport, upstream.url).post("/responses", b"{}")
        (used,) = made
        assert used.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        idle, interval, probes = (
            used.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))
            for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT")
        )
    assert 0 < idle + interval * probes <= 120


async def test_b71_a_long_generation_is_not_cut(upstream, reply, monkeypatch):
    """aiohttp's own total limit of 300 s, made short here, must not come back on any path."""
    monkeypatch.setattr(aiohttp.client, "DEFAULT_TIMEOUT", aiohttp.ClientTimeout(total=0.2))
    upstream.always = reply(delay=0.5)
    async with Transport() as transport:
        assert (await Upstream(transport, upstream.url).post("/responses", b"{}")).status == 200
        assert (await transport.call("POST", f"{upstream.url}/responses", b"{}")).status == 200


async def test_b73_overload_is_no_reason_to_storm(start, upstream, reply, pauses):
    rows = 8
    upstream.plan(*(reply(429, headers={"retry-after": "1"}) for _ in range(rows)))
    upstream.plan(*(reply(503) for _ in range(rows)))
    upstream.always = reply(400)
    server = await start("openai_model", **block(upstream.url, upstream_dialect="responses"))
    answers = await asyncio.gather(
        *(server.post("/v1/responses", {"input": f"row {n}"}) for n in range(rows))
    )
    assert {status for status, _ in answers} == {500}
    asked: dict[str, list[float]] = {}
    for entry in upstream.asked:
        asked.setdefault(entry.json["input"], []).append(entry.at)
    assert all(len(times) == 3 for times in asked.values()), "all tries of a row, whatever their reasons"
    firsts = [times[1] - times[0] for times in asked.values()]
    seconds_ = [times[2] - times[1] for times in asked.values()]
    assert min(firsts) >= 0.95, "as asked for"
    assert max(pauses[:rows]) - min(pauses[:rows]) > 0.01, "and spread"
    assert min(seconds_) >= 0.95, "the second pause is longer than the first would have been"


async def test_b73_a_request_that_is_wrong_is_asked_once(start, upstream, reply):
    upstream.always = reply(400)
    server = await start("openai_model", **block(upstream.url))
    assert (await server.post("/v1/responses", ASK))[0] == 500
    assert upstream.posts() == 1


async def test_b77_large_answers_do_not_hold_up_the_others(spawn, upstream, reply):
    """25 MB with a million integers, eight at once. Tokens of that many are what a trainer asks for."""
    choice = {"index": 0, "message": {"role": "assistant", "content": "x" * 17_000_000}}
    choice["message"]["prompt_token_ids"] = list(range(100_000, 1_100_000))
    large = orjson.dumps({"object": "chat.completion", "choices": [choice]})
    assert len(large) > 24_000_000
    began = time.process_time()
    json.loads(large)
    limit = max(0.5, 7 * (time.process_time() - began))  # half a second, on a machine that is no slower
    upstream.always = reply(body=large)
    server = await spawn(sys.executable, "openai_model", **block(upstream.url))
    async with aiohttp.ClientSession() as session:

        async def one() -> int:
            body = {"messages": [{"role": "user", "content": "x"}]}
            async with session.post(f"{server.url}/v1/chat/completions", json=body) as answer:
                assert answer.status == 200
                return len(await answer.read())

        def cpu() -> float:
            fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

        def ping() -> float:
            """Seconds that the server computed meanwhile: on a busy machine a clock tells nothing."""
            began = cpu()
            with urllib.request.urlopen(f"{server.url}/livez", timeout=60) as answer:
                assert answer.status == 200
            return cpu() - began

        calls = [asyncio.create_task(one()) for _ in range(8)]
        pings: list[float] = []
        while not all(call.done() for call in calls):
            pings.append(await asyncio.to_thread(ping))
        assert {call.result() for call in calls} == {len(large)}
    assert len(pings) > 3
    assert sorted(pings)[int(len(pings) * 0.99)] < limit
