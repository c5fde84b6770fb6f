"""scripted_model over HTTP: turns, labels, faults, and that nothing depends on the order of arrival."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import aiohttp
import pytest

CALL = {"calls": [{"name": "get_weather", "arguments": {"city": "Oslo"}}]}
SCRIPT = json.dumps([CALL, {"reasoning": "hm", "text": "Snow."}])


def ask(text: str = "Weather?", script: str = SCRIPT, **params: object) -> dict:
    return {"input": [{"role": "user", "content": text}], "metadata": {"script": script}, **params}


async def test_a_row_scripts_its_turns_and_the_answer_says_that_it_is_scripted(start):
    server = await start("scripted_model")
    first = ask()
    status, answer = await server.post("/v1/responses", first)
    assert status == 200
    assert (answer["model"], answer["metadata"]) == ("scripted", {"scripted": "true"})
    (call,) = answer["output"]
    assert (call["type"], call["name"], json.loads(call["arguments"])) == (
        "function_call",
        "get_weather",
        {"city": "Oslo"},
    )
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "snow"}
    status, answer = await server.post("/v1/responses", {**first, "input": [*first["input"], call, output]})
    assert [item["type"] for item in answer["output"]] == ["reasoning", "message"]
    assert answer["output"][1]["content"][0]["text"] == "Snow."


async def test_chat_follows_the_same_script(start):
    server = await start("scripted_model")
    body = {
        "messages": [{"role": "user", "content": "x"}],
        "metadata": {"script": SCRIPT},
        "seed": 3,
        "stop": ["y"],
    }
    status, answer = await server.post("/v1/chat/completions", body)
    assert status == 200
    message = answer["choices"][0]["message"]
    assert message["tool_calls"][0]["function"]["name"] == "get_weather"
    assert answer["choices"][0]["finish_reason"] == "tool_calls"
    tool = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "snow"}
    _, answer = await server.post(
        "/v1/chat/completions", {**body, "messages": [*body["messages"], message, tool]}
    )
    assert answer["choices"][0]["message"]["content"] == "Snow."


async def test_a_script_file_answers_rows_that_bring_none(start, tmp_path: Path):
    file = tmp_path / "script.yaml"
    file.write_text("- {when: Oslo, turns: [snow]}\n- {when: Cairo, turns: [sunny]}\n")
    server = await start("scripted_model", script_path=str(file))
    for city, sky in (("Oslo", "snow"), ("Cairo", "sunny")):
        _, answer = await server.post("/v1/responses", {"input": f"Weather in {city}?"})
        assert answer["output"][0]["content"][0]["text"] == sky
    status, answer = await server.post("/v1/responses", {"input": "Weather in Rome?"})
    assert status == 500
    assert "no script fits" in answer


FAULTS = {"statuses": {429: 0.2, 503: 0.1}, "disconnect_rate": 0.15, "malformed_call_rate": 0.2}


async def _outcomes(url: str, numbers: list[int]) -> dict[int, str]:
    async def one(session: aiohttp.ClientSession, number: int) -> tuple[int, str]:
        try:
            async with session.post(url + "/v1/responses", json=ask(f"question {number}")) as answer:
                return number, f"{answer.status} {(await answer.read()).decode()}"
        except aiohttp.ClientPayloadError:
            return number, "dropped"

    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(session, number)) for number in numbers]
    return dict(task.result() for task in tasks)


async def test_faults_are_a_function_of_the_request_not_of_the_order(start):
    numbers = list(range(200))
    seen = []
    for order, seed in ((numbers, 5), (numbers[::-1], 5), (numbers, 6)):
        server = await start("scripted_model", seed=seed, faults=FAULTS)
        seen.append(await _outcomes(server.url, order))
    assert seen[0] == seen[1]
    assert seen[0] != seen[2]
    kinds = [outcome.split(" ", 1)[0] for outcome in seen[0].values()]
    for kind, rate in (("429", 0.2), ("503", 0.1), ("dropped", 0.15)):
        assert kinds.count(kind) / len(kinds) == pytest.approx(rate, abs=0.1)
    good = [json.loads(outcome[4:]) for outcome in seen[0].values() if outcome.startswith("200 ")]
    broken = [answer for answer in good if not answer["output"][0]["arguments"].endswith("}")]
    assert len(broken) / len(good) == pytest.approx(0.2, abs=0.12)


async def test_latency_is_kept(start):
    server = await start("scripted_model", faults={"latency_ms": 150})
    begin = asyncio.get_running_loop().time()
    assert (await server.post("/v1/responses", ask()))[0] == 200
    assert asyncio.get_running_loop().time() - begin >= 0.15


async def test_repeats_of_a_task_have_fates_of_their_own(start):
    server = await start("scripted_model", faults={"statuses": {503: 0.5}})
    statuses = [(await server.post(f"/ng-rollout/0-{repeat}/v1/responses", ask()))[0] for repeat in range(24)]
    assert set(statuses) == {200, 503}
