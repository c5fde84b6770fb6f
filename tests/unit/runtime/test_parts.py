from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

from gymctl.compose.limits import KEY
from gymctl.config.model import Config, Reference, ServerBlock
from gymctl.contract.part import HeadPart, ServerPart
from gymctl.contract.servers import ServerTable
from gymctl.runtime import parts
from gymctl.runtime.parts import Wiring

SECRET = "sk-planted-$ecret-4711"
NETWORK = Wiring(view="network", secret=b"k" * 32)
HOST = Wiring(view="host", secret=b"k" * 32, head_network_port=20001)


def part_of(config: Config, wiring: Wiring, service: str) -> ServerPart:
    part = parts.build(config, wiring)[service]
    assert isinstance(part, ServerPart)
    return part


def head_of(config: Config, wiring: Wiring) -> HeadPart:
    part = parts.build(config, wiring)["head"]
    assert isinstance(part, HeadPart)
    return part


def with_settings(config: Config, server: str, **settings: Any) -> Config:
    block = config.servers[server]
    changed = {**block.settings, **settings}
    document = {**config.document, server: {block.kind: {block.implementation: changed}}}
    return replace(
        config, servers={**config.servers, server: replace(block, settings=changed)}, document=document
    )


def test_a_secret_reaches_only_the_server_whose_block_holds_it(config: Config) -> None:
    for wiring in (NETWORK, HOST):
        told = {service: parts.dump(part) for service, part in parts.build(config, wiring).items()}
        assert [service for service, text in told.items() if SECRET in text] == ["policy-model"]


def test_each_server_signs_with_a_key_of_its_own(config: Config) -> None:
    told = [part for part in parts.build(config, NETWORK).values() if isinstance(part, ServerPart)]
    assert len({part.session_secret for part in told}) == len(told)
    other = parts.session_secret(b"o" * 32, "weather")
    assert other != parts.session_secret(b"k" * 32, "weather")


def test_a_container_dials_network_names_and_its_users_localhost(config: Config) -> None:
    part = part_of(config, NETWORK, "policy-model")
    assert part.settings["openai_base_url"] == "http://host.docker.internal:9009/v1"
    assert (part.bind_host, part.bind_port) == ("0.0.0.0", 8000)
    agent = part_of(config, NETWORK, "weather-agent")
    assert agent.servers["policy_model"].url == "http://policy-model:8000"


def test_lists_of_base_urls_are_rewritten_item_by_item(config: Config) -> None:
    several = with_settings(config, "policy_model", openai_base_url=["http://127.0.0.1:1/v1", "http://x/v1"])
    part = part_of(several, NETWORK, "policy-model")
    assert part.settings["openai_base_url"] == ["http://host.docker.internal:1/v1", "http://x/v1"]


def test_a_local_process_dials_what_the_user_wrote(config: Config) -> None:
    part = part_of(config, HOST, "policy-model")
    assert part.settings["openai_base_url"] == "http://localhost:9009/v1"
    assert (part.bind_host, part.bind_port) == ("127.0.0.1", 15012)


def test_a_server_knows_whom_it_calls_and_nobody_else(config: Config) -> None:
    assert set(part_of(config, NETWORK, "weather").servers) == {"weather"}
    assert set(part_of(config, NETWORK, "weather-agent").servers) == {
        "weather_agent",
        "weather",
        "policy_model",
    }


def test_an_environment_server_also_knows_what_its_agent_calls(config: Config) -> None:
    known = part_of(config, NETWORK, "weather-environment-server").servers
    assert {"weather_agent", "weather", "policy_model"} <= set(known)


def test_container_limits_are_none_of_the_servers_business(config: Config) -> None:
    limited = with_settings(config, "weather", **{KEY: {"memory": "1g"}})
    assert KEY not in part_of(limited, NETWORK, "weather").settings
    own = with_settings(config, "weather", **{KEY: {"wiki": "x"}})
    assert part_of(own, NETWORK, "weather").settings[KEY] == {"wiki": "x"}


def test_the_head_serves_addresses_that_each_asker_can_dial(config: Config) -> None:
    head = head_of(config, NETWORK)
    outside, inside = yaml.safe_load(head.host_view), yaml.safe_load(head.network_view)
    assert ServerTable.from_document(outside)["weather"].url == "http://127.0.0.1:15011"
    assert ServerTable.from_document(inside)["weather"].url == "http://weather:8000"
    assert outside["head_server"] == {"host": "127.0.0.1", "port": 11000}
    assert inside["head_server"] == {"host": "head", "port": 11000}


def test_the_head_hides_secrets_by_name_and_by_value(config: Config) -> None:
    pasted = with_settings(config, "weather", note=f"use {SECRET} here")
    head = head_of(pasted, NETWORK)
    assert SECRET not in head.host_view + head.network_view
    assert yaml.safe_load(head.host_view)["policy_api_key"] == "****"


def test_the_head_lists_one_environment_server_for_each_agent(config: Config) -> None:
    first = config.servers["weather_environment_server"]
    second = replace(first, name="other_environment_server", port=15015)
    both = replace(
        config,
        servers={**config.servers, second.name: second},
        document={
            **config.document,
            second.name: {second.kind: {second.implementation: dict(second.settings)}},
        },
    )
    fronting = yaml.safe_load(head_of(both, NETWORK).host_view)
    assert first.name in fronting
    assert second.name not in fronting
    chosen = replace(both, document={**both.document, "environment_server_name": second.name})
    fronting = yaml.safe_load(head_of(chosen, NETWORK).host_view)
    assert second.name in fronting
    assert first.name not in fronting
    assert set(parts.table(both).servers) == set(both.servers)


def test_instances_have_the_keys_that_clients_index(config: Config) -> None:
    row = head_of(config, NETWORK).host_instances[0]
    assert row["process_name"] == row["config_path"] == "weather"
    assert row["name"] == "weather"
    assert row["server_type"] == "resources_servers"
    assert row["url"] == "http://127.0.0.1:15011"
    assert isinstance(row["start_time"], float)


def test_targets_are_dialled_where_the_head_runs(config: Config) -> None:
    assert head_of(config, NETWORK).targets[0].url == "http://weather:8000"
    assert head_of(config, HOST).targets[0].url == "http://127.0.0.1:15011"


def test_a_digest_changes_with_the_part_and_only_then(config: Config) -> None:
    def digests(of: Config) -> dict[str, str]:
        return {service: parts.digest(part) for service, part in parts.build(of, NETWORK).items()}

    changed = digests(with_settings(config, "weather", colour="blue"))
    same = digests(config)
    assert same == digests(config)
    assert {service for service in same if same[service] != changed[service]} == {"head", "weather"}


@pytest.mark.parametrize("wiring", [NETWORK, HOST])
def test_parts_survive_the_way_through_a_file(config: Config, wiring: Wiring) -> None:
    for part in parts.build(config, wiring).values():
        assert type(part).model_validate_json(parts.dump(part)) == part


def test_a_reference_to_a_user_agent_counts_as_a_call(config: Config) -> None:
    block: ServerBlock = config.servers["weather_environment_server"]
    extra = Reference(field="judge_model_server", kind="responses_api_models", name="policy_model")
    servers = {**config.servers, block.name: replace(block, calls=(*block.calls, extra))}
    part = part_of(replace(config, servers=servers), NETWORK, "weather-environment-server")
    assert "policy_model" in part.servers


def test_only_servers_that_use_ray_are_told_of_a_cluster(config: Config) -> None:
    theirs = replace(config.servers["weather"], uses_ray=True, runs_ray_tasks=True, family="nemo_gym")
    ours = replace(config.servers["weather_agent"], uses_ray=True, runs_ray_tasks=True)
    servers = {**config.servers, "weather": theirs, "weather_agent": ours}
    asked = replace(config, servers=servers)

    document = part_of(asked, NETWORK, "weather").document
    assert document is not None
    assert yaml.safe_load(document)["ray_head_node_address"] == "ray://ray-head:10001"
    assert part_of(asked, NETWORK, "weather-agent").ray_address == "ray://ray-2-head:10001"
    assert part_of(asked, NETWORK, "policy-model").ray_address is None
    assert part_of(asked, HOST, "weather-agent").ray_address is None
