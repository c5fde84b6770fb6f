"""An environment server for each agent that has none (CONTRACT 1.17)."""

from __future__ import annotations

from typing import Any

from gymctl.config.checks import references
from gymctl.config.checks.instances import Instance
from gymctl.config.problems import Problems
from gymctl.config.tree.agents import relay_id
from gymctl.config.tree.writing import as_yaml
from gymctl.errors import AgentWithoutEnvironmentServerError


def add(document: dict[str, Any], instances: list[Instance], problems: Problems) -> list[Instance]:
    """`instances` with a generated relay for every unfronted agent, also written into `document`."""
    fronted = {
        agent
        for instance in instances
        if instance.kind == "environment_servers"
        for agent in references.agents_of(instance)
    }
    alone = sorted(
        (
            instance
            for instance in instances
            if instance.kind == "responses_api_agents" and instance.name not in fronted
        ),
        key=lambda instance: instance.name,
    )
    if not alone:
        return instances
    blocks = {}
    for agent in alone:
        name = relay_id(agent.name, agent.implementation, {*document, *blocks})
        blocks[name] = _block(agent.name)
    if document.get("error_on_agent_without_environment_server", False) is True:
        error = AgentWithoutEnvironmentServerError(
            f"no environment server fronts {', '.join(f'`{agent.name}`' for agent in alone)}",
            details=_yaml(blocks),
            hint="add these blocks to the configuration",
        )
        problems.add(error)
        return instances
    problems.warn(
        "deprecated: agents without an environment server get a generated relay; add to the configuration:\n"
        + "\n".join(_yaml(blocks))
    )
    document.update(blocks)
    generated = [
        Instance(
            name, "environment_servers", "legacy_agent", block["environment_servers"]["legacy_agent"], True
        )
        for name, block in blocks.items()
    ]
    return [*instances, *generated]


def _block(agent: str) -> dict[str, Any]:
    relay = {"entrypoint": "app.py", "agent_server": {"type": "responses_api_agents", "name": agent}}
    return {"environment_servers": {"legacy_agent": relay}}


def _yaml(blocks: dict[str, Any]) -> list[str]:
    return as_yaml(blocks).splitlines()
