"""CONTRACT 15.3 and 7.6 step 5: whose calls ask for their tokens, and what is written of them."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from fakes.exchanges import PARAMS, episode, message, post, reply, row
from fakes.vllm_model import USER
from fakes.vllm_upstream import VLLMUpstream

from gymctl.contract.captures import digest
from gymctl.contract.part import Capture
from gymctl.contract.servers import Address
from gymctl.servers.inprocess import serving_folder

IMAGES = Path(__file__).resolve().parents[3] / "server_images"
MODEL = {"type": "responses_api_models", "name": "policy_model"}
TOOLS = {"type": "resources_servers", "name": "weather"}
SEGMENT = "/training-token-capture"
FIELDS = {
    *("schema_version", "rollout_id", "model_call_id", "model", "prompt_token_ids", "generation_token_ids"),
    *("generation_log_probs", "routed_experts", "output_items", "token_item_index", "response_id"),
    *("created_at", "parent_call_id", "cum_len", "digest", "parent_resolution", "continuation_fingerprint"),
    *("continuation_context_len", "continuation_context_digest", "parent_resolution_reason"),
    *("fingerprint_version", "prompt_is_delta", "prefix_requested", "prefix_supplied"),
}
Begin = Callable[..., Awaitable[str]]


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def model(stack: AsyncExitStack, tmp_path: Path) -> AsyncIterator[tuple[str, VLLMUpstream]]:
    """A vllm_model that records tokens, and the engine behind it."""
    async with VLLMUpstream() as engine:
        block = {
            "base_url": engine.url,
            "api_key": "k",
            "model": "tiny",
            "uses_reasoning_parser": False,
            "return_token_id_information": True,
        }
        told = {"capture": Capture(tokens=str(tmp_path))}
        folder = IMAGES / "responses_api_models" / "vllm_model"
        yield (
            await stack.enter_async_context(serving_folder(folder, "policy_model", block, told=told)),
            engine,
        )


def entries(folder: Path, rollout: str = "3-0") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{rollout}.tokens.jsonl").read_text().splitlines()]


async def test_15_3_a_conversations_calls_are_a_chain(http, model, tmp_path):
    url, engine = model
    conversation: list[Any] = [USER]
    for turn in range(3):
        engine.say(f"answer {turn}")
        body = {"input": conversation}
        told = await post(http, f"{url}/ng-rollout/3-0{SEGMENT}/v1/responses", body)
        conversation = [*conversation, *told.json["output"], USER]
    found = entries(tmp_path)
    assert all(entry.keys() == FIELDS for entry in found)
    assert [entry["parent_resolution"] for entry in found] == ["root", "resolved", "resolved"]
    assert [entry["parent_call_id"] for entry in found[1:]] == [entry["model_call_id"] for entry in found[:2]]
    last = found[-1]
    whole = last["prompt_token_ids"] + last["generation_token_ids"]
    assert (last["cum_len"], last["digest"]) == (len(whole), digest(whole))
    assert len(last["generation_log_probs"]) == len(last["generation_token_ids"])
    item = last["output_items"][last["token_item_index"]]
    assert item["type"] == "message" and "prompt_token_ids" not in item
    assert last["response_id"] == told.json["id"]
    state = json.loads((tmp_path / "3-0.tokens.state.json").read_text())
    assert (state["incomplete"], state["version"]) == (False, 3)
    assert (tmp_path / "3-0.tokens.lock").exists()


async def test_15_3_a_continuation_of_what_is_not_on_record_is_unresolved(http, model, tmp_path):
    url, _ = model
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi."}]}
    await post(http, f"{url}/ng-rollout/3-0{SEGMENT}/v1/responses", {"input": [USER, said, USER]})
    [entry] = entries(tmp_path)
    assert (entry["parent_resolution"], entry["parent_call_id"]) == ("unresolved", None)


async def test_15_3_chat_is_recorded_and_a_plain_prefix_is_not(http, model, tmp_path):
    url, _ = model
    chat = {"messages": [{"role": "user", "content": "hi"}]}
    await post(http, f"{url}/ng-rollout/3-0/v1/chat/completions", chat)
    await post(http, f"{url}/v1/chat/completions", chat)
    assert not list(tmp_path.iterdir())
    await post(http, f"{url}/ng-rollout/3-0{SEGMENT}/v1/chat/completions", chat)
    [entry] = entries(tmp_path)
    assert entry["output_items"][0]["content"] == "Hi."


async def test_15_3_a_state_that_was_lost_is_made_anew_from_the_lines(http, model, tmp_path):
    url, _ = model
    path = f"{url}/ng-rollout/3-0{SEGMENT}/v1/responses"
    first = await post(http, path, {"input": [USER]})
    (tmp_path / "3-0.tokens.state.json").unlink()
    await post(http, path, {"input": [USER, *first.json["output"], USER]})
    assert [entry["parent_resolution"] for entry in entries(tmp_path)] == ["root", "resolved"]


async def test_15_3_an_answer_without_tokens_makes_the_record_incomplete(http, stack, upstream, tmp_path):
    block = {"openai_base_url": upstream.url, "openai_api_key": "k", "openai_model": "tiny-1"}
    told = {"capture": Capture(tokens=str(tmp_path))}
    folder = IMAGES / "responses_api_models" / "openai_model"
    url = await stack.enter_async_context(serving_folder(folder, "policy_model", block, told=told))
    upstream.plan(reply(message()))
    assert (await post(http, f"{url}/ng-rollout/3-0{SEGMENT}/v1/responses", PARAMS)).status == 200
    assert json.loads((tmp_path / "3-0.tokens.state.json").read_text())["incomplete"] is True


@pytest.fixture
async def spy(stack: AsyncExitStack, model_url: str) -> tuple[str, list[str]]:
    """A model server that notes the paths it is asked at."""
    paths: list[str] = []

    async def note(request: web.Request) -> web.Response:
        paths.append(request.path)
        return web.json_response(reply(message()).body)

    app = web.Application()
    app.router.add_route("POST", "/{path:.*}", note)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    return f"http://{host}:{port}", paths


@pytest.mark.parametrize("takes_part", [True, False])
async def test_7_6_5_the_segment_is_there_for_agents_that_take_part(
    http, stack, spy, resources_url, takes_part
):
    model_url, paths = spy
    capture = Capture(token_agents=("desk",) if takes_part else ())
    block = {"model_server": MODEL, "resources_server": TOOLS}
    agent = await stack.enter_async_context(
        serving_folder(
            IMAGES / "responses_api_agents" / "simple_agent",
            "desk",
            block,
            {"policy_model": model_url, "weather": resources_url},
            told={"capture": capture},
        )
    )
    turns = {
        "agent_server": {"type": "responses_api_agents", "name": "desk"},
        "resources_server": TOOLS,
        "cleanup_timeout_seconds": 10,
    }
    url = await stack.enter_async_context(
        serving_folder(
            IMAGES / "environment_servers" / "single_agent_turn",
            "turns",
            turns,
            {"desk": agent, "weather": resources_url},
            told={"capture": capture},
        )
    )
    name = f"tokens-{uuid.uuid4().hex}"
    assert (await post(http, f"{url}/run", episode(name))).json["failure"] is None
    assert paths == [f"/ng-rollout/{name}{SEGMENT if takes_part else ''}/v1/responses"]


async def test_15_3_the_calls_of_a_flat_run_ask_for_their_tokens_too(http, stack, spy, resources_url):
    model_url, paths = spy
    port = int(model_url.rpartition(":")[2])
    tools = int(resources_url.rpartition(":")[2])
    servers = {
        "policy_model": Address(
            kind="responses_api_models", implementation="any", host="127.0.0.1", port=port
        ),
        "weather": Address(kind="resources_servers", implementation="any", host="127.0.0.1", port=tools),
    }
    told = {"capture": Capture(token_agents=("desk",)), "servers": servers}
    folder = IMAGES / "responses_api_agents" / "simple_agent"
    block = {"model_server": MODEL, "resources_server": TOOLS}
    url = await stack.enter_async_context(serving_folder(folder, "desk", block, told=told))
    given = row(_ng_task_index=3, _ng_rollout_index=1)
    assert (await post(http, f"{url}/run", given)).status == 200
    assert paths == [f"/ng-rollout/3-1{SEGMENT}/v1/responses"]
