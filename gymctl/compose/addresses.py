"""Where a server is dialled: by network name from a container, by published port from the host (D1)."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from gymctl.compose.names import HEAD, service_names
from gymctl.config.model import Config
from gymctl.contract.part import SERVER_PORT
from gymctl.contract.servers import HEAD_PORT, Address

HOST_GATEWAY = "host.docker.internal"
HEAD_HOST_VIEW_PORT = 8000
"""The head's listener that is published; `HEAD_PORT` is the one for containers."""

ViewName = Literal["host", "network"]
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class View:
    """All addresses of a project, and of servers elsewhere, as one kind of client dials them."""

    name: ViewName
    head_host: str
    head_port: int
    servers: Mapping[str, Address]

    def __getitem__(self, server: str) -> Address:
        return self.servers[server]


def published_host(host: str) -> str:
    """The address that a server is published on and advertised with: loopback, unless the config asks for
    another IP address by its number (`host: 10.1.0.7`, `use_absolute_ip: true`)."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return LOOPBACK
    return LOOPBACK if address.is_loopback or address.is_unspecified else host


def host_view(config: Config) -> View:
    servers = {
        name: Address(
            kind=block.kind,
            implementation=block.implementation,
            host=published_host(block.host),
            port=block.port,
        )
        for name, block in config.servers.items()
    }
    everyone = {**config.elsewhere, **servers}
    return View("host", published_host(config.head_host), config.head_port, everyone)


def network_view(config: Config) -> View:
    names = service_names(config.servers)
    servers = {
        name: Address(
            kind=block.kind, implementation=block.implementation, host=names[name], port=SERVER_PORT
        )
        for name, block in config.servers.items()
    }
    away = {name: _from_container(address) for name, address in config.elsewhere.items()}
    return View("network", HEAD, HEAD_PORT, {**away, **servers})


def _from_container(address: Address) -> Address:
    return address.model_copy(update={"host": HOST_GATEWAY}) if is_loopback_url(address.url) else address


def is_loopback_url(url: str) -> bool:
    """Whether a URL means the machine it is dialled from."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def through_gateway(url: str) -> str:
    """`http://localhost:8000/v1` as a container must dial it; other URLs unchanged."""
    if not is_loopback_url(url):
        return url
    parts = urlsplit(url)
    user, at, address = parts.netloc.rpartition("@")
    port = re.search(r":\d*$", address)
    return parts._replace(netloc=f"{user}{at}{HOST_GATEWAY}{port[0] if port else ''}").geturl()
