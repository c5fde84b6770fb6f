"""Blackjack over HTTP: a seed decides the cards, an answer without an action deals none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

IMAGE = "resources_servers/blackjack"
EXAMPLES = Path(__file__).parents[1] / "data" / "example.jsonl"


def row(**fields: Any) -> dict[str, Any]:
    return {"responses_create_params": {"input": "Deal me in."}, **fields}


@pytest.fixture
def table(start, client, items):
    """`await play(row, *texts)`: the start and every step, of one episode."""

    async def begin(**settings: Any):
        url = await start(IMAGE, "blackjack", {"domain": "games", **settings})

        async def play(row: dict[str, Any], *texts: str) -> list[dict[str, Any]]:
            began = await client.post(f"{url}/reset", row)
            told = [began.json()]
            for text in texts:
                body = {**row, "response": {"output": [items.message(text)]}}
                told.append((await client.post(f"{url}/step", body, cookies=began.cookies)).json())
            return told

        return play

    return begin


async def test_a_seed_decides_every_card(table):
    play = await table()
    first = await play(row(seed=6), "<action>hit</action>", "<action>stand</action>")
    assert first == await play(row(seed=6), "<action>hit</action>", "<action>stand</action>")
    begun, hit, end = first
    assert begun["observation"].startswith("Your cards: 7, 5, together 12.\nThe dealer shows 6.\n")
    assert hit["observation"].startswith("Your cards: 7, 5, 5, together 17.\n")
    assert (hit["reward"], hit["terminated"]) == (0.0, False)
    assert (end["reward"], end["terminated"], end["observation"]) == (1.0, True, None)
    assert end["info"]["result"] == "win"
    assert (end["info"]["player"], end["info"]["player_total"]) == ("7, 5, 5", 17)


@pytest.mark.parametrize("seed", [None, "absent"])
async def test_rows_without_a_seed_are_dealt_anew(table, seed):
    play = await table()
    fields = {} if seed == "absent" else {"seed": seed}
    hands = {(await play(row(**fields)))[0]["observation"] for _ in range(12)}
    assert len(hands) > 1


@pytest.mark.parametrize(
    ("seed", "texts", "reward", "result"),
    [
        (4, ["<action>hit</action>"], -1.0, "bust"),
        (7, ["<action>stand</action>"], 0.0, "draw"),
        (16, ["<action>stand</action>"], -1.0, "loss"),
    ],
)
async def test_the_end_is_told_in_words_that_fit_the_reward(table, seed, texts, reward, result):
    end = (await (await table())(row(seed=seed), *texts))[-1]
    assert (end["reward"], end["info"]["result"], end["terminated"]) == (reward, result, True)


async def test_every_result_fits_its_reward(table):
    play = await table()
    rewards = {"win": 1.0, "draw": 0.0, "loss": -1.0, "bust": -1.0}
    for seed in range(40):
        end = (await play(row(seed=seed), "<action>stand</action>"))[-1]
        assert end["reward"] == rewards[end["info"]["result"]]


async def test_a_natural_is_worth_more_where_the_block_says_so(table):
    for settings, reward in (({}, 1.0), ({"natural": True}, 1.5)):
        end = (await (await table(**settings))(row(seed=5), "<action>stand</action>"))[-1]
        assert end["reward"] == reward


async def test_an_answer_without_an_action_is_told_so_and_deals_no_card(table):
    play = await table(invalid_action_reward=-0.25)
    texts = ["Let me think.", "<action>double</action>", "", "<action>hit</action>"]
    _, *steps, hit = await play(row(seed=6), *texts)
    for step in steps:
        assert step == {
            "observation": "There is no action in your answer. "
            "Respond with <action>hit</action> or <action>stand</action>.",
            "reward": -0.25,
            "terminated": False,
            "truncated": False,
            "info": {"invalid_action": True},
        }
    assert hit["observation"].startswith("Your cards: 7, 5, 5, together 17.")


@pytest.mark.parametrize(
    "text",
    ["<ACTION> Hit </ACTION>", "<action>stand</action> no: <action>hit</action>", "<action>\nhit\n</action>"],
)
async def test_the_last_action_counts_however_it_is_written(table, text):
    hit = (await (await table())(row(seed=6), text))[-1]
    assert hit["observation"].startswith("Your cards: 7, 5, 5")


async def test_rows_in_the_form_that_nemo_gym_writes_are_played(table):
    given = {
        "responses_create_params": {
            "input": [
                {"role": "system", "content": "You play blackjack."},
                {"role": "user", "content": "Deal me in."},
            ]
        },
        "agent_ref": {"type": "responses_api_agents", "name": "blackjack_gymnasium_agent"},
    }
    assert (await (await table())(given, "<action>stand</action>"))[-1]["terminated"]


async def test_the_examples_come_to_the_end_that_their_scripts_lead_to(table):
    play = await table()
    rows = [json.loads(line) for line in EXAMPLES.read_text(encoding="utf-8").splitlines()]
    ends = [
        (await play(row, *json.loads(row["responses_create_params"]["metadata"]["script"])))[-1]
        for row in rows
    ]
    assert [end["info"]["result"] for end in ends] == ["win", "win", "win", "draw", "bust"]
    assert all(end["terminated"] for end in ends)
