from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gymctl.clients import attachment
from gymctl.compose.addresses import host_view
from gymctl.config import ports
from gymctl.config.load import load
from gymctl.config.sources import Selection
from gymctl.errors import ConfigError
from gymctl.runtime import parts


def served(tmp_path: Path, **given: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the head of a project says, and the servers that it runs."""
    config = ports.allocate(load(Selection(**given), cwd=tmp_path, environ={}))
    return parts.document_for(config, host_view(config)), dict(config.servers)


def attached(tmp_path: Path, *, are_containers: bool = True, **given: Any) -> dict[str, Any]:
    document, running = served(tmp_path, **{"benchmark": ("weather",), "policy_at": "5990", **given})
    return yaml.safe_load(attachment.text(document, running, are_containers=are_containers))


def test_every_server_has_an_address_and_no_entrypoint(tmp_path: Path) -> None:
    document, running = served(tmp_path, benchmark=("weather",), policy_at="5990")
    blocks = yaml.safe_load(attachment.text(document, running, are_containers=True))
    assert list(blocks) == ["config_paths", "policy_model", *running]
    for name, block in running.items():
        told = blocks[name][block.kind][block.implementation]
        assert (told["host"], told["port"]) == ("127.0.0.1", block.port)
        assert "entrypoint" not in told


def test_references_are_kept_and_each_agent_has_an_environment_server(tmp_path: Path) -> None:
    blocks = attached(tmp_path)
    agent = blocks["weather_agent"]["responses_api_agents"]["simple_agent"]
    assert agent["resources_server"] == {"type": "resources_servers", "name": "weather"}
    assert agent["model_server"] == {"type": "responses_api_models", "name": "policy_model"}
    relay = blocks["weather_environment_server"]["environment_servers"]["legacy_agent"]
    assert relay["agent_server"] == {"type": "responses_api_agents", "name": "weather_agent"}
    assert blocks["weather"]["resources_servers"]["weather"]["domain"] == "agent"


def test_an_agent_that_nobody_fronts_gets_an_alias(tmp_path: Path) -> None:
    document, running = served(tmp_path, benchmark=("weather",), policy_at="5990")
    del document["weather_environment_server"]
    blocks = yaml.safe_load(attachment.text(document, running, are_containers=True))
    agent = blocks["weather_agent"]["responses_api_agents"]["simple_agent"]
    assert blocks["weather_agent_environment_server"]["environment_servers"]["legacy_agent"] == {
        "host": agent["host"],
        "port": agent["port"],
        "agent_server": {"type": "responses_api_agents", "name": "weather_agent"},
    }


@pytest.mark.parametrize(
    ("policy_at", "are_containers", "host"),
    [
        ("5990", True, "0.0.0.0"),
        ("5990", False, "127.0.0.1"),
        ("10.1.0.7:5990", True, "10.1.0.7"),
    ],
)
def test_the_client_starts_the_policy_model_where_agents_dial_it(
    tmp_path: Path, policy_at: str, are_containers: bool, host: str
) -> None:
    blocks = attached(tmp_path, policy_at=policy_at, are_containers=are_containers)
    assert blocks["policy_model"] == {"responses_api_models": {"vllm_model": {"host": host, "port": 5990}}}
    assert blocks["config_paths"] == [attachment.POLICY_CONFIG]


def test_no_setting_of_a_server_gets_into_the_file(tmp_path: Path) -> None:
    document, running = served(
        tmp_path, benchmark=("weather",), policy_at="5990", overrides=("++policy_api_key=sk-two",)
    )
    document["weather"]["resources_servers"]["weather"]["judge_api_key"] = "sk-planted"
    assert "sk-" not in attachment.text(document, running, are_containers=True)


def test_a_project_with_a_model_of_its_own_is_refused(tmp_path: Path) -> None:
    document, running = served(tmp_path, benchmark=("weather",))
    with pytest.raises(ConfigError, match="of its own") as caught:
        attachment.text(document, running, are_containers=True)
    assert "--policy-at" in (caught.value.hint or "")


def test_without_an_agent_there_is_nothing_to_call(tmp_path: Path) -> None:
    document, running = served(tmp_path, benchmark=("weather",), policy_at="5990")
    del document["weather_agent"]
    with pytest.raises(ConfigError, match="no agent"):
        attachment.text(document, running, are_containers=True)


def test_a_policy_model_of_another_kind_is_refused(tmp_path: Path) -> None:
    document, running = served(tmp_path, benchmark=("weather",), policy_at="5990")
    document["policy_model"] = {"responses_api_models": {"openai_model": {"host": "127.0.0.1", "port": 5990}}}
    with pytest.raises(ConfigError, match="openai_model"):
        attachment.text(document, running, are_containers=True)
    del document["policy_model"]
    with pytest.raises(ConfigError, match="not told"):
        attachment.text(document, running, are_containers=True)
