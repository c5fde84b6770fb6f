"""CONTRACT 2: the head, the rules of calls between servers, what trainers rely on, connection pools."""

from __future__ import annotations

import asyncio
import json
import logging
import re

import aiohttp
import pytest
import yaml
from fakes.contract import Process, Target, cookies_of, until
from fakes.openai_upstream import OpenAIUpstream, Reply

from gymctl.connections import KEEPALIVE_SECONDS
from gymctl.contract.part import HeadPart, HeadTarget, Pool, ServerPart
from gymctl.paths import bundled
from gymctl.servers import head
from gymctl.servers.inprocess import make_part, serving, serving_folder
from gymctl.servers.load import load
from gymctl.servers.stack import serve
from gymctl.servers.stack.client import ServerClient
from gymctl.transport import ROLLOUT, Transport

IMAGES = bundled() / "server_images"
STEP_STYLE = {"blackjack"}
KINDS = {"resources_servers", "responses_api_agents", "responses_api_models", "environment_servers"}
RESPONSE = {"output": [], "id": "r", "created_at": 0, "model": "m", "object": "response"}
RESPONSE |= {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}


def servers_in(document):
    """`<id>.<type>.<implementation>` blocks with an address, as trainers find them."""
    for name, block in document.items():
        for kind in KINDS & set(block if isinstance(block, dict) else ()):
            for implementation, inner in block[kind].items():
                if "host" in inner and "port" in inner:
                    yield name, kind, implementation, inner


async def document_of(http, head_url):
    async with http.get(f"{head_url}/global_config_dict_yaml") as answer:
        assert answer.status == 200
        assert answer.content_type == "application/json"
        text = json.loads(await answer.read())
    assert isinstance(text, str)
    return yaml.safe_load(text)


def head_part(*targets: HeadTarget) -> HeadPart:
    text = "wx_tools:\n  resources_servers:\n    weather_impl:\n      host: 127.0.0.1\n      port: 15011\n"
    row = {"process_name": "wx_tools", "port": 15011}
    return HeadPart(
        project="test",
        host_view_port=0,
        network_view_port=0,
        host_view=text,
        network_view=text,
        host_instances=[row],
        network_instances=[row],
        targets=list(targets),
    )


# 2.1


@pytest.mark.parametrize("path", ["/", "/livez", "/readyz", "/healthz", "/health"])
async def test_2_1_a1_a_ready_head_says_ok(http, head_url, path):
    async with http.get(head_url + path) as answer:
        assert (answer.status, await answer.read()) == (200, b'{"status":"ok"}')
        assert answer.content_type == "application/json"
        assert cookies_of(answer) == {}


@pytest.mark.ours
async def test_2_1_a1_2_2_a_head_that_waits_is_alive_not_ready_and_lists_nothing(http, free_port):
    silent = HeadTarget(name="wx_tools", url=f"http://127.0.0.1:{free_port}", kind="resources_servers")
    host, _ = head.views(head_part(silent))
    async with serving(host[0]) as url:
        for path in ("/", "/livez"):
            async with http.get(url + path) as answer:
                assert (answer.status, await answer.read()) == (200, b'{"status":"ok"}')
        for path in ("/readyz", "/healthz", "/health"):
            async with http.get(url + path) as answer:
                assert (answer.status, await answer.read()) == (503, b'{"status":"starting"}')
        async with http.get(f"{url}/server_instances") as answer:
            assert (answer.status, await answer.json()) == (200, [])
        with pytest.raises(TimeoutError):  # whoever has the configuration dials its servers at once
            await http.get(f"{url}/global_config_dict_yaml", timeout=aiohttp.ClientTimeout(total=0.3))


async def test_2_1_a2_the_config_is_a_json_string_of_yaml(http, head_url):
    document = await document_of(http, head_url)
    assert document["head_server"]["port"] == int(head_url.rpartition(":")[2])
    assert list(servers_in(document))


async def test_2_1_the_config_text_is_the_same_each_time(http, head_url):
    texts = set()
    for _ in range(3):
        async with http.get(f"{head_url}/global_config_dict_yaml") as answer:
            texts.add(await answer.read())
    assert len(texts) == 1


@pytest.mark.ours
async def test_2_1_keys_are_masked(http, head_url):
    async with http.get(f"{head_url}/global_config_dict_yaml") as answer:
        text = await answer.text()
    assert "openai_api_key: '****'" in text
    assert "sk-contract-suite" not in text


# 2.2


async def test_2_2_server_instances_have_the_keys_of_the_contract(http, head_url):
    document = await document_of(http, head_url)
    async with http.get(f"{head_url}/server_instances") as answer:
        assert (answer.status, answer.content_type) == (200, "application/json")
        rows = await answer.json()
    assert len({row["start_time"] for row in rows}) == 1
    assert rows[0]["start_time"] > 1e9
    by_name = {row["process_name"]: row for row in rows}
    for name, kind, implementation, inner in servers_in(document):
        row = by_name[name]
        assert row["config_path"] == name
        assert (row["server_type"], row["name"]) == (kind, implementation)
        assert row["entrypoint"] == inner["entrypoint"]
        assert (row["host"], row["port"]) == (inner["host"], inner["port"])
        assert row["url"] == f"http://{inner['host']}:{inner['port']}"
        assert row.keys() >= {"dir_path", "pid", "status", "uptime_seconds"}


# 2.4


async def test_2_4_without_cookies_handed_on_every_call_is_a_session_of_its_own(stateful_url):
    async with Transport() as transport:
        for _ in range(2):
            answer = await transport.call(
                "POST", f"{stateful_url}/increment_counter", b'{"amount":1,"count":1}'
            )
            assert answer.status == 200
        answer = await transport.call("POST", f"{stateful_url}/get_counter_value", b"{}")
    assert answer.json()["count"] == 0


async def test_2_4_fields_that_nobody_set_are_left_out(http, model_url, upstream):
    async with http.post(f"{model_url}/v1/responses", json={"input": "hello", "temperature": 0.5}) as answer:
        assert answer.status == 200
    asked = upstream.asked[-1]
    assert asked.json.keys() == {"input", "temperature", "model"}
    assert asked.headers["content-type"] == "application/json"


async def test_2_4_an_error_status_is_an_answer_and_not_asked_again():
    async with OpenAIUpstream() as upstream, Transport() as transport:
        upstream.always = Reply(503)
        answer = await transport.call("POST", f"{upstream.url}/responses", b"{}")
        assert (answer.status, upstream.posts()) == (503, 1)


async def test_2_4_a_refused_connection_is_tried_until_it_is_made(free_port):
    url = f"http://127.0.0.1:{free_port}/v1/responses"
    async with Transport() as transport, asyncio.timeout(60):
        call = asyncio.create_task(transport.call("POST", url, b"{}"))
        await asyncio.sleep(0.7)
        assert not call.done()
        late = OpenAIUpstream("127.0.0.1", free_port)
        async with late:
            assert (await call).status == 200
            assert late.posts() == 1


async def test_2_4_nothing_between_servers_has_a_time_limit():
    async with Transport() as transport:
        assert transport._connections._session is not None
        limits = transport._connections._session.timeout
        assert (limits.total, limits.connect, limits.sock_read, limits.sock_connect) == (None,) * 4


def test_2_4_b76_the_client_closes_idle_connections_first():
    assert KEEPALIVE_SECONDS == 15
    assert serve.settings(None).timeout_keep_alive == 30


async def test_b76_connections_that_idled_about_the_keep_alive_time_lose_no_call(monkeypatch):
    """The real times, 15 and 30 s, cut down to 0.5 and 1.5 s."""
    monkeypatch.setattr("gymctl.connections.KEEPALIVE_SECONDS", 0.5)
    monkeypatch.setattr("gymctl.servers.stack.serve.KEEPALIVE_SECONDS", 1.5)
    part = make_part("weather", "resources_servers", "weather")
    app = load(part, IMAGES / "resources_servers/weather")
    async with serving(app) as url, Transport() as transport:

        async def pair(number: int) -> list[int]:
            statuses: list[int] = []
            for _ in range(2):
                answer = await transport.call("POST", f"{url}/get_weather", b'{"city":"Oslo"}')
                statuses.append(answer.status)
                await asyncio.sleep(0.3 + 1.4 * number / 80)
            return statuses

        async with asyncio.TaskGroup() as group:
            pairs = [group.create_task(pair(number)) for number in range(80)]
    assert {status for task in pairs for status in task.result()} == {200}


async def test_b72_a_server_that_cannot_be_reached_is_told_at_once_with_name_url_and_reason(
    caplog, http, free_port
):
    folder = IMAGES / "responses_api_agents/simple_agent"
    block = {
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
        "resources_server": {"type": "resources_servers", "name": "weather"},
    }
    dead = f"http://127.0.0.1:{free_port}"
    neighbours = {"policy_model": dead, "weather": dead.replace("127.0.0.1", "127.0.0.2")}
    caplog.set_level(logging.WARNING, "gymctl.transport")

    def told() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.name == "gymctl.transport"]

    async with serving_folder(folder, "desk_agent", block, neighbours) as url:
        row = {"responses_create_params": {"input": "Weather?"}}
        calls = [asyncio.create_task(http.post(f"{url}/run", json=row)) for _ in range(5)]
        await until(told)
        await asyncio.sleep(0.5)
        lines = told()
        for call in calls:
            call.cancel()
    assert len(lines) == 1, "once, not for each of the calls that wait"
    assert f"weather ({neighbours['weather']}) cannot be reached" in lines[0]
    assert "/seed_session" in lines[0]
    assert "onnect" in lines[0]


@pytest.mark.ours
@pytest.mark.parametrize("is_observed", [True, False])
async def test_2_4_when_observed_calls_to_models_and_verifiers_bear_the_rollout(is_observed):
    kinds = {"wx": "resources_servers", "model": "responses_api_models", "agent": "responses_api_agents"}
    calls = [
        ("wx", "/verify", "/ng-rollout/3-0/verify"),
        ("model", "/v1/responses", "/ng-rollout/3-0/v1/responses"),
        ("model", "/v1/chat/completions", "/ng-rollout/3-0/v1/chat/completions"),
        ("model", "/v1/messages", "/ng-rollout/3-0/v1/messages"),
        ("model", "/v1/models", "/v1/models"),
        ("model", "/ng-rollout/9-9/v1/responses", "/ng-rollout/9-9/v1/responses"),
        ("agent", "/run", "/run"),
    ]
    async with OpenAIUpstream() as other:
        made = make_part(
            "desk", "responses_api_agents", "simple_agent", None, dict.fromkeys(kinds, other.origin)
        )
        servers = {name: at.model_copy(update={"kind": kinds[name]}) for name, at in made.servers.items()}
        client = ServerClient(made.model_copy(update={"servers": servers, "is_observed": is_observed}))
        async with client.transport:
            for rollout in (None, "3-0", "no id"):
                ROLLOUT.set(rollout)
                for name, path, _ in calls:
                    await client.call(name, path, {})
    plain = [path for _, path, _ in calls]
    prefixed = [path for _, _, path in calls]
    asked = [asked.path for asked in other.asked]
    assert asked == plain + (prefixed if is_observed else plain) + plain, "nothing without a rollout"


# 2.5


async def test_2_5_a_trainer_walks_the_config_and_calls_what_it_finds(http, head_url, upstream):
    found = list(servers_in(await document_of(http, head_url)))
    assert {kind for _, kind, _, _ in found} == KINDS
    for _, kind, implementation, inner in found:
        url = f"http://{inner['host']}:{inner['port']}"
        row = {"responses_create_params": {"input": "Weather?"}, "city": "Oslo", "expected_count": 0}
        if implementation in STEP_STYLE:
            continue  # no `/verify` (5.7)
        if kind == "resources_servers":
            async with http.post(f"{url}/verify", json={**row, "response": RESPONSE}) as answer:
                assert answer.status == 200
                assert isinstance((await answer.json())["reward"], float)
        elif kind == "responses_api_agents" or implementation == "legacy_agent":
            async with http.post(f"{url}/run", json=row) as answer:
                assert answer.status == 200
                assert isinstance((await answer.json())["reward"], float)


# 2.6


def model_part(port: int, workers: int, pool: Pool, upstream: str) -> ServerPart:
    block = {"openai_base_url": upstream, "openai_api_key": "k", "openai_model": "m"}
    made = make_part("policy_model", "responses_api_models", "openai_model", block)
    return made.model_copy(update={"bind_port": port, "workers": workers, "pool": pool})


MODEL_FOLDER = IMAGES / "responses_api_models/openai_model"


@pytest.mark.ours
async def test_2_6_b68_workers_share_the_limit_and_the_start_tells_it_once(http, free_port):
    """4 connections for 2 workers, 30 calls at once."""
    async with OpenAIUpstream() as upstream:
        upstream.always = Reply(delay=0.1)
        part = model_part(free_port, 2, Pool(limit_per_host=4, intended_per_host=12), upstream.url)
        async with Process(part, MODEL_FOLDER) as process:
            url = await process.ready()

            async def ask() -> int:
                async with http.post(f"{url}/v1/responses", json={"input": "x"}) as answer:
                    return answer.status

            assert set(await asyncio.gather(*(ask() for _ in range(30)))) == {200}
        assert 2 <= upstream.peak <= 4
    lines = [line for line in process.lines if "connections:" in line]
    assert len(lines) == 1
    assert re.search(
        r"102400 in all, 4 to one host, for 2 workers; each worker 51200 and 2; "
        r"open files \d+, ephemeral ports \d+-\d+$",
        lines[0],
    )
    warned = [line for line in process.lines if "WARNING" in line]
    assert len(warned) == 1
    assert "6 calls at once are intended for each worker, but it may open 2" in warned[0]


@pytest.mark.ours
async def test_2_6_b68_a_limit_that_leaves_a_worker_nothing_refuses_the_start(free_port):
    part = model_part(free_port, 4, Pool(limit_per_host=3), "http://127.0.0.1:1/v1")
    async with Process(part, MODEL_FOLDER) as process:
        assert await process.ended() == 1
    text = "\n".join(process.lines)
    assert "(policy_model) error: connection pool `limit_per_host`: 3 connections cannot be divided" in text
    assert "over 4 workers" in text
    assert "Traceback" not in text


# Identity


@pytest.mark.ours
@pytest.mark.parametrize("path", ["/", "/livez", "/readyz", "/healthz", "/health"])
async def test_identity_every_health_answer_names_server_and_project(http, target: Target, path):
    projects = set()
    for server in target.servers.values():
        async with http.get(server.url + path) as answer:
            assert answer.headers["x-gymctl-server"] == server.name
            projects.add(answer.headers["x-gymctl-project"])
    if target.head is not None:
        async with http.get(target.head + path) as answer:
            assert answer.headers["x-gymctl-server"] == "head"
            projects.add(answer.headers["x-gymctl-project"])
    assert len(projects) == 1
