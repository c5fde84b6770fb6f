"""What each server is told: Config -> one part per service, for containers or for local processes. Pure."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gymctl.compose import limits, mounts, ray
from gymctl.compose.addresses import (
    HEAD_HOST_VIEW_PORT,
    View,
    ViewName,
    host_view,
    network_view,
    through_gateway,
)
from gymctl.compose.names import HEAD, service_names
from gymctl.config.model import Config, ServerBlock
from gymctl.config.tree.masking import mask
from gymctl.config.tree.writing import as_yaml
from gymctl.contract.cassette import IMPLEMENTATION as CASSETTE
from gymctl.contract.part import SERVER_PORT, Capture, HeadPart, HeadTarget, ServerPart
from gymctl.contract.servers import HEAD_PORT, Address, ServerTable
from gymctl.runtime import nemo_gym_part

Parts = Mapping[str, ServerPart | HeadPart]


@dataclass(frozen=True, slots=True)
class Wiring:
    """What the parts need beside the config."""

    view: ViewName
    """Where the servers run: "network" in containers, "host" as local processes."""
    secret: bytes
    head_network_port: int = HEAD_PORT
    """The head's second listener; a free port of the host in the host view."""


def build(config: Config, wiring: Wiring) -> Parts:
    """By service name, the head first."""
    view = network_view(config) if wiring.view == "network" else host_view(config)
    names = service_names(config.servers)
    parts: dict[str, ServerPart | HeadPart] = {HEAD: _head(config, wiring, view)}
    for server, service in names.items():
        parts[service] = _server(config, config.servers[server], wiring, view)
    return parts


def dump(part: ServerPart | HeadPart) -> str:
    return part.model_dump_json(indent=1)


def digest(part: ServerPart | HeadPart) -> str:
    """Names a part's content without giving anything away: it holds a random secret of 256 bits, or none."""
    return hashlib.sha256(dump(part).encode()).hexdigest()[:16]


def session_secret(secret: bytes, server: str) -> str:
    """One server's key for signing cookies: no server can sign for another."""
    return hmac.new(secret, server.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def _server(config: Config, block: ServerBlock, wiring: Wiring, view: View) -> ServerPart:
    is_container = wiring.view == "network"
    address = view[block.name]
    called = {name: view[name] for name in _called(config, block)}
    settings = _settings(block.settings, address, is_model=block.kind == "responses_api_models", view=view)
    if block.implementation == CASSETTE:
        settings["secrets"] = sorted(config.secrets)  # what it must keep out of the file
    return ServerPart(
        project=config.project,
        name=block.name,
        kind=block.kind,
        implementation=block.implementation,
        entrypoint=block.entrypoint,
        bind_host="0.0.0.0" if is_container else address.host,
        bind_port=SERVER_PORT if is_container else address.port,
        workers=block.workers,
        settings=settings,
        servers={block.name: address, **called},
        session_secret=session_secret(wiring.secret, block.name),
        pool=config.settings.pool,
        http=config.settings.http,
        is_observed=config.settings.is_observed,
        capture=_capture(config, block, called),
        log_level="DEBUG" if config.settings.verbose else "INFO",
        ray_address=ray.address(config, block, view.name),
        document=_document(config, block, view) if block.family == "nemo_gym" else None,
    )


def _document(config: Config, block: ServerBlock, view: View) -> str:
    document, address = document_for(config, view), view[block.name]
    if block.uses_ray:
        document["ray_head_node_address"] = ray.address(config, block, view.name)
    if view.name == "network":
        document = _dialable(document)  # the global policy_base_url
        address = address.model_copy(update={"host": "0.0.0.0", "port": SERVER_PORT})
    return nemo_gym_part.text(document, block, address, config.secrets)


def _capture(config: Config, block: ServerBlock, called: Iterable[str]) -> Capture:
    """What a model server records, and whose calls an agent or environment server marks for it."""
    if _is_recorded(config, block):
        return Capture()  # the cassette that took its name writes the same calls down
    settings, tokens = config.settings, config.settings.token_capture
    if block.kind == "responses_api_models":
        return Capture(calls=settings.call_capture, tokens=None if tokens is None else tokens.folder)
    if tokens is None or block.kind == "resources_servers":
        return Capture()
    agents = (config.servers[name] for name in (block.name, *called) if name in config.servers)
    return Capture(
        token_agents=tuple(
            agent.name
            for agent in agents
            if agent.kind == "responses_api_agents"
            and (tokens.all_agents or agent.settings.get("token_id_capture") is True)
        )
    )


def _is_recorded(config: Config, block: ServerBlock) -> bool:
    cassettes = (one for one in config.servers.values() if one.implementation == CASSETTE)
    return any(reference.name == block.name for one in cassettes for reference in one.calls)


def _called(config: Config, block: ServerBlock) -> list[str]:
    """The servers a block names; an environment server also calls what its agents call."""
    names = [reference.name for reference in block.calls]
    if block.kind == "environment_servers":
        fronted = (config.servers[name] for name in names if name in config.servers)
        agents = [server for server in fronted if server.kind == "responses_api_agents"]
        names += [reference.name for agent in agents for reference in agent.calls]
    return list(dict.fromkeys(names))


def _settings(settings: Mapping[str, Any], address: Address, *, is_model: bool, view: View) -> dict[str, Any]:
    # YAML takes `true:` and `1:` for no text; JSON, in which a part is written, knows text only.
    inner = {
        **{str(key): value for key, value in settings.items()},
        "host": address.host,
        "port": address.port,
    }
    for ours in (limits, mounts):
        if ours.declares(settings):
            del inner[ours.KEY]
    return _dialable(inner) if is_model and view.name == "network" else inner


def _dialable(settings: Mapping[str, Any]) -> dict[str, Any]:
    """`*base_url` values as a container must dial them: the user's `localhost` is not the container's."""
    return {key: _base_url(value) if key.endswith("base_url") else value for key, value in settings.items()}


def _base_url(value: Any) -> Any:
    if isinstance(value, str):
        return through_gateway(value)
    if isinstance(value, list):
        return [_base_url(item) for item in value]
    return value


def _head(config: Config, wiring: Wiring, view: View) -> HeadPart:
    outside, inside = host_view(config), view
    is_container = wiring.view == "network"
    return HeadPart(
        project=config.project,
        bind_host="0.0.0.0" if is_container else outside.head_host,
        host_view_port=HEAD_HOST_VIEW_PORT if is_container else config.head_port,
        network_view_port=wiring.head_network_port,
        host_view=_yaml(config, outside),
        network_view=_yaml(config, inside),
        host_instances=_instances(config, outside),
        network_instances=_instances(config, inside),
        targets=[
            HeadTarget(name=name, url=inside[name].url, kind=block.kind, family=block.family)
            for name, block in config.servers.items()
        ],
        waits_for_models=config.settings.model_endpoint_readiness_timeout_seconds is not None,
        pool=config.settings.pool,
        http=config.settings.http,
        log_level="DEBUG" if config.settings.verbose else "INFO",
    )


def _yaml(config: Config, view: View) -> str:
    """A view as text: masked by key name and by value, so that a key pasted elsewhere stays hidden too.
    `head_server.masked: false` turns that off, for clients that take their keys from here."""
    document = document_for(config, view)
    if config.settings.is_head_masked:
        document = mask(document, config.secrets)
    for surplus in _surplus_environment_servers(config):
        del document[surplus]
    return as_yaml(document, width=1000)


def table(config: Config) -> ServerTable:
    """All servers of the project as the host dials them."""
    document = document_for(config, host_view(config))
    return ServerTable.from_document({name: document[name] for name in config.servers})


def document_for(config: Config, view: View) -> dict[str, Any]:
    """The whole config as one kind of client must see it: with addresses that it can dial."""
    document: dict[str, Any] = {}
    for key, value in config.document.items():
        if key == "build":
            continue  # of those who make images: logins of indexes and proxies
        block = config.servers.get(key)
        document[key] = value if block is None else _addressed(value, block, view)
        if key in config.elsewhere:
            document[key] = _moved(value, view[key])
    head = document.get("head_server")
    base = dict(head) if isinstance(head, Mapping) else {}
    document["head_server"] = {**base, "host": view.head_host, "port": view.head_port}
    return document


def _addressed(value: Mapping[str, Any], block: ServerBlock, view: View) -> dict[str, Any]:
    inner = value[block.kind][block.implementation]
    is_model = block.kind == "responses_api_models"
    settings = _settings(inner, view[block.name], is_model=is_model, view=view)
    return {**value, block.kind: {**value[block.kind], block.implementation: settings}}


def _moved(value: Mapping[str, Any], address: Address) -> dict[str, Any]:
    """The block of a server elsewhere, at the address that this kind of client dials."""
    inner = value[address.kind][address.implementation]
    settings = {**inner, "host": address.host, "port": address.port}
    return {**value, address.kind: {**value[address.kind], address.implementation: settings}}


def _surplus_environment_servers(config: Config) -> set[str]:
    """All but one environment server of each agent: clients refuse an agent that several front. The one named
    by `environment_server_name` stays."""
    chosen = config.document.get("environment_server_name")
    by_agent: dict[str, list[str]] = {}
    for name, block in config.servers.items():
        agents = [reference.name for reference in block.calls if reference.field == "agent_server"]
        if block.kind == "environment_servers" and agents:
            by_agent.setdefault(agents[0], []).append(name)
    kept = {chosen if chosen in servers else servers[0] for servers in by_agent.values()}
    return {name for servers in by_agent.values() for name in servers} - kept


def _instances(config: Config, view: View) -> list[dict[str, Any]]:
    """`GET /server_instances` (CONTRACT 2.2). The head puts its own start in place of the 0: clients subtract
    that number, and a time in here would make every part file look changed."""
    return [
        {
            "config_path": name,
            "dir_path": str(block.folder),
            "entrypoint": block.entrypoint,
            "host": view[name].host,
            "name": block.implementation,
            "pid": None,
            "port": view[name].port,
            "process_name": name,
            "server_type": block.kind,
            "start_time": 0.0,
            "status": None,
            "uptime_seconds": None,
            "url": view[name].url,
        }
        for name, block in config.servers.items()
    ]
