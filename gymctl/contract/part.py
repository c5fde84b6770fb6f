"""What one server is told when it starts: the file mounted at /run/gymctl/part.json (DESIGN D2).

It holds the server's own block, the addresses of the servers it may call, and only the secrets its block
refers to. Written by the host with mode 0600, never rendered into the compose file or the environment.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from gymctl.contract.proxies import refusal
from gymctl.contract.servers import Address, ServerKind

PART_PATH = "/run/gymctl/part.json"
PART_VARIABLE = "GYMCTL_PART"
SERVER_FOLDER = "/srv/server"
SERVER_PORT = 8000
"""Every server container listens here; the host port is published by Compose."""


class Pool(BaseModel):
    """HTTP client limits of one server group (CONTRACT 1.14, 2.6); 0 means unlimited."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    limit: int = 102400
    limit_per_host: int = 1024
    keepalive_idle_seconds: int = 60
    keepalive_interval_seconds: int = 10
    keepalive_probes: int = 3
    intended: int | None = None
    """Calls that the user means to have in flight at once; warned about where they do not fit."""
    intended_per_host: int | None = None
    tells_every_failure: bool = False
    """Each attempt that fails is logged, with what the library knows of it."""


class HttpSettings(BaseModel):
    """How a server listens (CONTRACT 3.5)."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    show_access_log: bool = False
    trusted_proxies: tuple[str, ...] | None = None
    """Whose `X-Forwarded-*` is believed; None: nobody's."""
    worker_silence_seconds: int = 30
    """A worker that does not answer its supervisor for so long is replaced."""

    @field_validator("trusted_proxies")
    @classmethod
    def _names_proxies(cls, entries: tuple[str, ...] | None) -> tuple[str, ...] | None:
        reason = None if entries is None else refusal(entries)
        if reason is not None:
            raise ValueError(f"uvicorn_forwarded_allow_ips {reason}")
        return entries


class Capture(BaseModel):
    """Which of a server's model calls are recorded, and where (CONTRACT 15.1, 15.3). Absolute folders."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    calls: str | None = None
    """Model servers record requests and responses here."""
    tokens: str | None = None
    """Model servers record token ids here, of calls that ask for it."""
    token_agents: tuple[str, ...] = ()
    """Agents, this one or those it calls, whose model calls ask for it."""


class ServerPart(BaseModel):
    """One server's own part of the config, in the view of the place where it runs."""

    # `.inf` in a block must not become null on the way.
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants", defer_build=True)

    role: Literal["server"] = "server"
    project: str
    name: str
    kind: ServerKind
    implementation: str
    entrypoint: str = "app.py"
    bind_host: str = "0.0.0.0"
    bind_port: int = SERVER_PORT
    workers: int = 1
    settings: dict[str, Any]
    """The level-3 block, resolved, as the user wrote it (`entrypoint`, `domain`, `datasets`, … included)."""
    servers: dict[str, Address] = Field(default_factory=dict)
    """The servers this one may call, by instance id, in this server's view."""
    session_secret: str
    pool: Pool = Pool()
    http: HttpSettings = HttpSettings()
    is_observed: bool = False
    """Calls to models and verifiers bear the rollout's id in their path (`observability_enabled`)."""
    capture: Capture = Capture()
    log_level: str = "INFO"
    ray_address: str | None = None
    """The Ray cluster that a server with `ray_enabled = True` joins before its first request."""
    document: str | None = None
    """YAML text, for a server of NeMo Gym's own: the whole configuration in its view, with the secrets of
    other servers masked (what NEMO_GYM_CONFIG_DICT holds there)."""


class HeadTarget(BaseModel):
    """A server whose readiness the head watches. `family` decides what counts: ours answer /readyz."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    name: str
    url: str
    kind: ServerKind
    family: Literal["gymctl", "nemo_gym"] = "gymctl"


class HeadPart(BaseModel):
    """What the head is told: both views of the config, resolved; masked unless that is off (DESIGN D1)."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    role: Literal["head"] = "head"
    project: str
    bind_host: str = "0.0.0.0"
    host_view_port: int
    """Listens for the host: published as the project's head port."""
    network_view_port: int
    """Listens for the servers: answers with network names."""
    host_view: str
    """YAML text."""
    network_view: str
    """YAML text."""
    host_instances: list[dict[str, Any]]
    """CONTRACT 2.2 elements with host addresses."""
    network_instances: list[dict[str, Any]]
    targets: list[HeadTarget]
    waits_for_models: bool = True
    """False: ready when all servers answered, whether or not the models behind them do."""
    pool: Pool = Pool()
    http: HttpSettings = HttpSettings()
    log_level: str = "INFO"


class EndpointState(BaseModel):
    """What a model server says of its upstream on `GET /gymctl/upstream` (probed from where it runs)."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    key: str
    url: str
    state: Literal["answering", "waiting", "unresolvable", "skipped"]
    detail: str = ""


class TargetState(BaseModel):
    """One server as the head sees it."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    name: str
    kind: ServerKind
    state: Literal["starting", "ready"]
    seconds: float | None = None
    """Seconds from the head's own start until the server first answered."""
    detail: str = ""
    """Why it is still waited for, when something else than silence is the reason."""
    endpoints: list[EndpointState] = Field(default_factory=list)


class HeadStatus(BaseModel):
    """`GET /gymctl/status` of the head: progress for `up`, identity for readiness checks."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    project: str
    ready: bool
    targets: list[TargetState]
