"""The head: two views, and readiness that flips once, when all of the right servers and upstreams answer."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import yaml
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gymctl.contract.part import HeadPart, HeadTarget
from gymctl.servers import head
from gymctl.servers.inprocess import serving
from gymctl.servers.stack.liveness import Liveness

DOCUMENT = "wx_tools:\n  resources_servers:\n    weather_impl:\n      host: {host}\n      port: 15011\n"


def part(*targets: HeadTarget) -> HeadPart:
    row = {"process_name": "wx_tools", "config_path": "wx_tools", "port": 15011, "pid": 7, "status": None}
    return HeadPart(
        project="test",
        host_view_port=0,
        network_view_port=0,
        host_view=DOCUMENT.format(host="127.0.0.1"),
        network_view=DOCUMENT.format(host="wx-tools"),
        host_instances=[{**row, "host": "127.0.0.1"}],
        network_instances=[{**row, "host": "wx-tools"}],
        targets=list(targets),
    )


@asynccontextmanager
async def heads(*targets: HeadTarget):
    """URLs of the host view and of the network view."""
    async with AsyncExitStack() as stack:
        views = head.views(part(*targets))
        yield [await stack.enter_async_context(serving(app)) for app, _ in views]


class Upstream:
    """A model server with a say in whether its endpoint answers."""

    def __init__(self, state: str) -> None:
        self.state = state

    async def __call__(self, request: Request) -> Response:
        return JSONResponse([{"key": "base_url", "url": "http://u", "state": self.state, "detail": ""}])

    def app(self, project: str = "test", name: str = "policy_model") -> Liveness:
        return Liveness(Starlette(routes=[Route("/gymctl/upstream", self.__call__)]), project, name)


async def until_ready(transport, url: str) -> None:
    async with asyncio.timeout(30):
        while (await transport.call("GET", f"{url}/readyz")).status != 200:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_each_listener_answers_with_its_own_view(transport):
    async with heads() as (host, network):
        for url, address in ((host, "127.0.0.1"), (network, "wx-tools")):
            answer = await transport.call("GET", f"{url}/global_config_dict_yaml")
            assert (answer.status, answer.header("content-type")) == (200, "application/json")
            text = answer.json()
            assert isinstance(text, str)
            assert yaml.safe_load(text)["wx_tools"]["resources_servers"]["weather_impl"]["host"] == address
            await until_ready(transport, url)
            (row,) = (await transport.call("GET", f"{url}/server_instances")).json()
            assert row["host"] == address
            assert isinstance(row["start_time"], float)


async def test_a_client_on_the_host_has_the_config_once_every_server_answers(transport, free_port):
    """axolotl and NeMo Gym's client dial what they read at once; a refused rollout is one without reward."""
    url = f"http://127.0.0.1:{free_port}"
    target = HeadTarget(name="wx_tools", url=url, kind="resources_servers", family="nemo_gym")
    async with heads(target) as (host, network):
        asked = asyncio.create_task(transport.call("GET", f"{host}/global_config_dict_yaml"))
        assert (await transport.call("GET", f"{network}/global_config_dict_yaml")).status == 200
        await asyncio.sleep(0.4)
        assert not asked.done()
        async with await asyncio.start_server(_not_found, "127.0.0.1", free_port):
            assert "wx_tools" in (await asked).json()


async def _not_found(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A server, whatever it answers."""
    writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
    writer.close()


async def test_not_ready_until_every_server_answered_as_itself(transport, free_port):
    target = HeadTarget(name="wx_tools", url=f"http://127.0.0.1:{free_port}", kind="resources_servers")
    async with heads(target) as (url, _):
        for path in ("/", "/livez"):
            assert (await transport.call("GET", url + path)).json() == {"status": "ok"}
        for path in ("/readyz", "/healthz", "/health"):
            answer = await transport.call("GET", url + path)
            assert (answer.status, answer.body) == (503, b'{"status":"starting"}')
        assert (await transport.call("GET", f"{url}/server_instances")).json() == []
        status = (await transport.call("GET", f"{url}/gymctl/status")).json()
        assert (status["project"], status["ready"]) == ("test", False)
        assert status["targets"][0]["state"] == "starting"


async def test_a_stranger_on_the_port_is_not_taken_for_ours(transport):
    stranger = Liveness(Starlette(), "another project", "wx_tools")
    async with serving(stranger) as strange:
        target = HeadTarget(name="wx_tools", url=strange, kind="resources_servers")
        async with heads(target) as (url, _):
            await asyncio.sleep(0.4)
            assert (await transport.call("GET", f"{url}/readyz")).status == 503
        foreign = target.model_copy(update={"family": "nemo_gym"})
        async with heads(foreign) as (url, _):
            await until_ready(transport, url)


async def test_ready_waits_for_the_upstream_of_model_servers(transport):
    upstream = Upstream("waiting")
    async with serving(upstream.app()) as model:
        target = HeadTarget(name="policy_model", url=model, kind="responses_api_models")
        async with heads(target) as (url, _):
            async with asyncio.timeout(30):
                while True:
                    status = (await transport.call("GET", f"{url}/gymctl/status")).json()
                    (target_state,) = status["targets"]
                    if any(endpoint["url"] == "http://u" for endpoint in target_state["endpoints"]):
                        break  # the model server has said so
                    await asyncio.sleep(0.02)
            assert target_state["state"] == "ready"
            assert target_state["endpoints"][0]["state"] == "waiting"
            assert (await transport.call("GET", f"{url}/readyz")).status == 503
            upstream.state = "answering"
            await until_ready(transport, url)


async def test_an_unresolvable_upstream_does_not_hold_readiness(transport):
    async with serving(Upstream("unresolvable").app()) as model:
        target = HeadTarget(name="policy_model", url=model, kind="responses_api_models")
        async with heads(target) as (url, _):
            await until_ready(transport, url)


async def test_an_unknown_path_is_refused_in_json(transport):
    async with heads() as (url, _):
        answer = await transport.call("GET", f"{url}/nowhere")
        assert (answer.status, answer.json()) == (404, {"detail": "Not Found"})
