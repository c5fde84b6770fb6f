"""Settings in YAML, seen by the servers and the endpoint of a real run on local processes."""

from __future__ import annotations

import asyncio
import json
import socket
from collections import Counter
from pathlib import Path
from typing import Any

from fakes.openai_upstream import OpenAIUpstream, Reply
from fakes.program import gymctl, processes_below, read_lines

CONFIG = """\
config_paths:
- resources_servers/weather/configs/weather.yaml
- responses_api_models/openai_model/configs/openai_model.yaml
second_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: weather}
      model_server: {type: responses_api_models, name: policy_model}
second_environment_server:
  environment_servers:
    legacy_agent:
      entrypoint: app.py
      agent_server: {type: responses_api_agents, name: second_agent}
policy_api_key: sk-test-0001
policy_model_name: tiny-1
input_jsonl_fpath: rows.jsonl
output_jsonl_fpath: out/x.jsonl
num_samples_in_parallel: 3
num_repeats: {weather_simple_agent: 2, _default: 1}
agent_map: {old_agent: second_agent}
responses_create_params: {reasoning: {effort: low}}
upload_rollouts: false
disable_aggregation: true
"""


def write_rows(path: Path, names: list[str]) -> None:
    def row(number: int, name: str) -> dict[str, Any]:
        params = {"input": f"Weather in Oslo on day {number}?", "reasoning": {"summary": "auto"}}
        return {"responses_create_params": params, "agent_ref": {"name": name}, "city": "Oslo"}

    path.write_text("".join(json.dumps(row(*item)) + "\n" for item in enumerate(names)))


async def test_settings_in_yaml_are_obeyed(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(CONFIG)
    write_rows(tmp_path / "rows.jsonl", ["weather_simple_agent"] * 5 + ["old_agent"] * 2)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        head = probe.getsockname()[1]
    async with OpenAIUpstream() as upstream:
        upstream.plan(*[Reply(delay=3)] * 3)  # long enough to come together
        upstream.always = Reply(delay=0.1)
        done = await asyncio.to_thread(
            gymctl,
            *("eval", "a.yaml", "--runtime", "process", "--model-url", upstream.url, "--json"),
            f"++head_server.port={head}",
            cwd=tmp_path,
        )
        posts = [asked for asked in upstream.asked if asked.path == "/v1/responses"]
    assert done.returncode == 0, done.stderr
    assert 2 <= upstream.peak <= 3
    assert len(posts) == 12
    assert {json.dumps(asked.json["reasoning"]) for asked in posts} == {'{"effort": "low"}'}
    records = read_lines(tmp_path / "out" / "x.jsonl")
    ran = Counter((record["agent_ref"]["name"], record["_ng_environment_server"]) for record in records)
    assert ran == {
        ("weather_simple_agent", "weather_environment_server"): 10,
        ("second_agent", "second_environment_server"): 2,
    }
    assert "warning: 2 rows name `old_agent`; they go to `second_agent`" in done.stderr
    assert "`responses_create_params.reasoning` replaces the rows' own as a whole" in done.stderr
    assert not (tmp_path / "out" / "x_aggregate_metrics.json").exists()
    assert processes_below(tmp_path) == []


def test_b14_a_limit_of_0_on_the_command_line_sends_nothing(tmp_path: Path) -> None:
    done = gymctl("eval", "weather", "--runtime", "process", "--limit", "0", "-o", "x.jsonl", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert read_lines(tmp_path / "x.jsonl") == []
    assert processes_below(tmp_path) == []
