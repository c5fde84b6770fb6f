"""Server kinds, addresses, and the table of servers that the host dials (read from the head's host view)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, cast, get_args

from pydantic import BaseModel, ConfigDict

ServerKind = Literal[
    "responses_api_models", "resources_servers", "responses_api_agents", "environment_servers"
]
KINDS: tuple[ServerKind, ...] = get_args(ServerKind)

HEAD_PORT = 11000


class Address(BaseModel):
    """Where one server is dialled by the holder of this value (host view or network view)."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    kind: ServerKind
    implementation: str
    host: str
    port: int

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"


class ServerEntry(BaseModel):
    """One row of the server table. `references` maps a block's field to the server it names
    (`agent_server`, `resources_server`, `model_server`, …)."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    name: str
    address: Address
    references: Mapping[str, str] = {}
    datasets: tuple[dict[str, Any], ...] = ()
    allowed_agents: tuple[str, ...] = ()
    """Of a resources server: the implementations whose rollouts it scores. Empty: all."""

    @property
    def kind(self) -> ServerKind:
        return self.address.kind

    @property
    def url(self) -> str:
        return self.address.url


class ServerTable(BaseModel):
    """All servers of a project as the host dials them. The only thing `rollouts` knows of a project."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    servers: Mapping[str, ServerEntry]

    def __getitem__(self, name: str) -> ServerEntry:
        return self.servers[name]

    def __contains__(self, name: object) -> bool:
        return name in self.servers

    def of_kind(self, kind: ServerKind) -> Iterator[ServerEntry]:
        return (entry for entry in self.servers.values() if entry.kind == kind)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> ServerTable:
        """Read the table from a resolved three-level config, as `GET /global_config_dict_yaml` serves it.

        Top-level values that are no server blocks (or lack host or port) are skipped.
        """
        entries: dict[str, ServerEntry] = {}
        for name, block in document.items():
            entry = _entry(name, block)
            if entry is not None:
                entries[name] = entry
        return cls(servers=entries)


def _entry(name: str, block: object) -> ServerEntry | None:
    if not isinstance(block, Mapping) or not block:
        return None
    kind = next(iter(block))
    inner = block[kind]
    if kind not in KINDS or not isinstance(inner, Mapping) or not inner:
        return None
    implementation, settings = next(iter(inner.items()))
    if not isinstance(settings, Mapping) or "port" not in settings or "host" not in settings:
        return None
    references = {
        field: str(value["name"])
        for field, value in settings.items()
        if isinstance(value, Mapping)
        and "name" in value
        and (value.get("type") in KINDS or field == "agent_server")
    }
    datasets = settings.get("datasets") or ()
    return ServerEntry(
        name=name,
        address=Address(
            kind=cast(ServerKind, kind),
            implementation=str(implementation),
            host=str(settings["host"]),
            port=int(settings["port"]),
        ),
        references=references,
        datasets=tuple(dict(row) for row in datasets),
        allowed_agents=_names(settings.get("allowed_agents")),
    )


def _names(value: object) -> tuple[str, ...]:
    """A list of names, or a single one (CONTRACT 1.16)."""
    if isinstance(value, str):
        return (value,)
    return tuple(map(str, value)) if isinstance(value, list) else ()
