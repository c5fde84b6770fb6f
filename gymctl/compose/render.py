"""Which container each server gets: Config -> typed Compose Project. Pure: nothing is read or written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gymctl.compose import ray
from gymctl.compose.addresses import HEAD_HOST_VIEW_PORT, HOST_GATEWAY, published_host
from gymctl.compose.limits import Limits, limits
from gymctl.compose.model import (
    Dependency,
    Deploy,
    Healthcheck,
    Logging,
    Mount,
    Network,
    Port,
    Project,
    Service,
)
from gymctl.compose.mounts import captures, mounts, skills
from gymctl.compose.names import HEAD, service_names
from gymctl.compose.profiles import CLOSED, Profile, profile_of
from gymctl.config.model import Config
from gymctl.contract.part import PART_PATH, SERVER_PORT

LABEL = "dev.gymctl"
PROJECT_LABEL = f"{LABEL}.project"
SERVER_LABEL = f"{LABEL}.server"
KIND_LABEL = f"{LABEL}.kind"
FOLDER_LABEL = f"{LABEL}.folder"
PART_LABEL = f"{LABEL}.part"
PROFILE_LABEL = f"{LABEL}.profile"

CONTAINER_USER = "999:999"
HEAD_LIMITS = Limits(memory="512m", pids=256)
LOGGING = Logging(driver="json-file", options={"max-size": "20m", "max-file": "3"})

# The cheapest probe that an image with Python is sure to have: 43 ms of CPU against 154 for urllib.
PROBE = (
    "import _socket as s; c = s.socket(2, 1); c.settimeout(2); c.connect(('127.0.0.1', {port}));"
    r" c.send(b'GET / HTTP/1.0\r\n\r\n'); raise SystemExit(not c.recv(1))"
)


@dataclass(frozen=True, slots=True)
class Rendering:
    """What is decided elsewhere: image tags by server id, the head's image, the part files' digests."""

    images: Mapping[str, str]
    head_image: str
    part_digests: Mapping[str, str]
    """By service. As a label: a changed part makes `up` recreate its container, an equal one keeps it."""
    folder: str
    """The folder that the project was started from; a label, so that `ps` can tell two checkouts apart."""
    user: str = CONTAINER_USER
    has_start_interval: bool = True
    """False for engines that refuse a file with `start_interval`."""
    cpus: int = 1
    """What the engine may hand out."""
    platform: str | None = None
    """What all images are made for: `linux/amd64`. Said in each service, else the environment decides."""
    is_emulated: bool = False
    """Whether the engine runs that by emulation."""


def render(config: Config, rendering: Rendering) -> Project:
    """One service for each server, the head, and Ray's containers where a server uses it."""
    names = service_names(config.servers)
    services = {HEAD: _head(config, rendering)}
    for server, service in names.items():
        services[service] = _server(config, server, service, rendering)
    for cluster in ray.clusters(config):
        services |= _ray(config, cluster, rendering)
    services = {name: replace(one, platform=rendering.platform) for name, one in services.items()}
    labels = {PROJECT_LABEL: config.project, FOLDER_LABEL: rendering.folder}
    return Project(name=config.project, services=services, networks={"default": Network(labels=labels)})


def user(uid: int, gid: int) -> str:
    """Who a container runs as: the calling user, who can read the part files; never root."""
    return CONTAINER_USER if uid == 0 else f"{uid}:{gid}"


def _head(config: Config, rendering: Rendering) -> Service:
    return _service(
        config,
        rendering,
        service=HEAD,
        image=rendering.head_image,
        port=Port(
            target=HEAD_HOST_VIEW_PORT,
            published=str(config.head_port),
            host_ip=published_host(config.head_host),
        ),
        allowed=HEAD_LIMITS,
        labels={SERVER_LABEL: HEAD, KIND_LABEL: HEAD},
        may_reach_host=True,
    )


def _server(config: Config, server: str, service: str, rendering: Rendering) -> Service:
    block = config.servers[server]
    profile = profile_of(block)
    cluster = ray.cluster_of(config, server)
    is_model = block.kind == "responses_api_models"
    calls_elsewhere = any(call.name in config.elsewhere for call in block.calls)
    recorded = captures(config.settings.capture_folders) if is_model else ()
    own = mounts(server, block.settings)
    read = skills(config.skills_folder, own) if block.kind == "responses_api_agents" else ()
    return _service(
        config,
        rendering,
        service=service,
        image=rendering.images[server],
        port=Port(target=SERVER_PORT, published=str(block.port), host_ip=published_host(block.host)),
        allowed=limits(server, block.settings, host_cpus=rendering.cpus),
        labels={SERVER_LABEL: server, KIND_LABEL: block.kind},
        may_reach_host=(
            is_model or profile.may_reach_host or calls_elsewhere or ray.is_on_this_machine(config, block)
        ),
        mounted=(*own, *read, *recorded),
        profile=profile,
        depends_on=None if cluster is None else ray.joined(cluster),
    )


def _ray(config: Config, cluster: ray.Cluster, rendering: Rendering) -> dict[str, Service]:
    profile = profile_of(config.servers[cluster.server])
    common = {
        PROJECT_LABEL: config.project,
        KIND_LABEL: ray.KIND,
        PROFILE_LABEL: profile.name,
        FOLDER_LABEL: rendering.folder,
    }
    return ray.services(
        config,
        cluster,
        image=rendering.images[cluster.server],
        user=rendering.user,
        labels={name: {**common, SERVER_LABEL: name} for name in cluster.nodes},
        logging=LOGGING,
        has_start_interval=rendering.has_start_interval,
        cpus=rendering.cpus,
    )


def _service(
    config: Config,
    rendering: Rendering,
    *,
    service: str,
    image: str,
    port: Port,
    allowed: Limits,
    labels: Mapping[str, str],
    may_reach_host: bool,
    mounted: tuple[Mount, ...] = (),
    profile: Profile = CLOSED,
    depends_on: Mapping[str, Dependency] | None = None,
) -> Service:
    return Service(
        image=image,
        # Set here, not left to the image: one with an ENTRYPOINT of its own would swallow the command.
        entrypoint=profile.command,
        user=profile.user or rendering.user,
        read_only=profile.is_read_only,
        cap_add=profile.capabilities,
        ports=(port,),
        volumes=(Mount(source=f"./parts/{service}.json", target=PART_PATH), *mounted),
        healthcheck=_healthcheck(
            port.target,
            # An emulated check takes seconds of the processor that the server needs to start.
            has_start_interval=rendering.has_start_interval and not rendering.is_emulated,
        ),
        mem_limit=allowed.memory,
        memswap_limit=allowed.memory,
        pids_limit=allowed.pids,
        cpus=allowed.cpus,
        deploy=None if allowed.gpus is None else Deploy.with_gpus(allowed.gpus),
        logging=LOGGING,
        depends_on=depends_on,
        extra_hosts=(f"{HOST_GATEWAY}:host-gateway",) if may_reach_host else None,
        labels={
            PROJECT_LABEL: config.project,
            **labels,
            PROFILE_LABEL: profile.name,
            FOLDER_LABEL: rendering.folder,
            PART_LABEL: rendering.part_digests[service],
        },
    )


def _healthcheck(port: int, *, has_start_interval: bool) -> Healthcheck:
    return Healthcheck(
        test=("CMD", "python", "-I", "-S", "-c", PROBE.format(port=port)),
        interval="30s",
        timeout="5s",
        retries=3,
        start_period="600s",
        # gymctl polls by itself: a warm start is over before the first of these.
        start_interval="2s" if has_start_interval else None,
    )
