"""Weather over HTTP: the tool, the verdict, and the schema that clients read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

IMAGE = "resources_servers/weather"
EXAMPLES = Path(__file__).parents[1] / "data" / "example.jsonl"


def answered(text: str, **row: str) -> dict:
    part = {"type": "output_text", "text": text, "annotations": []}
    output = [{"type": "message", "role": "assistant", "content": [part]}]
    return {"responses_create_params": {"input": "Weather?"}, "response": {"output": output}, **row}


async def test_tool_knows_its_cities_and_says_so_when_it_does_not(start, client):
    url = await start(IMAGE, "wx_tools")
    oslo = await client.post(f"{url}/get_weather", {"city": "Oslo", "session_id": "ignored"})
    assert oslo.json() == {"city": "Oslo", "sky": "snow", "temperature_celsius": -4}
    assert (await client.post(f"{url}/get_weather", {"city": "Atlantis"})).body == (
        b"There is no weather station in Atlantis."
    )
    wrong = await client.post(f"{url}/get_weather", {})
    assert wrong.status == 422
    assert wrong.json()["detail"][0]["loc"] == ["body", "city"]
    misspelt = await client.post(f"{url}/get_wether", {})
    assert (misspelt.status, misspelt.body) == (404, b'{"detail":"Not Found"}')


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        ("It is -4 degrees with snow in Oslo.", 1.0),
        ("Snow, \N{MINUS SIGN}4 °C.", 1.0),
        ("Snow, 4 degrees.", 0.0),
        ("Snow.", 0.0),
        ("Sunny, -4 degrees.", 0.0),
        ("", 0.0),
    ],
)
async def test_reward_wants_sky_and_temperature(start, client, text, reward):
    url = await start(IMAGE, "wx_tools")
    verdict = (await client.post(f"{url}/verify", answered(text, city="Oslo", note="dropped"))).json()
    assert verdict["reward"] == reward
    assert "note" not in verdict and "city" not in verdict


async def test_example_rows_have_a_right_answer(start, client):
    rows = [json.loads(line) for line in EXAMPLES.read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 5
    url = await start(IMAGE, "wx_tools")
    for row in rows:
        truth = (await client.post(f"{url}/get_weather", {"city": row["city"]})).json()
        body = answered(f"{truth['sky']}, {truth['temperature_celsius']}", city=row["city"])
        assert (await client.post(f"{url}/verify", {**row, **body})).json()["reward"] == 1.0


async def test_schema_offers_the_tool_and_nothing_else(start, transport):
    url = await start(IMAGE, "wx_tools")
    schema = (await transport.call("GET", f"{url}/openapi.json")).json()
    assert list(schema["paths"]) == ["/get_weather"]
    (row, *_) = (json.loads(line) for line in EXAMPLES.read_text(encoding="utf-8").splitlines())
    offered = schema["paths"]["/get_weather"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert offered == row["responses_create_params"]["tools"][0]["parameters"]


@pytest.mark.parametrize("output", ["snow", ["snow"], 3])
async def test_a_response_that_cannot_be_read_is_refused(start, client, output):
    url = await start("resources_servers/weather", "weather")
    body = {"responses_create_params": {"input": "x"}, "response": {"output": output}, "city": "Oslo"}
    answer = await client.post(f"{url}/verify", body)
    assert (answer.status, answer.json()["detail"][0]["loc"]) == (422, ["body", "response"])
