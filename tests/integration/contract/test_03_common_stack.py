"""CONTRACT 3.1, 3.3 and 3.4: liveness, prefixes and errors of every server, whatever its kind."""

from __future__ import annotations

import asyncio

import pytest
from fakes.contract import AGENT_BLOCK, WITH_SESSION, WITHOUT_SESSION, until
from fakes.odd_server import Odd
from fakes.openai_upstream import OpenAIUpstream, Reply

from gymctl.paths import bundled
from gymctl.servers.inprocess import make_part, serving, serving_folder
from gymctl.servers.stack.app import assemble

IMAGES = bundled() / "server_images"
LIVENESS = ("/", "/livez", "/readyz", "/healthz", "/health")


# 3.1


@pytest.mark.parametrize("server", WITH_SESSION + WITHOUT_SESSION)
async def test_3_1_every_server_answers_its_liveness_routes(request, target, http, server):
    url = request.getfixturevalue(server)
    for path in LIVENESS:
        async with http.get(url + path) as answer:
            assert answer.status == 200
            assert answer.content_type == "application/json"
            assert await answer.json() == {"status": "ok"}


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
    upstream.always = Reply(delay=120)
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
