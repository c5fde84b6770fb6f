"""Which environment server a row goes to (CONTRACT 9.3): row -> agent -> the one server that fronts it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from gymctl.contract.rollout import ENVIRONMENT_SERVER, Row, is_materialized
from gymctl.contract.servers import ServerEntry, ServerKind, ServerTable
from gymctl.errors import (
    AgentWithoutEnvironmentServerError,
    AmbiguousEnvironmentServerError,
    ConfigError,
)

DEFAULT = "_default"
"""The entry of a mapping that stands for every name without one of its own."""
Where = Callable[[str], str | None]
"""The place of a setting, for errors: `a.yaml:3` or a flag."""


def nowhere(setting: str) -> None:
    """Nobody knows who wrote a setting."""


@dataclass(frozen=True, slots=True)
class Route:
    """Where a rollout goes. `agent` is None when the server fronts no single agent."""

    server: str
    agent: str | None


@dataclass(frozen=True, slots=True)
class Routing:
    """What is asked for beside what the rows say."""

    agent_map: Mapping[str, str] = field(default_factory=dict)
    """A row's agent or task source -> the agent that runs it; `_default` runs every other row."""
    fan_out: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """A row's agent or task source -> the agents that run it, each in rollouts of its own."""
    mode: Literal["agent", "legacy", "taskset"] = "agent"
    """Flat rows go to their agent's server, to `server`, or are refused."""
    server: str | None = None
    taskset_servers: Mapping[str, str] = field(default_factory=dict)
    """Taskset of a materialized row -> environment server, in every mode."""
    allows_any_pairing: bool = False
    """Resources servers that name the agents they accept are not asked."""


def named_agent(row: Row) -> str | None:
    """The agent in a row's own `agent_ref`."""
    reference = row.get("agent_ref")
    return str(reference["name"]) if isinstance(reference, dict) else None


class Router:
    """Routes rows over one server table; remembers what it resolved, so each agent is looked up once."""

    def __init__(self, table: ServerTable, routing: Routing | None = None, where: Where = nowhere) -> None:
        """Raises a ConfigError when every row would go to an agent or server that is not there."""
        self._table = table
        self.routing = routing or Routing()
        self._by_agent: dict[str, Route] = {}
        self._by_source: dict[str, str] = {}
        self._where = where
        default, server = self.routing.agent_map.get(DEFAULT), self.routing.server
        if default is not None:
            self._of_setting(f"agent_map.{DEFAULT}", default)
        if self.routing.mode == "legacy" and not self._is_environment_server(server):
            raise ConfigError(
                f"`environment_server_name` names `{server}`, which is no environment server here",
                where=where("environment_server_name"),
                hint=self._close(str(server), "environment_servers"),
            )

    def knows(self, name: str) -> bool:
        """Whether a name is a server's, or one that the routing settings speak of."""
        settings = (self.routing.agent_map, self.routing.fan_out, self.routing.taskset_servers)
        return name in self._table or any(name in setting for setting in settings)

    def route(self, row: Row) -> Route:
        """The only route of a row that is not fanned out."""
        return self.routes(row)[0]

    def routes(self, row: Row) -> list[Route]:
        """Where the rollouts of a row go. Raises a ConfigError, without a place, when that cannot be told."""
        server = self.chosen_server(row)
        if server is not None:
            return [self._of_server(server, row)]
        key = self.key(row)
        fanned = self.routing.fan_out.get(key, ()) if key is not None else ()
        return [self._of_setting(f"fan_out.{key}", agent) for agent in fanned] or [self._of_row(row)]

    def check_pairing(self, route: Route, row: Row) -> None:
        """Raises a ConfigError when a resources server would score an agent that it does not accept."""
        if route.agent is None or self.routing.allows_any_pairing or route.agent not in self._table:
            return
        agent = self._table[route.agent]
        own, servers = agent.references, self._table[route.server].references
        scoring = (row.get("task_source"), own.get("resources_server"), servers.get("resources_server"))
        for name in scoring:
            accepted = (
                self._table[name].allowed_agents if isinstance(name, str) and name in self._table else ()
            )
            if accepted and agent.address.implementation not in accepted:
                raise ConfigError(
                    f"`{agent.name}` runs `{agent.address.implementation}`, "
                    f"and `{name}` accepts only: {', '.join(accepted)}",
                    hint="--allow-unsupported-pairing runs them all the same",
                )

    def key(self, row: Row) -> str | None:
        """The name by which settings speak of a row, before any of them sends it elsewhere."""
        source = row.get("task_source")
        server = self.chosen_server(row)
        if server is not None:
            own = row["task_id"].get("taskset") if is_materialized(row) else None
            return str(own or source or server)
        return named_agent(row) or (source if isinstance(source, str) else None)

    def chosen_server(self, row: Row) -> str | None:
        """The server that a row goes to whatever its agent: by taskset, by mode, or because it says so."""
        stamped = row.get(ENVIRONMENT_SERVER)
        if is_materialized(row):
            taskset = row["task_id"].get("taskset")
            server = self.routing.taskset_servers.get(taskset, stamped)
            if server is None:
                raise ConfigError(
                    f"there is no route for the taskset `{taskset}`",
                    hint=f"++environment_server_routes.{taskset}=<environment server>",
                )
            return str(server)
        if self.routing.mode == "taskset":
            raise ConfigError(
                "this row names no taskset, and `environment_routing_mode` is taskset",
                hint="`agent` takes rows of both kinds",
            )
        if self.routing.mode == "legacy":
            return self.routing.server
        return None if stamped is None else str(stamped)

    def of_agent(self, agent: str) -> Route:
        if agent not in self._by_agent:
            self._by_agent[agent] = Route(self._server_of(agent), agent)
        return self._by_agent[agent]

    def _of_setting(self, setting: str, agent: str) -> Route:
        try:
            return self.of_agent(agent)
        except ConfigError as error:
            place = self._where(setting)
            raise type(error)(f"`{setting}`: {error.what}", where=place, hint=error.hint) from None

    def _of_row(self, row: Row) -> Route:
        for key in (named_agent(row), row.get("task_source"), DEFAULT):
            if isinstance(key, str) and key in self.routing.agent_map:
                return self._of_setting(f"agent_map.{key}", self.routing.agent_map[key])
        return self.of_agent(self._agent(row))

    def _agent(self, row: Row) -> str:
        named, source = named_agent(row), row.get("task_source")
        if named is not None:
            return named
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
        if not self._is_environment_server(name):
            raise ConfigError(
                f"this row goes to `{name}`, which is no environment server here",
                hint=self._close(name, "environment_servers"),
            )
        entry = self._table[name]
        agents = self._agents_of(entry)
        own, source = named_agent(row), row.get("task_source")
        resources = entry.references.get("resources_server")
        if resources is not None and source is not None and source not in (resources, *agents):
            raise ConfigError(f"`task_source` names `{source}`, but `{name}` scores with `{resources}`")
        if own is not None:
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

    def _is_environment_server(self, name: str | None) -> bool:
        return name in self._table and self._table[str(name)].kind == "environment_servers"

    def _close(self, name: str, kind: ServerKind = "responses_api_agents") -> str:
        known = [entry.name for entry in self._table.of_kind(kind)]
        close = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
        noun = "agents" if kind == "responses_api_agents" else "environment servers"
        return f"did you mean {', '.join(close)}?" if close else f"{noun}: {', '.join(known) or 'none'}"


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
