"""What goes through both programs: one configuration, one file of good rows and one of rows that fail.

project.write(folder, root, model_url, head_port)   # root: the unpacked nemo-gym; returns nothing

side.yaml      seven of NeMo Gym's example servers, each with its agent and environment server, and one model
env.yaml       where the head listens
rows.jsonl     their example rows, each sent to its agent
failing.jsonl  rows that fail at the model, at the verifier and at a tool, between rows that do not
refused.jsonl  a row that no server can take
venvs/         for NeMo Gym, which wants an environment for each server folder: links to the one of the image
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import yaml

Json = dict[str, Any]

_DECLARED = {
    "mcqa": "mcqa_simple_agent",
    "example_multi_step": "example_multi_step_simple_agent",
    "example_session_state_mgmt": "example_session_state_mgmt_simple_agent",
    "example_multi_turn_gymnasium": "example_multi_turn_gymnasium_agent",
    "example_tool_call_multireward": "example_tool_call_multireward_simple_agent",
}
"""Servers whose own config is taken as it is, and its agent."""
_WRITTEN = {"example_mcp_weather": "legacy_agent", "example_single_tool_call": "single_agent_turn_legacy"}
"""Servers that get an agent and an environment server here: the config of the first wants a command-line
agent, and the second shall be asked in the native protocol."""
MODEL = "responses_api_models/openai_model"
_FOLDERS = (
    *(f"resources_servers/{name}" for name in (*_DECLARED, *_WRITTEN)),
    *("responses_api_agents/simple_agent", "responses_api_agents/gymnasium_agent", MODEL),
    *("environment_servers/legacy_agent", "environment_servers/single_agent_turn_legacy"),
)


def tasks(root: Path) -> list[Json]:
    """The example rows of all servers, each with the agent that it goes to."""
    found: list[Json] = []
    for name in (*_DECLARED, *_WRITTEN):
        agent = _DECLARED.get(name, f"{name}_agent")
        for line in (
            (root / "resources_servers" / name / "data" / "example.jsonl").read_text("utf-8").split("\n")
        ):
            if line.strip():
                row = json.loads(line)
                found.append({**row, "agent_ref": {"type": "responses_api_agents", "name": agent}})
    return found


def write(folder: Path, root: Path, model_url: str, head_port: int) -> None:
    """Fill `folder` for one program."""
    folder.mkdir(parents=True)
    _yaml(folder / "side.yaml", _config(model_url))
    _yaml(folder / "env.yaml", {"head_server": {"host": "127.0.0.1", "port": head_port}})
    rows = tasks(root)
    _lines(folder / "rows.jsonl", rows)
    _lines(folder / "failing.jsonl", _failing(rows))
    refused = copy.deepcopy(rows[0])
    del refused["responses_create_params"]["input"]
    _lines(folder / "refused.jsonl", [rows[0], refused])
    for server in _FOLDERS:
        link = folder / "venvs" / server / ".venv"
        link.parent.mkdir(parents=True)
        link.symlink_to("/opt/venv")


def _config(model_url: str) -> Json:
    config: Json = {
        "config_paths": [
            *(f"resources_servers/{name}/configs/{name}.yaml" for name in _DECLARED),
            f"{MODEL}/configs/openai_model.yaml",
        ],
        "policy_base_url": model_url,
        "policy_api_key": "sk-side-by-side",
        "policy_model_name": "tiny-1",
        "skip_venv_if_present": True,
    }
    for name, environment in _WRITTEN.items():
        resources = {"type": "resources_servers", "name": name}
        agent = {"type": "responses_api_agents", "name": f"{name}_agent"}
        model = {"type": "responses_api_models", "name": "policy_model"}
        asks: Json = {"entrypoint": "app.py", "resources_server": resources, "model_server": model}
        fronts: Json = {"entrypoint": "app.py", "agent_server": agent}
        if environment != "legacy_agent":
            fronts |= {
                "resources_server": resources,
                "resources_tool_transports": ["direct_http"],
                "default_episode_timeout_seconds": 60,
                "cleanup_timeout_seconds": 10,
            }
        over_mcp = {"expose_tools_over_mcp": True} if name == "example_mcp_weather" else {}
        config[name] = {"resources_servers": {name: {"entrypoint": "app.py", "domain": "agent", **over_mcp}}}
        config[f"{name}_agent"] = {"responses_api_agents": {"simple_agent": asks}}
        config[f"{name}_environment_server"] = {"environment_servers": {environment: fronts}}
    return config


def _failing(rows: list[Json]) -> list[Json]:
    def first(server: str) -> Json:
        agent = _DECLARED.get(server, f"{server}_agent")
        return copy.deepcopy(next(row for row in rows if row["agent_ref"]["name"] == agent))

    def saying(server: str, word: str) -> Json:
        row = first(server)
        row["responses_create_params"]["input"].append({"role": "user", "content": word})
        return row

    unverifiable = first("example_multi_step")
    del unverifiable["expected_synonyms"]
    return [
        first("mcqa"),
        saying("mcqa", "MODEL-400"),
        saying("example_single_tool_call", "MODEL-400"),
        saying("example_multi_turn_gymnasium", "MODEL-400"),
        unverifiable,
        saying("mcqa", "MODEL-GARBLED"),
        first("example_tool_call_multireward"),
        first("example_single_tool_call"),
    ]


def _lines(file: Path, rows: list[Json]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def _yaml(file: Path, document: Json) -> None:
    file.write_text(yaml.safe_dump(document, sort_keys=False), "utf-8")
