"""CONTRACT 13.1: `litellm_model` mends what a proxy answers, and asks for no less than version 1.83.0."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from fakes.openai_upstream import OpenAIUpstream, Reply

from gymctl.errors import ConfigError
from gymctl.servers.inprocess import serving_folder

LITELLM_MODEL = Path(__file__).resolve().parents[3] / "server_images/responses_api_models/litellm_model"
KEY = "sk-secret-of-the-test"
VERSION_PATH = "/health/readiness/details"
CHAT = {"messages": [{"role": "user", "content": "x"}]}
Serve = Callable[..., Awaitable[str]]


def page(version: str = "1.83.0", status: int = 200) -> Reply:
    return Reply(status, {"status": "healthy", "litellm_version": version})


@pytest.fixture
def proxy(upstream: OpenAIUpstream) -> OpenAIUpstream:
    upstream.pages[VERSION_PATH] = page()
    return upstream


@pytest.fixture
async def serve(upstream) -> AsyncIterator[Serve]:
    async with AsyncExitStack() as stack:

        async def begin(**more: Any) -> str:
            settings = {
                "openai_base_url": upstream.url,
                "openai_api_key": KEY,
                "openai_model": "tiny-1",
                **more,
            }
            return await stack.enter_async_context(serving_folder(LITELLM_MODEL, "policy_model", settings))

        yield begin


async def ask(http: Any, url: str, path: str = "/v1/responses", **body: Any) -> tuple[int, Any]:
    async with http.post(f"{url}{path}", json=body or {"input": "hello"}) as answer:
        return answer.status, await answer.json()


async def state(http: Any, url: str) -> dict[str, Any]:
    async with http.get(f"{url}/gymctl/upstream") as answer:
        (only,) = await answer.json()
        return only


async def test_13_1_litellm_is_asked_as_openai_model_asks(http, proxy, serve):
    url = await serve(
        extra_body={"temperature": 0.1, "user": "u"},
        openai_default_headers={"x-team": "red"},
        drop_input_reasoning_items=True,
    )
    items = [{"role": "user", "content": "x"}, {"type": "reasoning", "id": "r", "summary": []}]
    assert (await ask(http, url, input=items, temperature=0.9, model="other"))[0] == 200
    assert (await ask(http, url, "/v1/chat/completions", **CHAT))[1]["id"] == "chatcmpl-1"
    look, first, second = proxy.asked
    assert [asked.path for asked in (first, second)] == ["/v1/responses", "/v1/chat/completions"]
    assert first.json == {"input": items[:1], "temperature": 0.9, "user": "u", "model": "tiny-1"}
    for asked in (look, first, second):
        assert (asked.headers["authorization"], asked.headers["x-team"]) == (f"Bearer {KEY}", "red")


async def test_13_1_litellm_calls_in_flight_can_be_bounded(http, proxy, serve):
    url = await serve(max_concurrent_requests=2)
    proxy.always = Reply(delay=0.05)
    await asyncio.gather(*(ask(http, url) for _ in range(6)))
    assert proxy.peak == 2


async def test_13_1_litellm_answers_are_normalised(http, proxy, serve):
    url = await serve()
    body = {
        "id": "resp_1",
        "object": "response",
        "output": [],
        "reasoning": {"effort": "none"},
        "usage": {"input_tokens": 9, "output_tokens": 3, "total_tokens": 12, "input_tokens_details": None},
    }
    proxy.plan(Reply(body=body))
    answer = (await ask(http, url))[1]
    assert answer["reasoning"] == {"effort": None}
    assert answer["usage"]["input_tokens_details"] == {"cached_tokens": None}
    assert answer["usage"]["output_tokens_details"] == {"reasoning_tokens": None}


async def test_13_1_a_chat_answer_of_litellm_becomes_a_response(http, proxy, serve):
    url = await serve()
    message = {"role": "assistant", "content": "Hi."}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    proxy.plan(Reply(body={"object": "chat.completion", "created": 5, "model": "m", "choices": [choice]}))
    status, answer = await ask(http, url)
    assert (status, answer["object"], answer["status"]) == (200, "response", "completed")
    assert answer["output"][0]["content"][0]["text"] == "Hi."


async def test_13_1_a_good_answer_of_litellm_is_forwarded_as_the_bytes_that_came(http, proxy, serve):
    url = await serve()
    body = b'{ "output": [],  "object":"response", "big": 123456789012345678901234567890 }'
    proxy.plan(Reply(body=body))
    async with http.post(f"{url}/v1/responses", json={"input": "x"}) as answer:
        assert await answer.read() == body


async def test_13_1_litellm_version_is_asked_beside_v1(http, proxy, serve):
    await serve(openai_base_url=f"{proxy.url}/")
    assert [(asked.method, asked.path) for asked in proxy.asked] == [("GET", VERSION_PATH)]


@pytest.mark.parametrize(
    ("answered", "found"),
    [
        (page("1.82.6"), r"tells version '1\.82\.6'"),
        (Reply(200, {}), "tells no `litellm_version`"),
        (page(status=401), "answers HTTP 401 and no version"),
        (page(status=404), "answers HTTP 404 and no version"),
    ],
)
async def test_13_1_litellm_before_1_83_0_is_refused_at_startup(proxy, serve, answered, found):
    proxy.pages[VERSION_PATH] = answered
    with pytest.raises(ConfigError, match=rf"`openai_base_url`: {proxy.origin}{VERSION_PATH} {found}") as no:
        await serve()
    assert "LiteLLM 1.83.0 or later is needed" in str(no.value)
    assert len(str(no.value).splitlines()) == 1 and KEY not in str(no.value)


async def test_13_1_a_url_that_no_litellm_can_have_is_refused_at_startup(upstream, serve):
    with pytest.raises(ConfigError, match="`openai_base_url`: ftp://proxy/health/readiness/details"):
        await serve(openai_base_url="ftp://proxy/v1")


@pytest.mark.ours
@pytest.mark.parametrize("status", [500, 503])
async def test_13_1_a_litellm_that_is_still_starting_is_waited_for(http, proxy, serve, status):
    proxy.pages[VERSION_PATH] = page(status=status)
    url = await serve()
    waiting = await state(http, url)
    assert waiting["state"] == "waiting" and f"HTTP {status}" in waiting["detail"]
    call = asyncio.create_task(ask(http, url))
    await asyncio.sleep(0.2)
    assert not call.done() and proxy.posts() == 0, "nothing is sent to a proxy of unknown version"
    proxy.pages[VERSION_PATH] = page()
    assert (await call)[0] == 200
    assert (await state(http, url))["state"] == "answering"


@pytest.mark.ours
async def test_13_1_a_litellm_that_does_not_come_fails_calls_with_its_url_and_key(http, upstream, serve):
    dead = "http://127.0.0.1:9/v1"
    url = await serve(openai_base_url=dead, upstream_unreachable_seconds=0.5)
    assert (await state(http, url))["state"] == "waiting"
    status, answer = await ask(http, url)
    assert status == 500
    assert "http://127.0.0.1:9/health/readiness/details" in answer and "`openai_base_url`" in answer
    async with asyncio.timeout(30):  # 40 s if each waited
        for _ in range(80):
            assert (await ask(http, url, "/v1/chat/completions", **CHAT))[0] == 500


@pytest.mark.ours
async def test_13_1_a_litellm_that_comes_up_too_old_ends_the_server(upstream):
    upstream.pages[VERSION_PATH] = page(status=503)
    settings = {"openai_base_url": upstream.url, "openai_api_key": KEY, "openai_model": "tiny-1"}
    with pytest.raises(ConfigError, match=r"tells version '1\.82\.6'"):
        async with serving_folder(LITELLM_MODEL, "policy_model", settings):
            upstream.pages[VERSION_PATH] = page("1.82.6")
            await asyncio.sleep(100)
    assert upstream.posts() == 0


@pytest.mark.ours
async def test_13_1_a_server_that_waits_for_its_litellm_stops_when_it_is_told_to(upstream, serve, caplog):
    caplog.set_level(logging.WARNING, "gymctl.server")
    upstream.pages[VERSION_PATH] = page(status=503)
    await serve()
    assert "waiting for it" in caplog.text
