"""inference_provider and azure_openai_model in front of an endpoint that speaks chat only: CONTRACT 13.1."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from gymctl.errors import ConfigError

CONFIGS = (
    Path(__file__).resolve().parents[3] / "server_images/responses_api_models/inference_provider/configs"
)
KEY = "sk-secret-of-the-test"
CHAT = {"messages": [{"role": "user", "content": "x"}]}


def provider(upstream: Any, **more: Any) -> dict[str, Any]:
    return {"base_url": upstream.url, "api_key": KEY, "model": "tiny-1", "max_http_attempts": 1, **more}


def azure(url: str, **more: Any) -> dict[str, Any]:
    return {
        "openai_base_url": url,
        "openai_api_key": KEY,
        "openai_model": "my deployment",
        "default_query": {"api-version": "2024-10-21"},
        "num_concurrent_requests": 2,
        "max_http_attempts": 1,
        **more,
    }


def completion(**message: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    return {"id": "c", "object": "chat.completion", "created": 5, "model": "tiny-1", "choices": [choice]}


async def test_13_1_a_provider_is_asked_in_chat_and_answers_both(start, upstream):
    server = await start(
        "inference_provider", **provider(upstream, extra_body={"top_k": 3, "temperature": 1})
    )
    began = int(time.time())
    status, answer = await server.post(
        "/v1/responses", {"input": "hello", "temperature": 0.5, "model": "other"}
    )
    assert status == 200
    assert answer["output"][0]["content"][0]["text"] == "Hi."
    assert began <= answer["created_at"] <= time.time(), "now, not the upstream's"
    assert (answer["status"], answer["usage"]["total_tokens"]) == ("completed", 12)
    status, answer = await server.post("/v1/chat/completions", CHAT)
    assert (status, answer["created"]) == (200, 1790000001)
    assert [asked.path for asked in upstream.asked] == ["/v1/chat/completions"] * 2
    first = upstream.asked[0]
    assert first.headers["authorization"] == f"Bearer {KEY}"
    assert (first.json["top_k"], first.json["temperature"], first.json["model"]) == (3, 0.5, "tiny-1")


@pytest.mark.parametrize("parser", [False, True])
async def test_13_1_reasoning_of_a_provider_is_parsed_or_ignored(start, upstream, reply, parser):
    server = await start("inference_provider", **provider(upstream, uses_reasoning_parser=parser))
    upstream.always = reply(body=completion(reasoning_content="Hm.", content="<think>So.</think>Hi."))
    _, answer = await server.post("/v1/responses", {"input": "x"})
    texts = [(item["type"], item.get("summary") or item["content"]) for item in answer["output"]]
    if parser:
        (kind, thoughts), (_, said) = texts
        assert kind == "reasoning" and [part["text"] for part in thoughts] == ["Hm.", "So."]
        assert said[0]["text"] == "Hi."
    else:
        ((kind, said),) = texts
        assert (kind, said[0]["text"]) == ("message", "<think>So.</think>Hi.")


async def test_an_answer_of_a_provider_that_is_no_completion_is_an_error(start, upstream, reply):
    server = await start("inference_provider", **provider(upstream))
    upstream.always = reply(body={"choices": []})
    for path, body in (("/v1/responses", {"input": "x"}), ("/v1/chat/completions", CHAT)):
        status, answer = await server.post(path, body)
        assert status == 500 and "no choices" in answer


def test_13_1_all_nine_flavours_are_there():
    flavours = {path.stem: yaml.safe_load(path.read_text()) for path in CONFIGS.glob("*.yaml")}
    assert set(flavours) == {
        *("inference_provider", "baseten", "deepinfra", "fireworks", "friendli", "gemini"),
        *("hf_inference", "nebius", "openrouter", "together"),
    }
    for name, document in flavours.items():
        block = document["policy_model"]["responses_api_models"]["inference_provider"]
        assert block["base_url"].startswith("https://") or name == "inference_provider"
        assert (block["api_key"], block["model"]) == ("${policy_api_key}", "${policy_model_name}")


async def test_13_1_azure_is_asked_at_its_deployment(start, upstream):
    server = await start("azure_openai_model", **azure(upstream.origin))
    status, answer = await server.post("/v1/responses", {"input": "hello"})
    assert status == 200
    assert answer["output"][0]["content"][0]["text"] == "Hi."
    assert (answer["usage"], answer["status"]) == (None, None)
    assert (await server.post("/v1/chat/completions", CHAT))[1]["usage"]["total_tokens"] == 12
    for asked in upstream.asked:
        assert asked.path == "/openai/deployments/my deployment/chat/completions"
        assert asked.query == {"api-version": "2024-10-21"}
        assert asked.headers["api-key"] == KEY
        assert "authorization" not in asked.headers
        assert asked.json["model"] == "my deployment"


@pytest.mark.parametrize("path", ["/openai/v1", "/openai/v1/", "/openai/deployments/other"])
async def test_azure_urls_below_openai_are_taken_as_they_are(start, upstream, path):
    server = await start("azure_openai_model", **azure(upstream.origin + path))
    assert (await server.post("/v1/chat/completions", CHAT))[0] == 200
    assert upstream.asked[0].path == f"{path.rstrip('/')}/chat/completions"


async def test_azures_key_is_never_told(start, upstream, reply):
    server = await start("azure_openai_model", **azure(upstream.origin))
    upstream.plan(reply(401, {"error": {"message": f"Access denied: invalid api key {KEY}"}}))
    for _ in range(2):
        status, answer = await server.post("/v1/chat/completions", CHAT)
        assert status == 500 and "Access denied" in answer and KEY not in answer
    assert upstream.posts() == 1, "refused for good"


async def test_azures_requests_in_flight_are_bounded(start, upstream, reply):
    upstream.always = reply(delay=0.05)
    server = await start("azure_openai_model", **azure(upstream.origin))
    await asyncio.gather(*(server.post("/v1/chat/completions", CHAT) for _ in range(6)))
    assert upstream.peak == 2


@pytest.mark.parametrize("missing", ["default_query", "num_concurrent_requests"])
async def test_13_1_what_azure_needs_is_asked_for(start, upstream, missing):
    block = azure(upstream.origin)
    del block[missing]
    with pytest.raises(ConfigError, match=missing):
        await start("azure_openai_model", **block)
