"""llama_cpp_model end to end: a real model answers, with token ids, and ends when it is told to."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from gymctl.config.load import Selection, load
from gymctl.errors import EngineError
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
    try:
        environments = asyncio.run(ensure(config, Silent()))
    except EngineError as error:
        pytest.skip(f"its packages cannot be installed: {error.what}")
    return str(environments.pythons["policy_model"])


async def test_a_real_model_answers_with_token_ids_and_ends_quickly(spawn, python):
    server = await spawn(python, "llama_cpp_model", parallel=2, context=256)
    body = {"input": PROMPT, "temperature": 0, "max_output_tokens": 16}
    status, answer = await server.post("/v1/responses", body)
    assert status == 200
    item = answer["output"][-1]
    assert item["content"][0]["text"] == "4 + 3 = 7"
    assert answer["status"] == "completed"
    assert len(item["prompt_token_ids"]) == answer["usage"]["input_tokens"]
    assert len(item["generation_token_ids"]) == len(item["generation_log_probs"])
    assert len(item["generation_token_ids"]) == answer["usage"]["output_tokens"]
    assert all(type(token) is int for token in item["prompt_token_ids"] + item["generation_token_ids"])
    assert all(value <= 0 for value in item["generation_log_probs"])
    assert (await server.get("/gymctl/upstream"))[1] == []

    await _same_seed_same_answer_whatever_runs_beside_it(server)
    await _a_conversation_beyond_the_context_ends_as_incomplete(server)

    story = asyncio.create_task(server.post("/v1/responses", {"input": "Tell a long story."}))
    await asyncio.sleep(0.5)
    engine = _child(server.pid)
    begin = time.monotonic()
    assert await server.stop() == 0
    assert time.monotonic() - begin < 3
    assert not _is_running(engine)
    await asyncio.wait([story])
    assert story.exception() is not None or story.result()[0] != 200


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


async def test_when_llama_cpp_dies_the_server_ends_with_an_error(spawn, python):
    server = await spawn(
        python, "llama_cpp_model", parallel=1, context=128, return_token_id_information=False
    )
    _, answer = await server.post("/v1/responses", {"input": PROMPT, "max_output_tokens": 4})
    assert not any(field in answer["output"][-1] for field in IDS)
    os.kill(_child(server.pid), 9)
    async with asyncio.timeout(5):
        assert await server.ended() == 1


def _child(pid: int) -> int:
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


def _is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
