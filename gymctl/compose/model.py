"""What a rendered Compose file may say: typed, in the Compose specification's own words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Port:
    """One published port, in the long form: the short form's quoting rules surprise readers of YAML."""

    target: int
    published: str
    host_ip: str = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Bind:
    create_host_path: bool = False
    """False: a missing file is an error instead of a new, empty folder owned by root."""


@dataclass(frozen=True, slots=True)
class Mount:
    source: str
    target: str
    type: Literal["bind"] = "bind"
    read_only: bool = True
    bind: Bind = Bind()


@dataclass(frozen=True, slots=True)
class Healthcheck:
    test: tuple[str, ...]
    interval: str
    timeout: str
    retries: int
    start_period: str
    start_interval: str | None = None
    """Only for engines with API 1.44 and newer; older ones refuse the whole file."""


@dataclass(frozen=True, slots=True)
class Dependency:
    condition: Literal["service_healthy"]


@dataclass(frozen=True, slots=True)
class Logging:
    driver: str
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Device:
    """GPUs that the engine hands to a container."""

    count: int | Literal["all"]
    driver: str = "nvidia"
    capabilities: tuple[str, ...] = ("gpu",)


@dataclass(frozen=True, slots=True)
class Reservations:
    devices: tuple[Device, ...]


@dataclass(frozen=True, slots=True)
class Resources:
    reservations: Reservations


@dataclass(frozen=True, slots=True)
class Deploy:
    resources: Resources

    @classmethod
    def with_gpus(cls, count: int | Literal["all"]) -> Deploy:
        return cls(Resources(Reservations((Device(count),))))


@dataclass(frozen=True, slots=True)
class Service:
    """One container. None means: not written. Field order is the order in the file."""

    image: str
    entrypoint: tuple[str, ...]
    user: str
    ports: tuple[Port, ...]
    volumes: tuple[Mount, ...]
    healthcheck: Healthcheck
    mem_limit: str
    memswap_limit: str
    pids_limit: int
    logging: Logging
    labels: Mapping[str, str]
    cpus: float | None = None
    deploy: Deploy | None = None
    extra_hosts: tuple[str, ...] | None = None
    environment: Mapping[str, str] | None = None
    """Never a secret: whoever may ask the engine can read it."""
    depends_on: Mapping[str, Dependency] | None = None
    platform: str | None = None
    shm_size: str | None = None
    pull_policy: Literal["never"] = "never"
    restart: Literal["no"] = "no"
    init: bool = True
    read_only: bool = True
    tmpfs: tuple[str, ...] = ("/tmp:size=256m,mode=1777",)
    cap_drop: tuple[str, ...] = ("ALL",)
    cap_add: tuple[str, ...] | None = None
    security_opt: tuple[str, ...] = ("no-new-privileges:true",)
    stop_grace_period: str = "3s"


@dataclass(frozen=True, slots=True)
class Network:
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Project:
    """A whole Compose file."""

    name: str
    services: Mapping[str, Service]
    networks: Mapping[str, Network] = field(default_factory=dict)
