"""The settings of an evaluation in the words of `rollouts`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymctl.contract.evaluation import EvaluationSettings
from gymctl.contract.servers import ServerTable
from gymctl.metrics.declared import Declaration
from gymctl.rollouts.metric_input import Counting
from gymctl.rollouts.route import Routing


def routing(settings: EvaluationSettings, *, allows_any_pairing: bool) -> Routing:
    """Where rows go."""
    return Routing(
        agent_map=settings.routes,
        fan_out=settings.fan_out,
        mode=settings.environment_routing_mode,
        server=settings.environment_server_name,
        taskset_servers=settings.environment_server_routes,
        allows_any_pairing=allows_any_pairing,
    )


def counting(settings: EvaluationSettings) -> Counting:
    """What counts as reward 0 without having been scored."""
    declared = Declaration(settings.failure_outcomes, frozenset(settings.count_failure_classes_as_zero))
    return Counting(declared, settings.count_missing_rollouts_as_zero)


def only_agent(table: ServerTable) -> str | None:
    """Who runs rows that name nobody, when only the table is known."""
    agents = [entry.name for entry in table.of_kind("responses_api_agents")]
    return agents[0] if len(agents) == 1 else None


def of_table(table: ServerTable) -> Mapping[str, Any]:
    """What a run is made with, as far as a table of servers tells: by dotted key."""
    found: dict[str, Any] = {}
    for entry in table.servers.values():
        found[f"{entry.name}.implementation"] = f"{entry.kind}/{entry.address.implementation}"
        found.update({f"{entry.name}.{field}": name for field, name in entry.references.items()})
    return found
