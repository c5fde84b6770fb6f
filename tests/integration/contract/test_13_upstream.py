"""CONTRACT 13.1 and 13.2: what `openai_model` asks its upstream, and when it asks again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from fakes.openai_upstream import Reply

from gymctl.errors import ConfigError
from gymctl.servers.inprocess import serving_folder

OPENAI_MODEL = Path(__file__).resolve().parents[3] / "server_images/responses_api_models/openai_model"
KEY = "sk-secret-of-the-test"
Serve = Callable[..., Awaitable[str]]


@pytest.fixture
async def serve(upstream) -> AsyncIterator[Serve]:
    """`await serve(max_http_attempts=2)`: the URL of an openai_model of this test's own."""
    async with AsyncExitStack() as stack:

        async def begin(**more: Any) -> str:
            settings = {
                "openai_base_url": upstream.url,
                "openai_api_key": KEY,
                "openai_model": "tiny-1",
                **more,
            }
            return await stack.enter_async_context(serving_folder(OPENAI_MODEL, "policy_model", settings))

        yield begin


async def ask(http: Any, url: str, **more: Any) -> tuple[int, Any]:
    async with http.post(f"{url}/v1/responses", json={"input": "hello", **more}) as answer:
        return answer.status, await answer.json()


async def test_13_1_both_routes_are_passed_through(http, upstream, serve):
    url = await serve()
    assert (await ask(http, url))[1]["vendor_field"] == {"kept": True}
    async with http.post(
        f"{url}/v1/chat/completions", json={"messages": [{"role": "user", "content": "x"}]}
    ) as chat:
        assert (await chat.json())["id"] == "chatcmpl-1"
    assert [asked.path for asked in upstream.asked] == ["/v1/responses", "/v1/chat/completions"]


async def test_13_1_the_answer_is_forwarded_as_the_bytes_that_came(http, upstream, serve):
    url = await serve()
    body = b'{ "output": [],  "object":"response", "weird": 1e400, "big": 123456789012345678901234567890 }'
    upstream.plan(Reply(body=body))
    async with http.post(f"{url}/v1/responses", json={"input": "x"}) as answer:
        assert await answer.read() == body


async def test_13_1_extra_body_gives_way_to_the_request_and_the_model_to_the_config(http, upstream, serve):
    url = await serve(extra_body={"temperature": 0.1, "service_tier": "flex", "model": "no"})
    await ask(http, url, temperature=0.9, model="other")
    sent = upstream.asked[0].json
    assert (sent["temperature"], sent["service_tier"], sent["model"]) == (0.9, "flex", "tiny-1")


@pytest.mark.parametrize("setting", [True, "true"], ids=["yaml", "environment"])
async def test_13_1_reasoning_items_can_be_dropped(http, upstream, serve, setting):
    url = await serve(drop_input_reasoning_items=setting)
    items = [{"role": "user", "content": "x"}, {"type": "reasoning", "id": "r", "summary": []}]
    await ask(http, url, input=items)
    assert [item.get("type") for item in upstream.asked[0].json["input"]] == [None]


async def test_13_1_calls_in_flight_can_be_bounded(http, upstream, serve):
    url = await serve(max_concurrent_requests=2)
    upstream.always = Reply(delay=0.05)
    await asyncio.gather(*(ask(http, url) for _ in range(6)))
    assert upstream.peak == 2


async def test_13_1_fewer_than_one_attempt_are_refused(upstream, serve):
    with pytest.raises(ConfigError, match="max_http_attempts"):
        await serve(max_http_attempts=0)


async def test_13_1_requests_that_generate_nothing_may_be_named(http, upstream, serve):
    url = await serve(token_id_capture_non_generating_requests=[{"method": "GET", "path": "/x"}])
    assert (await ask(http, url))[0] == 200


async def test_13_2_the_key_is_a_bearer_and_default_headers_are_sent(http, upstream, serve):
    url = await serve(openai_default_headers={"x-team": "red"})
    await ask(http, url)
    headers = upstream.asked[0].headers
    assert (headers["authorization"], headers["x-team"]) == (f"Bearer {KEY}", "red")


@pytest.mark.parametrize("status", [404, 408, 429, 500, 502, 503, 504, 520])
async def test_13_2_these_statuses_are_tried_again(http, upstream, serve, status):
    url = await serve(max_http_attempts=2, upstream_dialect="responses")
    upstream.plan(Reply(status))
    assert (await ask(http, url))[0] == 200
    first, second = (asked.at for asked in upstream.asked)
    assert 0.45 <= second - first < 20


@pytest.mark.parametrize("status", [400, 401, 403, 405, 409, 413, 422, 501, 505])
async def test_13_2_everything_else_returns_at_once_as_500(http, upstream, serve, status):
    url = await serve(upstream_dialect="responses")
    upstream.always = Reply(status, {"error": {"message": "no"}}, {"Retry-After": "60"})
    async with asyncio.timeout(25):
        answer = await ask(http, url)
    assert answer == (
        500,
        "Hit an exception in OpenAIModel___policy_model calling an inner server: "
        'b\'{"error":{"message":"no"}}\'',
    )
    assert upstream.posts() == 1


async def test_13_2_there_are_three_tries_in_total_and_then_500(http, upstream, serve):
    url = await serve(upstream_dialect="responses")
    upstream.always = Reply(503)
    assert (await ask(http, url))[0] == 500
    assert upstream.posts() == 3


async def test_13_2_dropped_connections_are_tries_too(http, upstream, serve):
    url = await serve()
    upstream.plan(Reply(is_dropped=True), Reply(503), Reply(is_dropped=True))
    assert (await ask(http, url))[0] == 500
    assert upstream.posts() == 3


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (429, {"code": "budget_exceeded"}),
        (429, {"type": "insufficient_quota"}),
        (401, {"code": "invalid_api_key"}),
        (403, {"code": "invalid_api_token"}),
        (401, {"type": "authentication_error"}),
        (403, {"message": "That is an INVALID API key."}),
        (401, {"message": "Incorrect API key provided."}),
    ],
)
async def test_13_2_a_refused_key_or_a_spent_quota_ends_it_for_the_process(
    http, upstream, serve, status, error
):
    url = await serve()
    upstream.plan(Reply(status, {"error": error}))
    first, second = await ask(http, url), await ask(http, url)
    assert first == second and first[0] == 500
    assert upstream.posts() == 1


@pytest.mark.ours
async def test_13_2_a_dead_upstream_is_given_up_with_its_url_and_key(http, upstream, serve):
    dead = "http://127.0.0.1:9/v1"
    url = await serve(openai_base_url=dead, upstream_unreachable_seconds=0.5)
    status, answer = await ask(http, url)
    assert status == 500
    assert dead in answer and "`openai_base_url`" in answer
    async with asyncio.timeout(30):  # 40 s if each waited
        for _ in range(80):
            assert (await ask(http, url))[0] == 500


async def test_no_error_repeats_a_key_that_stands_in_the_default_headers(http, upstream, serve):
    url = await serve(
        openai_api_key="",
        upstream_dialect="responses",
        openai_default_headers={"Authorization": "Bearer sk-of-the-header", "x-team": "red-team"},
    )
    upstream.always = Reply(403, {"error": {"message": "sk-of-the-header is not of red-team"}})
    status, answer = await ask(http, url)
    assert status == 500
    assert "**** is not of red-team" in answer and "sk-of" not in answer
