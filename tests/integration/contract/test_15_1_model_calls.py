"""CONTRACT 15.1: model calls on record, one durable line each, before the caller has the whole answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from fakes.contract import until
from fakes.exchanges import PARAMS, message, post, reply
from fakes.openai_upstream import Reply

from gymctl.contract.part import Capture
from gymctl.servers.inprocess import serving_folder

MODELS = Path(__file__).resolve().parents[3] / "server_images" / "responses_api_models"
KEY = "sk-secret-of-the-test"
CHAT = {"messages": [{"role": "user", "content": "x"}]}
MESSAGES = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 9}
BODIES = {"/v1/responses": PARAMS, "/v1/chat/completions": CHAT, "/v1/messages": MESSAGES}
FIELDS = {
    *("model_call_id", "dialect", "model_ref", "started_at", "completed_at", "latency_ms", "latency_ttft_ms"),
    *("status_code", "error_category", "request", "response"),
}
Serve = Callable[..., Awaitable[str]]


@pytest.fixture
async def serve(upstream, tmp_path) -> AsyncIterator[Serve]:
    """`await serve()`: the URL of an openai_model that records its calls in `tmp_path`."""
    async with AsyncExitStack() as stack:

        async def begin(folder: Path | None = tmp_path, **more: Any) -> str:
            settings = {
                "openai_base_url": upstream.url,
                "openai_api_key": KEY,
                "openai_model": "tiny-1",
                **more,
            }
            told = {"capture": Capture(calls=None if folder is None else str(folder))}
            return await stack.enter_async_context(
                serving_folder(MODELS / "openai_model", "policy_model", settings, told=told)
            )

        yield begin


def lines(folder: Path, rollout: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{rollout}.capture.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("path", BODIES)
async def test_15_1_a_call_with_a_prefix_is_one_line(http, serve, upstream, tmp_path, path):
    url = await serve()
    told = await post(http, f"{url}/ng-rollout/3-0{path}", BODIES[path], **{"x-session-id": "mine"})
    (line,) = lines(tmp_path, "3-0")
    assert line.keys() >= FIELDS
    assert line["dialect"] == {"/v1/responses": "responses", "/v1/chat/completions": "chat"}.get(
        path, "messages"
    )
    assert line["model_ref"] == {"type": "responses_api_models", "name": "policy_model"}
    assert (line["request"], line["response"]) == (BODIES[path], told.json)
    assert (line["status_code"], line["error_category"]) == (200, None)
    assert (line["response_source"], line["upstream_attempted"]) == ("upstream", True)
    assert line["client_session_id"] == "mine", "4: evidence of who asked"
    assert line["started_at"] <= line["completed_at"]
    assert line["latency_ms"] > 0


async def test_15_1_no_header_and_no_key_is_ever_written(http, serve, tmp_path):
    url = await serve()
    await post(http, f"{url}/ng-rollout/3-0/v1/responses", PARAMS, authorization="Bearer of-the-caller")
    text = (tmp_path / "3-0.capture.jsonl").read_text()
    assert KEY not in text
    assert "of-the-caller" not in text


async def test_15_1_without_prefix_or_folder_nothing_is_written(http, serve, tmp_path):
    url, other = await serve(), await serve(None)
    assert (await post(http, f"{url}/v1/responses", PARAMS)).status == 200
    assert (await post(http, f"{other}/ng-rollout/3-0/v1/responses", PARAMS)).status == 200
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("rollout", ["a%20b", "%2e%2e%2fx", "x" * 300])
async def test_15_1_an_id_that_names_no_file_is_served_all_the_same(http, serve, tmp_path, rollout):
    url = await serve()
    answer = await post(http, f"{url}/ng-rollout/{rollout}/v1/responses", PARAMS)
    assert answer.status in (200, 404)
    assert not list(tmp_path.iterdir())


CATEGORIES = {401: "auth", 404: "not_found", 418: "client_error", 429: "rate_limit", 504: "timeout"}


@pytest.mark.parametrize(("status", "category"), [*CATEGORIES.items(), (500, "upstream_error")])
async def test_15_1_the_category_of_a_failure_is_the_upstreams(
    http, serve, upstream, tmp_path, status, category
):
    url = await serve(max_http_attempts=1, upstream_dialect="responses")
    upstream.plan(Reply(status))
    assert (await post(http, f"{url}/ng-rollout/3-0/v1/responses", PARAMS)).status == 500
    (line,) = lines(tmp_path, "3-0")
    assert (line["error_category"], line["status_code"]) == (category, 500)
    assert (line["upstream_status_code"], line["response"]) == (status, None)


async def test_15_1_other_failures_have_their_category_too(http, serve, upstream, tmp_path):
    url = await serve(max_http_attempts=1)
    upstream.plan(Reply(is_dropped=True))
    await post(http, f"{url}/ng-rollout/3-0/v1/responses", PARAMS)
    await post(http, f"{url}/ng-rollout/3-0/v1/responses", {"input": 7})
    upstream.plan(Reply(delay=120))
    call = asyncio.create_task(post(http, f"{url}/ng-rollout/3-0/v1/responses", PARAMS))
    await until(lambda: upstream.in_flight)
    call.cancel()
    await until(lambda: len(lines(tmp_path, "3-0")) == 3)
    found = lines(tmp_path, "3-0")
    assert [line["error_category"] for line in found] == ["connection", "client_error", "cancelled"]
    assert [line["status_code"] for line in found] == [500, 422, None]
    assert found[1]["local_response_reason"] == "invalid_request"


@pytest.mark.parametrize("path", BODIES)
async def test_15_1_a_stream_ends_only_when_its_line_is_on_disk(http, serve, upstream, tmp_path, path):
    url = await serve()
    upstream.plan(reply(message())) if path != "/v1/chat/completions" else None
    async with http.post(f"{url}/ng-rollout/3-0{path}", json={**BODIES[path], "stream": True}) as answer:
        await answer.content.readany()
        (line,) = lines(tmp_path, "3-0")
        assert answer.headers["x-gymctl-model-call-id"] == line["model_call_id"]
    assert line["error_category"] is None
    assert line["response"]["id"]
    assert line["latency_ttft_ms"] is not None
    assert line["request"]["stream"] is True


async def test_15_1_a_stream_that_fails_tells_why(http, serve, upstream, tmp_path):
    url = await serve(max_http_attempts=1, upstream_dialect="responses")
    upstream.plan(Reply(429))
    body = {**PARAMS, "stream": True}
    async with http.post(f"{url}/ng-rollout/3-0/v1/responses", json=body) as answer:
        assert answer.status == 200
        assert b"response.failed" in await answer.read()
    (line,) = lines(tmp_path, "3-0")
    assert (line["error_category"], line["status_code"]) == ("rate_limit", 200)
    assert "response.failed" in line["response_raw"]


async def test_15_1_a_line_that_cannot_be_written_leaves_a_mark(http, serve, tmp_path):
    url = await serve()
    (tmp_path / "3-0.capture.jsonl").mkdir()
    assert (await post(http, f"{url}/ng-rollout/3-0/v1/responses", PARAMS)).status == 200
    assert (tmp_path / "3-0.capture.incomplete").exists()


async def test_15_1_calls_at_once_are_each_one_whole_line(http, serve, tmp_path):
    url = await serve()
    calls = (post(http, f"{url}/ng-rollout/3-0/v1/responses", PARAMS) for _ in range(20))
    await asyncio.gather(*calls)
    found = lines(tmp_path, "3-0")
    assert len({line["model_call_id"] for line in found}) == 20


@pytest.mark.parametrize("passes_on", [False, True])
async def test_15_1_a_conversation_that_does_not_fit_is_said_to_be_answered_here(
    http, upstream, tmp_path, passes_on
):
    block = {
        "base_url": upstream.url,
        "api_key": KEY,
        "model": "tiny-1",
        "return_token_id_information": False,
        "uses_reasoning_parser": False,
        "propagate_context_overflow_errors": passes_on,
    }
    told = {"capture": Capture(calls=str(tmp_path))}
    async with serving_folder(MODELS / "vllm_model", "policy_model", block, told=told) as url:
        upstream.plan(Reply(400, {"message": "maximum context length is 8 tokens"}))
        answer = await post(http, f"{url}/ng-rollout/3-0/v1/responses", PARAMS)
    assert answer.status == (400 if passes_on else 200)
    (line,) = lines(tmp_path, "3-0")
    assert line["error_category"] == line["local_response_reason"] == "context_length_exceeded"
    assert (line["response_source"], line["upstream_status_code"]) == ("local", 400)
