"""Servers that somebody else starts: blocks with an address and no entrypoint, and `--policy-at`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gymctl.cli.selection import selection
from gymctl.compose import render
from gymctl.config import ports
from gymctl.config.load import load
from gymctl.config.model import Config
from gymctl.config.sources import Selection
from gymctl.contract.part import HeadPart, ServerPart
from gymctl.errors import ServerRefNotFoundError, UsageError
from gymctl.runtime import parts
from gymctl.runtime.parts import Wiring

NETWORK = Wiring(view="network", secret=b"k" * 32)
HOST = Wiring(view="host", secret=b"k" * 32, head_network_port=20001)


def weather(tmp_path: Path, policy_at: str = "5990", **given: Any) -> Config:
    chosen = Selection(benchmark=("weather",), policy_at=policy_at, **given)
    return ports.allocate(load(chosen, cwd=tmp_path, environ={}))


def agent_of(config: Config, wiring: Wiring) -> ServerPart:
    part = parts.build(config, wiring)["weather-agent"]
    assert isinstance(part, ServerPart)
    return part


def test_the_policy_model_of_the_files_is_not_started(tmp_path: Path) -> None:
    config = weather(tmp_path)
    assert "policy_model" not in config.servers
    assert config.elsewhere["policy_model"].url == "http://127.0.0.1:5990"
    assert [call.name for call in config.servers["weather_agent"].calls] == ["policy_model", "weather"]
    assert not [warning for warning in config.warnings if "policy_model" in warning]


@pytest.mark.parametrize(
    ("policy_at", "from_container", "from_process"),
    [
        ("5990", "http://host.docker.internal:5990", "http://127.0.0.1:5990"),
        ("0.0.0.0:5990", "http://host.docker.internal:5990", "http://0.0.0.0:5990"),
        ("10.1.0.7:5990", "http://10.1.0.7:5990", "http://10.1.0.7:5990"),
        ("trainer-0.cluster:5990", "http://trainer-0.cluster:5990", "http://trainer-0.cluster:5990"),
    ],
)
def test_agents_dial_it_where_it_is_for_them(
    tmp_path: Path, policy_at: str, from_container: str, from_process: str
) -> None:
    config = weather(tmp_path, policy_at)
    assert agent_of(config, NETWORK).servers["policy_model"].url == from_container
    assert agent_of(config, HOST).servers["policy_model"].url == from_process


def test_the_environment_server_is_told_what_its_agent_calls(tmp_path: Path) -> None:
    part = parts.build(weather(tmp_path), NETWORK)["weather-environment-server"]
    assert isinstance(part, ServerPart)
    assert part.servers["policy_model"].url == "http://host.docker.internal:5990"


def test_each_view_of_the_head_lists_it_and_nobody_waits_for_it(tmp_path: Path) -> None:
    config = weather(tmp_path)
    head = parts.build(config, NETWORK)["head"]
    assert isinstance(head, HeadPart)
    hosts = [
        yaml.safe_load(text)["policy_model"]["responses_api_models"]["vllm_model"]["host"]
        for text in (head.host_view, head.network_view)
    ]
    assert hosts == ["127.0.0.1", "host.docker.internal"]
    assert "policy_model" not in [target.name for target in head.targets]
    assert "policy_model" not in parts.table(config)


def test_its_port_is_given_to_nobody_else(tmp_path: Path) -> None:
    config = weather(
        tmp_path, policy_at="15001", overrides=("++port_range_low=15001", "++port_range_high=15004")
    )
    assert 15001 not in [block.port for block in config.servers.values()]


def test_a_block_with_an_address_and_no_entrypoint_may_be_referred_to(tmp_path: Path) -> None:
    path = tmp_path / "away.yaml"
    path.write_text("judge: {responses_api_models: {vllm_model: {host: 10.1.0.7, port: '5990'}}}\n")
    reference = "++weather_agent.responses_api_agents.simple_agent.model_server.name=judge"
    chosen = Selection(benchmark=("weather",), config=("away.yaml",), overrides=(reference,))
    config = load(chosen, cwd=tmp_path, environ={})
    assert config.elsewhere["judge"].url == "http://10.1.0.7:5990"
    assert "judge" in [call.name for call in config.servers["weather_agent"].calls]


@pytest.mark.parametrize("block", ["{host: 10.1.0.7}", "{port: 5990}", "{host: 10.1.0.7, port: 99999}", "{}"])
def test_without_an_address_it_is_no_server(tmp_path: Path, block: str) -> None:
    (tmp_path / "away.yaml").write_text(f"judge: {{responses_api_models: {{vllm_model: {block}}}}}\n")
    reference = "++weather_agent.responses_api_agents.simple_agent.model_server.name=judge"
    chosen = Selection(benchmark=("weather",), config=("away.yaml",), overrides=(reference,))
    with pytest.raises(ServerRefNotFoundError, match="judge"):
        load(chosen, cwd=tmp_path, environ={})


def test_only_a_container_that_calls_it_reaches_the_host(tmp_path: Path) -> None:
    config = weather(tmp_path)
    images = dict.fromkeys(config.servers, "image")
    told = parts.build(config, NETWORK)
    rendering = render.Rendering(
        images=images,
        head_image="image",
        user="999:999",
        folder=str(tmp_path),
        part_digests=dict.fromkeys(told, "x"),
    )
    services = render.render(config, rendering).services
    reaching = {name for name, service in services.items() if service.extra_hosts}
    assert reaching == {"head", "weather-agent"}


@pytest.mark.parametrize("text", ["", "abc", "0", "65536", "host:", "a b:1", "[::1]:5990", "http://h:5990"])
def test_another_form_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match="HOST"):
        weather(tmp_path, text)


@pytest.mark.parametrize(
    "given", [{"model_type": "scripted_model"}, {"model": "tiny"}, {"model_url": "http://x"}]
)
def test_a_model_of_ones_own_does_not_go_with_it(given: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="do not go together"):
        selection(["weather"], policy_at="5990", **given)


def test_a_project_of_some_servers_keeps_it(tmp_path: Path) -> None:
    config = weather(tmp_path)
    some = config.only({"weather_agent", "weather"}, "some")
    assert "policy_model" in agent_of(replace(some), HOST).servers
