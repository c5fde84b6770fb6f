"""llama_cpp_model end to end: a real model answers, with token ids, and ends when it is told to."""

from __future__ import annotations

import asyncio
import math
import os
import time
from pathlib import Path

import aiohttp
import pytest

from gymctl.config.load import load
from gymctl.config.sources import Selection
from gymctl.runtime.envs import ensure

PROMPT = "What is 4 + 3? Answer with a number."
IDS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")


class Silent:
    def step(self, name: str, text: str) -> None: ...
    def note(self, text: str) -> None: ...
    def progress(self, text: str) -> None: ...


@pytest.fixture(scope="module")
def python() -> str:
    """The interpreter of the environment that the process runtime runs this server in."""
    config = load(Selection(model_type="llama_cpp_model"))
    environments = asyncio.run(ensure(config, Silent()))
    return str(environments.pythons["policy_model"])


async def test_a_real_model_answers_with_token_ids_and_ends_quickly(spawn, python):
    server = await spawn(python, "llama_cpp_model", parallel=2, context=256)
    body = {"input": PROMPT, "temperature": 0, "max_output_tokens": 64}
    status, answer = await server.post("/v1/responses", body)
    assert status == 200
    item = answer["output"][-1]
    assert "7" in item["content"][0]["text"]  # in which words may depend on the kind of CPU
    assert answer["status"] == "completed"
    assert len(item["prompt_token_ids"]) == answer["usage"]["input_tokens"]
    assert len(item["generation_token_ids"]) == len(item["generation_log_probs"])
    assert len(item["generation_token_ids"]) == answer["usage"]["output_tokens"]
    assert all(type(token) is int for token in item["prompt_token_ids"] + item["generation_token_ids"])
    assert all(value <= 0 for value in item["generation_log_probs"])
    assert (await server.get("/gymctl/upstream"))[1] == []

    await _every_token_of_an_emoji_is_there(server)
    await _trainers_ask_for_no_top_logprobs_and_get_ids(server)
    await _same_seed_same_answer_whatever_runs_beside_it(server)
    await _a_conversation_beyond_the_context_ends_as_incomplete(server)

    stories = [
        asyncio.create_task(server.post("/v1/responses", {"input": "Tell a long story."})) for _ in range(40)
    ]
    await asyncio.sleep(0.5)
    engine = _child(server.pid)
    begin = time.monotonic()
    assert await server.stop() == 0
    assert time.monotonic() - begin < 30
    assert not _is_running(engine)
    await asyncio.wait(stories)
    assert any(story.exception() is not None or story.result()[0] != 200 for story in stories)


async def _every_token_of_an_emoji_is_there(server) -> None:
    """llama.cpp reports the last token of a character only; the others must be found and scored."""
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "Repeat exactly: \U0001f33a\U0001f600"},
        {"role": "user", "content": "Print emoji \U0001f33a"},
    ]
    body = {"messages": messages, "max_tokens": 9, "temperature": 0, "logprobs": True}
    status, answer = await server.post("/v1/chat/completions", body)
    assert status == 200
    message, entries = answer["choices"][0]["message"], answer["choices"][0]["logprobs"]["content"]
    assert "\U0001f33a" in message["content"]
    tokens, scores = message["generation_token_ids"], message["generation_log_probs"]
    assert len(entries) < len(tokens) == len(scores) == answer["usage"]["completion_tokens"]
    assert all(value <= 0 for value in scores)
    # Greedy: what was taken is the likeliest of the vocabulary, so never less probable than the average.
    assert all(value > math.log(1 / 49152) for value in scores)


async def _trainers_ask_for_no_top_logprobs_and_get_ids(server) -> None:
    messages = [{"role": "user", "content": PROMPT}]
    body = {"messages": messages, "max_tokens": 4, "logprobs": True, "top_logprobs": 0, "seed": 7}
    _, answer = await server.post("/v1/chat/completions", body)
    choice = answer["choices"][0]
    assert len(choice["message"]["generation_token_ids"]) == answer["usage"]["completion_tokens"]
    assert all(entry["top_logprobs"] == [] for entry in choice["logprobs"]["content"])
    _, several = await server.post("/v1/chat/completions", {**body, "n": 2})
    assert [set(IDS) & set(choice["message"]) for choice in several["choices"]] == [set(), set()]


async def _same_seed_same_answer_whatever_runs_beside_it(server) -> None:
    body = {"input": PROMPT, "temperature": 1.0, "max_output_tokens": 12, "metadata": {"seed": "7"}}
    alone = await server.post("/v1/responses", body)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(server.post("/v1/responses", body)) for _ in range(4)]
    texts = {task.result()[1]["output"][-1]["content"][0]["text"] for task in tasks}
    assert texts == {alone[1]["output"][-1]["content"][0]["text"]}


async def _a_conversation_beyond_the_context_ends_as_incomplete(server) -> None:
    status, answer = await server.post("/v1/responses", {"input": "word " * 400})
    assert status == 200
    assert (answer["status"], answer["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert not any(field in answer["output"][-1] for field in IDS)


async def test_a_caller_that_leaves_frees_its_slot(spawn, python):
    endless = {"ignore_eos": True}  # what is sampled may be a story of three words
    slow = {"parallel": 1, "context": 4096, "threads": 1}  # no core is so quick that it ends in 0.6 s
    server = await spawn(python, "llama_cpp_model", **slow, extra_body=endless)
    short = {"input": "hi", "max_output_tokens": 1}
    await server.post("/v1/responses", short)
    for long in ({"input": "Tell a very long story.", "max_output_tokens": 3500}, {"input": "word " * 3500}):
        with pytest.raises(TimeoutError):
            await server.post("/v1/responses", long, timeout=aiohttp.ClientTimeout(total=0.6))
        async with asyncio.timeout(30):
            assert (await server.post("/v1/responses", short))[0] == 200


@pytest.mark.parametrize("content", [None, b"", b"GGUF" + bytes(1000)])
async def test_a_model_that_cannot_be_loaded_is_told_without_a_traceback(
    spawn, python, tmp_path, capfd, content
):
    path = tmp_path / "model.gguf"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(AssertionError, match="ended at its start"):
        await spawn(python, "llama_cpp_model", model_path=str(path))
    told = capfd.readouterr().err
    expected = "no such model file" if content is None else "llama.cpp could not load the model"
    assert f"error: {expected}" in told and str(path) in told
    assert "Traceback" not in told


async def test_when_llama_cpp_dies_the_server_ends_with_an_error(spawn, python):
    server = await spawn(
        python, "llama_cpp_model", parallel=1, context=128, return_token_id_information=False
    )
    _, answer = await server.post(
        "/v1/responses", {"input": PROMPT, "max_output_tokens": 4, "temperature": 0}
    )
    assert not any(field in answer["output"][-1] for field in IDS)
    os.kill(_child(server.pid), 9)
    async with asyncio.timeout(60):
        assert await server.ended() == 1


def _child(pid: int) -> int:
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


def _is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
