"""Writes the rows of the weather benchmark: four questions about each of five cities, with scripted answers.

The committed file is this script's output; the same arguments give the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# What the weather server reports (resources_servers/weather).
FORECASTS = [
    ("Oslo", "snow", -4),
    ("Cairo", "sunny", 34),
    ("London", "rain", 11),
    ("Lima", "cloudy", 19),
    ("Nairobi", "windy", 23),
]
QUESTIONS = [
    "What is the weather in {city} today?",
    "I am about to go out in {city}. What is it like outside?",
    "How warm is it in {city}, and what does the sky look like?",
    "Do I need a coat in {city}? Tell me the sky and the temperature.",
]
GET_WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Get today's weather in a city: the sky, and the temperature in degrees Celsius.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}


def prepare(*, output: str | Path | None = None) -> Path:
    """Write the rows and return the file's absolute path."""
    path = Path(output) if output else Path(__file__).parent / "data" / "weather.jsonl"
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows())
    if not path.exists() or path.read_text("utf-8") != text:
        path.write_text(text, "utf-8")
    return path


def rows() -> Iterator[dict[str, Any]]:
    for number, question in enumerate(QUESTIONS):
        for city, sky, celsius in FORECASTS:
            yield {
                "responses_create_params": {
                    "input": [{"role": "user", "content": question.format(city=city)}],
                    "tools": [GET_WEATHER],
                    "metadata": {"script": json.dumps(script(number, city, sky, celsius))},
                },
                "city": city,
            }


def script(number: int, city: str, sky: str, celsius: int) -> list[Any]:
    """Look it up, then say it. The last question is answered without the temperature, which is wrong."""
    call = {"calls": [{"name": "get_weather", "arguments": {"city": city}}]}
    if number == len(QUESTIONS) - 1:
        return [call, f"It is {sky} in {city}; take a coat."]
    return [call, f"The weather in {city} today: {sky}, {celsius} degrees Celsius."]


if __name__ == "__main__":
    print(prepare())
