"""Counter over HTTP: no session sees another's count, closed sessions stay closed."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

IMAGE = "resources_servers/counter"
EXAMPLES = Path(__file__).parents[1] / "data" / "example.jsonl"
ROW: dict[str, Any] = {"responses_create_params": {"input": "count"}, "response": {"output": []}}
EPISODE = {"rollout_id": "0-0"}


def typed_seed(session_id: str, **data: Any) -> dict[str, Any]:
    return {
        "resources_session_id": session_id,
        "episode_id": EPISODE,
        "task_id": {"taskset": "c", "task_id": "1"},
        "task_data": data,
    }


async def test_64_sessions_at_once_do_not_mix(start, client):
    url = await start(IMAGE, "counter")

    async def rollout(number: int) -> None:
        seeded = await client.post(f"{url}/seed_session", {"initial_count": number, **ROW})
        jar = seeded.cookies
        for amount in range(5):
            answer = await client.post(f"{url}/increment_counter", {"amount": amount}, cookies=jar)
            assert answer.json() == {"success": True}
            value = await client.post(f"{url}/get_counter_value", {}, cookies=jar)
            assert value.json() == {"count": number + sum(range(amount + 1))}
        verdict = await client.post(f"{url}/verify", {**ROW, "expected_count": number + 10}, cookies=jar)
        assert verdict.json()["reward"] == 1.0
        assert verdict.json()["final_count"] == number + 10

    async with asyncio.TaskGroup() as group:
        for number in range(64):
            group.create_task(rollout(number))


async def test_verify_without_a_session_scores_a_new_count(start, client):
    url = await start(IMAGE, "counter")
    verdict = await client.post(f"{url}/verify", {**ROW, "expected_count": 3})
    assert verdict.status == 200
    assert (verdict.json()["reward"], verdict.json()["final_count"]) == (0.0, 0)


async def test_null_in_a_row_counts_as_absent(start, client):
    url = await start(IMAGE, "counter")
    seeded = await client.post(f"{url}/seed_session", {"initial_count": None, **ROW})
    assert seeded.status == 200
    value = await client.post(f"{url}/get_counter_value", {}, cookies=seeded.cookies)
    assert value.json() == {"count": 0}


async def test_typed_seed_repeats_and_close_leaves_a_tombstone(start, client):
    url = await start(IMAGE, "counter")
    first = await client.post(f"{url}/seed_session", typed_seed("r-1", initial_count=5))
    assert first.json() == {"resources_session_id": "r-1", "resources_tools": None, "sandbox_access": None}
    await client.post(f"{url}/increment_counter", {"amount": 1}, cookies=first.cookies)

    again = await client.post(f"{url}/seed_session", typed_seed("r-1", initial_count=5))
    value = await client.post(f"{url}/get_counter_value", {}, cookies=again.cookies)
    assert value.json() == {"count": 6}, "an identical seed joins the session instead of starting it anew"
    other = await client.post(f"{url}/seed_session", typed_seed("r-1", initial_count=7))
    assert other.status == 409

    close = {"resources_session_id": "r-1", "episode_id": EPISODE}
    for _ in range(2):
        closed = await client.post(f"{url}/close_session", close)
        assert (closed.status, closed.json()) == (200, {"resources_session_id": "r-1"})
    assert (await client.post(f"{url}/seed_session", typed_seed("r-1", initial_count=5))).status == 409


async def test_close_before_any_seed_refuses_the_late_seed(start, client):
    url = await start(IMAGE, "counter")
    closed = await client.post(
        f"{url}/close_session", {"resources_session_id": "late", "episode_id": EPISODE}
    )
    assert (closed.status, closed.json()) == (200, {"resources_session_id": "late"})
    assert (await client.post(f"{url}/seed_session", typed_seed("late"))).status == 409


async def test_a_repeated_tool_call_counts_once(start, client):
    url = await start(IMAGE, "counter")
    jar = (await client.post(f"{url}/seed_session", ROW)).cookies
    for _ in range(3):
        answer = await client.post(f"{url}/increment_counter", {"amount": 2}, cookies=jar, key="k1")
        assert answer.json() == {"success": True}
    await client.post(f"{url}/increment_counter", {"amount": 2}, cookies=jar, key="k2")
    assert (await client.post(f"{url}/get_counter_value", {}, cookies=jar)).json() == {"count": 4}


async def test_doing_what_an_example_row_says_is_rewarded_and_less_is_not(start, client):
    url = await start(IMAGE, "counter")
    rows = [json.loads(line) for line in EXAMPLES.read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 5
    for row in rows:
        steps = re.findall(r"(add|subtract) (\d+)", row["responses_create_params"]["input"])
        amounts = [int(number) if verb == "add" else -int(number) for verb, number in steps]
        for done, reward in ((amounts, 1.0), (amounts[:-1], 0.0)):
            jar = (await client.post(f"{url}/seed_session", row)).cookies
            for amount in done:
                await client.post(f"{url}/increment_counter", {"amount": amount}, cookies=jar)
            verdict = await client.post(f"{url}/verify", {**row, "response": {"output": []}}, cookies=jar)
            assert verdict.json()["reward"] == reward
