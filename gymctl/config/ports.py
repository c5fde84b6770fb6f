"""Host ports: explicit ones are kept and checked, missing ones are found free (CONTRACT 1.13)."""

from __future__ import annotations

import copy
import errno
import random
import socket
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from gymctl.config.checks.globals import port_range
from gymctl.config.checks.instances import UNKNOWN_PORT, Instance, as_port
from gymctl.config.model import Config
from gymctl.config.problems import Problems
from gymctl.config.tree.origins import Origins
from gymctl.contract.servers import HEAD_PORT
from gymctl.errors import ConfigError, PrerequisiteError

LOOPBACK = "127.0.0.1"
_ATTEMPTS = 50


def allocate(
    config: Config, *, preferred: Mapping[str, int] | None = None, avoid: Collection[int] = ()
) -> Config:
    """`config` with a port for every server; document and settings rewritten, `disallowed_ports` filled.

    `preferred` (server id -> port, from an earlier start) is tried before a random one. A server that already
    has a port keeps it. Raises PrerequisiteError when no port of the range is free.
    """
    document = copy.deepcopy(dict(config.document))
    low, high = port_range(document)
    used = {config.head_port, *avoid, *disallowed(document)}
    used |= {block.port for block in config.servers.values() if block.port != UNKNOWN_PORT}
    used |= {address.port for address in config.elsewhere.values()}
    servers = {}
    for name, block in config.servers.items():
        port = block.port
        if port == UNKNOWN_PORT:
            port = _free(block.host, (preferred or {}).get(name), low, high, used)
            used.add(port)
        settings = document[name][block.kind][block.implementation]
        settings["port"] = port
        servers[name] = replace(block, port=port, settings=settings)
    document["disallowed_ports"] = _final_list(document, config.head_port, servers.values())
    return replace(config, servers=servers, document=document)


def with_free_head_port(config: Config, *, held: int | None = None) -> Config:
    """For a project that nobody looks for at the default port: another one when that is taken.

    `held` is the port at which the project is up already. A port that the user chose stays, and is reported
    as taken by whoever starts the project.
    """
    is_chosen = str(config.origins.get("head_server.port", "default")) != "default"
    if is_chosen or config.head_port == held:
        return config
    if held is None and is_free(config.head_host, config.head_port):
        return config
    document = copy.deepcopy(dict(config.document))
    low, high = port_range(document)
    used = {config.head_port, *disallowed(document), *(block.port for block in config.servers.values())}
    port = held or _free(config.head_host, None, low, high, used)
    document["head_server"]["port"] = port
    return replace(config, head_port=port, document=document)


def is_free(host: str, port: int) -> bool:
    """Can a server bind here? An address of another machine is probed on loopback."""
    for address in (host, LOOPBACK):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
            except OSError as error:
                if error.errno in (errno.EADDRINUSE, errno.EACCES):
                    return False
                continue  # not an address of this machine, or a name nobody knows
            return True
    return False


def default_host(document: Mapping[str, Any], origins: Origins) -> str:
    if document.get("use_absolute_ip") is True:
        try:
            return socket.gethostbyname(socket.gethostname())
        except OSError as error:
            raise ConfigError(
                f"the address of this machine cannot be looked up: {error.strerror}",
                where=origins.where("use_absolute_ip"),
                hint="name it: default_host: <address>, without use_absolute_ip",
            ) from error
    host = document.get("default_host")
    if host is not None and not isinstance(host, str):
        raise ConfigError(f"`default_host` must be text, got `{host}`", where=origins.where("default_host"))
    return host or LOOPBACK


def head_address(document: Mapping[str, Any], host: str, origins: Origins) -> tuple[str, int]:
    """`head_server.host` and `.port`, each with its own default."""
    block = document.get("head_server")
    if block is None:
        return host, HEAD_PORT
    if not isinstance(block, dict):
        raise ConfigError(
            f"`head_server` must be a mapping, got `{block}`", where=origins.where("head_server")
        )
    port = HEAD_PORT if block.get("port") is None else as_port(block["port"])
    if port is None:
        raise ConfigError(
            f"`head_server.port` must be a number from 1 to 65535, got `{block['port']}`",
            where=origins.where("head_server", "port"),
        )
    return str(block.get("host") or host), port


def refuse_clashes(
    instances: Iterable[Instance], head_port: int, origins: Origins, problems: Problems
) -> None:
    """Report two servers that ask for one port, or one that asks for the head's, with both places."""
    takers: dict[int, tuple[str, str]] = {
        head_port: ("the head server", origins.where("head_server", "port") or "default")
    }
    for instance in instances:
        port = as_port(instance.settings.get("port"))
        if port is None:
            continue
        where = origins.where(*instance.path, "port") or instance.name
        if port in takers:
            other, place = takers[port]
            error = ConfigError(
                f"port {port} is asked for by {other} ({place}) and by `{instance.name}` ({where})",
                where=where,
                hint="change one of them, or leave `port` out to get a free one",
            )
            problems.add(error, *instance.path, "port")
        takers[port] = (f"`{instance.name}`", where)


def _free(host: str, preferred: int | None, low: int, high: int, used: Collection[int]) -> int:
    if preferred is not None and preferred not in used and is_free(host, preferred):
        return preferred
    candidates = [port for port in range(low, high + 1) if port not in used]
    for port in random.sample(candidates, min(_ATTEMPTS, len(candidates))):
        if is_free(host, port):
            return port
    raise PrerequisiteError(
        f"no free port between {low} and {high}",
        where="port_range_low, port_range_high",
        hint="stop other projects (`gymctl ps --all-projects`) or widen the range",
    )


def disallowed(document: Mapping[str, Any]) -> list[int]:
    """Ports that the user rules out."""
    listed = document.get("disallowed_ports") or []
    return [port for value in listed if (port := as_port(value)) is not None]


def _final_list(document: Mapping[str, Any], head_port: int, servers: Iterable[Any]) -> list[int]:
    return list(dict.fromkeys([head_port, *disallowed(document), *(block.port for block in servers)]))
