"""Which environment server a row goes to (CONTRACT 9.3): row -> agent -> the one server that fronts it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass

from gymctl.contract.rollout import ENVIRONMENT_SERVER, Row, is_materialized
from gymctl.contract.servers import ServerEntry, ServerTable
from gymctl.errors import (
    AgentWithoutEnvironmentServerError,
    AmbiguousEnvironmentServerError,
    ConfigError,
)


@dataclass(frozen=True, slots=True)
class Route:
    """Where a rollout goes. `agent` is None when the server fronts no single agent."""

    server: str
    agent: str | None


class Router:
    """Routes rows over one server table; remembers what it resolved, so each agent is looked up once."""

    def __init__(self, table: ServerTable, agent: str | None = None) -> None:
        self._table = table
        self.forced = agent
        self._by_agent: dict[str, Route] = {}
        self._by_source: dict[str, str] = {}
        if agent is not None:
            self.of_agent(agent)

    def route(self, row: Row) -> Route:
        """Raises a ConfigError, without a place, when the row's server cannot be told."""
        stamped = row.get(ENVIRONMENT_SERVER)
        if stamped is not None:
            return self._of_server(str(stamped), row)
        if is_materialized(row):
            raise ConfigError(
                "a row that names a taskset needs a route from it to an environment server",
                hint=f'add `"{ENVIRONMENT_SERVER}": "<environment server>"` to the row',
            )
        return self.of_agent(self._agent(row))

    def of_agent(self, agent: str) -> Route:
        if agent not in self._by_agent:
            self._by_agent[agent] = Route(self._server_of(agent), agent)
        return self._by_agent[agent]

    def _agent(self, row: Row) -> str:
        if self.forced is not None:
            return self.forced
        reference, source = row.get("agent_ref"), row.get("task_source")
        if isinstance(reference, dict):
            return str(reference["name"])
        if isinstance(source, str):
            if source not in self._by_source:
                self._by_source[source] = self._agent_of_source(source)
            return self._by_source[source]
        raise ConfigError(
            "this row names no agent: it has neither `agent_ref` nor `task_source`",
            hint=f"say which agent to use: --agent NAME (one of: {', '.join(self._agents()) or 'none here'})",
        )

    def _agent_of_source(self, source: str) -> str:
        entry = self._table.servers.get(source)
        if entry is None:
            raise ConfigError(
                f"`task_source` names `{source}`, which is no server here", hint=self._close(source)
            )
        if entry.kind == "responses_api_agents":
            return source
        pins = sorted({str(row["agent"]) for row in entry.datasets if row.get("agent")})
        if len(pins) > 1:
            raise ConfigError(f"the datasets of `{source}` name different agents: {', '.join(pins)}")
        if pins:
            return pins[0]
        users = [agent.name for agent in self._fronted(source)]
        if len(users) == 1:
            return users[0]
        found = f"{len(users)} agents use it: {', '.join(users)}" if users else "no agent uses it"
        raise ConfigError(f"the agent for `{source}` cannot be told: {found}", hint="say which: --agent NAME")

    def _fronted(self, resources_server: str) -> Iterator[ServerEntry]:
        """Agents that use a resources server: by their own field, or through the server that fronts them."""
        names = {
            entry.name
            for entry in self._table.of_kind("responses_api_agents")
            if resources_server in entry.references.values()
        }
        for server in self._table.of_kind("environment_servers"):
            if resources_server in server.references.values():
                names.update(self._agents_of(server))
        return (entry for entry in self._table.servers.values() if entry.name in names)

    def _server_of(self, agent: str) -> str:
        entry = self._table.servers.get(agent)
        if entry is None:
            raise ConfigError(f"there is no agent `{agent}`", hint=self._close(agent))
        if entry.kind != "responses_api_agents":
            raise ConfigError(f"`{agent}` is not an agent but one of {entry.kind}", hint=self._close(agent))
        fronts = [
            server.name
            for server in self._table.of_kind("environment_servers")
            if agent in self._agents_of(server)
        ]
        if not fronts:
            raise AgentWithoutEnvironmentServerError(f"no environment server fronts the agent `{agent}`")
        if len(fronts) > 1:
            raise AmbiguousEnvironmentServerError(
                f"several environment servers front the agent `{agent}`: {', '.join(fronts)}",
                hint=f'stamp the rows with `"{ENVIRONMENT_SERVER}": "<one of them>"`',
            )
        return fronts[0]

    def _of_server(self, name: str, row: Row) -> Route:
        """With the row's own agent, which must be one of this server's, else the one that it stands for."""
        entry = self._table.servers.get(name)
        if entry is None or entry.kind != "environment_servers":
            raise ConfigError(f"`{ENVIRONMENT_SERVER}` names `{name}`, which is no environment server here")
        agents = self._agents_of(entry)
        reference, source = row.get("agent_ref"), row.get("task_source")
        resources = entry.references.get("resources_server")
        if resources is not None and source is not None and source not in (resources, *agents):
            raise ConfigError(f"`task_source` names `{source}`, but `{name}` scores with `{resources}`")
        if isinstance(reference, dict):
            own = str(reference["name"])
            if own not in agents:
                raise ConfigError(
                    f"`agent_ref` names `{own}`, which `{name}` does not front",
                    hint=f"its agents: {', '.join(agents) or 'none'}",
                )
            return Route(name, own)
        attributed = entry.references.get("agent_server")
        return Route(name, attributed or (agents[0] if len(agents) == 1 else None))

    def _agents_of(self, server: ServerEntry) -> list[str]:
        return [
            name
            for name in dict.fromkeys(server.references.values())
            if name in self._table and self._table[name].kind == "responses_api_agents"
        ]

    def _agents(self) -> list[str]:
        return [entry.name for entry in self._table.of_kind("responses_api_agents")]

    def _close(self, name: str) -> str:
        close = difflib.get_close_matches(name, self._agents(), n=3, cutoff=0.6)
        return (
            f"did you mean {', '.join(close)}?" if close else f"agents: {', '.join(self._agents()) or 'none'}"
        )


def depends_on(table: ServerTable, server: str) -> frozenset[str]:
    """The server and all servers it needs, directly or through others: whose death stops its rollouts."""
    found: set[str] = set()
    open_names = [server]
    while open_names:
        name = open_names.pop()
        if name not in found and name in table:
            found.add(name)
            open_names.extend(table[name].references.values())
    return frozenset(found)
