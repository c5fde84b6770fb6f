"""The attach file: makes NeMo RL, verl and Megatron, with NeMo Gym on their side, talk to servers of ours.

NeMo Gym starts the entries of a configuration that have an `entrypoint`, and only dials those that have a
host and a port instead. So every server of a running project is listed without one. The policy model is the
client's: it alone knows the engine. It is pinned to the address that our agents were told (`--policy-at`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gymctl.config.policy import POLICY, TRAINED
from gymctl.config.tree.writing import as_yaml
from gymctl.contract.servers import KINDS, ServerEntry, ServerTable
from gymctl.errors import ConfigError

POLICY_CONFIG = "responses_api_models/vllm_model/configs/vllm_model_for_training.yaml"
"""Of NeMo Gym, on the client's side."""
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_HEAD = """\
# Servers of a gymctl project, for a client that has NeMo Gym on its side: name this file in its config_paths.
# They must be up. The client starts the policy model, at {host}:{port}, where our agents dial it.
"""


def text(document: Mapping[str, Any], running: Mapping[str, Any], *, are_containers: bool) -> str:
    """The file. document: the configuration as a head serves it to the host.

    running: names of the servers that the project itself runs. are_containers: its agents dial the policy
    model from containers, so it must listen on more than loopback. Raises ConfigError when the project has
    no agent, or a policy model of its own.
    """
    table = ServerTable.from_document(document)
    _check(table, running)
    policy = table[POLICY].address
    host = "0.0.0.0" if are_containers and policy.host in _LOOPBACK else policy.host
    blocks: dict[str, Any] = {
        "config_paths": [POLICY_CONFIG],
        POLICY: {policy.kind: {TRAINED: {"host": host, "port": policy.port}}},
    }
    for name, entry in table.servers.items():
        if name != POLICY:
            blocks[name] = _block(entry, document[name][entry.kind][entry.address.implementation])
    for agent in _unfronted(table):
        blocks[f"{agent.name}_environment_server"] = _alias(agent)
    return _HEAD.format(host=policy.host, port=policy.port) + as_yaml(blocks)


def _check(table: ServerTable, running: Mapping[str, Any]) -> None:
    if not any(table.of_kind("responses_api_agents")):
        raise ConfigError("the project has no agent, so a client has nothing to call")
    if POLICY in running:
        raise ConfigError(
            f"the project runs a `{POLICY}` of its own, so a trainer's model would never be asked",
            hint="gymctl up … --policy-at PORT, without --model-type",
        )
    if POLICY not in table or table[POLICY].kind != "responses_api_models":
        raise ConfigError(
            f"the project's agents were not told where the trainer's `{POLICY}` will be",
            hint="gymctl up … --policy-at PORT",
        )
    if table[POLICY].address.implementation != TRAINED:
        raise ConfigError(
            f"`{POLICY}` is a {table[POLICY].address.implementation}; trainers start {TRAINED}",
            hint="gymctl up … --policy-at PORT",
        )


def _block(entry: ServerEntry, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Address and references alone: all that a client looks for, and nothing that could be a secret."""
    address = entry.address
    told: dict[str, Any] = {"host": address.host, "port": address.port}
    if "domain" in settings:
        told["domain"] = settings["domain"]
    for field, name in entry.references.items():
        told[field] = {"type": settings[field].get("type", "responses_api_agents"), "name": name}
    return {address.kind: {address.implementation: told}}


def _unfronted(table: ServerTable) -> Iterator[ServerEntry]:
    """Agents that no environment server fronts: newer clients send nothing to them."""
    kind = KINDS[2]
    fronted = {name for entry in table.of_kind(KINDS[3]) for name in entry.references.values()}
    return (entry for entry in table.of_kind(kind) if entry.name not in fronted)


def _alias(agent: ServerEntry) -> dict[str, Any]:
    told = {
        "host": agent.address.host,
        "port": agent.address.port,
        "agent_server": {"type": agent.kind, "name": agent.name},
    }
    return {"environment_servers": {"legacy_agent": told}}
