"""The Ray containers of a project: a head and workers, for the servers that use Ray (DESIGN D8).

    server ──ray://ray-head:10001──▶ ray-head ──6379──▶ ray-worker-1 … N      nothing is published

A task is code of a server, found by its name on the other side, so Ray's containers run that server's own
image: the same code, packages, Ray and Python come of themselves. Servers of different images therefore have
clusters of their own. Rendered, not a static fragment: image, limits and names follow from the servers.

Ray works under all that fences our servers in (plain user, no capabilities, read-only file system). What is
opened: /dev/shm, which holds its objects, and a larger /tmp for its sockets, logs and spilled objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gymctl.compose.addresses import ViewName, is_loopback_url, through_gateway
from gymctl.compose.limits import Limits, in_bytes, limits
from gymctl.compose.model import Dependency, Healthcheck, Logging, Port, Service
from gymctl.compose.profiles import profile_of
from gymctl.config.model import Config, ServerBlock
from gymctl.contract.part import SERVER_FOLDER

KIND = "ray"
PORT = 6379
CLIENT_PORT = 10001
DASHBOARD_PORT = 8265
SMALLEST = Limits(memory="2g", pids=1024)
"""A head holds up to 1 GB and 400 threads, and every server that dials it adds a process."""

_STORE_SHARE = 4
"""Of a container's memory, one part in so many is for objects; /dev/shm must hold 30 % more."""

# `ray health-check` passes while the node itself still comes up: ask whether this very node has joined.
_PROBE = (
    "import socket; from ray._raylet import GcsClient as Client; name = socket.gethostname();"
    " nodes = Client(address='{head}:{port}').get_all_node_info(timeout=10).values();"
    " assert any(node.state == 0 and node.node_manager_hostname == name for node in nodes);"
    " open('/tmp/joined', 'w').close()"
)
# Not the `ray` script: an image without Ray then says which module is missing.
_RAY = "python -m ray.scripts.scripts"
# Ray gives a node 30 s to start, whatever the machine has to do meanwhile: one that never joined tries again.
_START = (
    f'for attempt in 1 2 3; do {_RAY} start "$@"; code=$?; [ -e /tmp/joined ] && break;'
    f" {_RAY} stop --force >/dev/null 2>&1; done; exit $code"
)


@dataclass(frozen=True, slots=True)
class Cluster:
    """One head with its workers, by their service names."""

    head: str
    workers: tuple[str, ...]
    server: str
    """Whose image, limits and profile its containers have."""
    servers: tuple[str, ...]
    """All that join it."""
    dashboard_port: int | None = None

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.head, *self.workers

    @property
    def needed_by(self) -> Mapping[str, tuple[str, ...]]:
        """Each container with the servers that are lost without it; tasks of a worker Ray runs elsewhere."""
        return {self.head: self.servers, **dict.fromkeys(self.workers, ())}

    @property
    def address(self) -> str:
        """As a server dials it: a client, since a driver would need a Ray node in its own container."""
        return f"ray://{self.head}:{CLIENT_PORT}"


def clusters(config: Config) -> tuple[Cluster, ...]:
    """One for each image whose code runs as tasks; none when nobody uses Ray, or another cluster is joined.

    Servers that only join (NeMo Gym's that say nothing about Ray) go to the first.
    """
    settings = config.settings.ray
    users = [block for block in config.servers.values() if block.uses_ray]
    if settings.address is not None or not users:
        return ()
    groups: dict[Path, list[str]] = {}
    for block in [block for block in users if block.runs_ray_tasks] or users[:1]:
        groups.setdefault(block.folder, []).append(block.name)
    placed = {name for names in groups.values() for name in names}
    first = next(iter(groups.values()))
    first += [block.name for block in users if block.name not in placed]
    made: list[Cluster] = []
    for number, names in enumerate(groups.values()):
        prefix = "ray" if number == 0 else f"ray-{number + 1}"
        made.append(
            Cluster(
                head=f"{prefix}-head",
                workers=tuple(f"{prefix}-worker-{count + 1}" for count in range(settings.workers)),
                server=names[0],
                servers=tuple(names),
                dashboard_port=None if settings.dashboard_port is None else settings.dashboard_port + number,
            )
        )
    return tuple(made)


def cluster_of(config: Config, server: str) -> Cluster | None:
    return next((cluster for cluster in clusters(config) if server in cluster.servers), None)


def owner(config: Config, name: str) -> str:
    """The server whose code and limits a Ray container has; any other name as it is."""
    return next((cluster.server for cluster in clusters(config) if name in cluster.nodes), name)


def address(config: Config, block: ServerBlock, view: ViewName) -> str | None:
    """Where a server joins Ray; None for one that does not use it, and where there is no cluster."""
    if not block.uses_ray:
        return None
    named = config.settings.ray.address
    if named is not None:
        return through_gateway(named) if view == "network" and "://" in named else named
    cluster = cluster_of(config, block.name) if view == "network" else None
    return None if cluster is None else cluster.address


def is_on_this_machine(config: Config, block: ServerBlock) -> bool:
    """Whether a server joins a cluster that listens on the host."""
    named = config.settings.ray.address
    return block.uses_ray and named is not None and "://" in named and is_loopback_url(named)


def services(
    config: Config,
    cluster: Cluster,
    *,
    image: str,
    user: str,
    labels: Mapping[str, Mapping[str, str]],
    logging: Logging,
    has_start_interval: bool,
    cpus: int,
) -> dict[str, Service]:
    """The containers of one cluster. `labels` by service; `cpus`: what the engine may hand out."""
    block = config.servers[cluster.server]
    profile = profile_of(block)
    allowed = limits(block.name, block.settings, host_cpus=cpus)
    memory = max(in_bytes(allowed.memory), in_bytes(SMALLEST.memory))
    store = memory // _STORE_SHARE
    share = max(1, cpus // (len(cluster.nodes) * len(clusters(config))))
    common = (
        f"--num-cpus={max(1, int(allowed.cpus)) if allowed.cpus else share}",
        f"--object-store-memory={store}",
        "--disable-usage-stats",
        "--block",
    )
    started = {
        cluster.head: _head_arguments(cluster),
        **{worker: (f"--address={cluster.head}:{PORT}",) for worker in cluster.workers},
    }
    return {
        name: Service(
            image=image,
            entrypoint=("sh", "-c", _START, "ray", *own, *common),
            user=profile.user or user,
            read_only=profile.is_read_only,
            environment=_environment(block),
            ports=_ports(cluster) if name == cluster.head else (),
            volumes=(),
            depends_on=None if name == cluster.head else joined(cluster),
            healthcheck=_healthcheck(cluster, has_start_interval=has_start_interval),
            mem_limit=f"{memory}b",
            memswap_limit=f"{memory}b",
            shm_size=f"{store * 13 // 10}b",
            tmpfs=("/tmp:size=1g,mode=1777",),
            pids_limit=max(allowed.pids, SMALLEST.pids),
            cpus=allowed.cpus,
            logging=logging,
            labels=labels[name],
        )
        for name, own in started.items()
    }


def joined(cluster: Cluster) -> Mapping[str, Dependency]:
    """Who dials the head waits for it: a client gives up after a while, a worker after a minute."""
    return {cluster.head: Dependency(condition="service_healthy")}


def _head_arguments(cluster: Cluster) -> tuple[str, ...]:
    shown = ("--include-dashboard=false",)
    if cluster.dashboard_port is not None:
        shown = (
            "--include-dashboard=true",
            "--dashboard-host=0.0.0.0",
            f"--dashboard-port={DASHBOARD_PORT}",
        )
    return ("--head", f"--port={PORT}", f"--ray-client-server-port={CLIENT_PORT}", *shown)


def _ports(cluster: Cluster) -> tuple[Port, ...]:
    """Whoever reaches the dashboard may run code: on loopback, whatever `default_host` says."""
    if cluster.dashboard_port is None:
        return ()
    return (Port(target=DASHBOARD_PORT, published=str(cluster.dashboard_port)),)


def _environment(block: ServerBlock) -> Mapping[str, str]:
    ours = {"PYTHONPATH": SERVER_FOLDER} if block.family == "gymctl" else {}
    return {
        **ours,  # tasks import modules beside app.py; NeMo Gym's images say it themselves
        # With it, one new client in ten finds its process dead (ray-project/ray#63202).
        "GRPC_ENABLE_FORK_SUPPORT": "0",
        # Logs lie in memory here: 100 files of 512 MB are Ray's default.
        "RAY_ROTATION_MAX_BYTES": str(8 * 1024**2),
        "RAY_ROTATION_BACKUP_COUNT": "1",
    }


def _healthcheck(cluster: Cluster, *, has_start_interval: bool) -> Healthcheck:
    return Healthcheck(
        test=("CMD", "python", "-c", _PROBE.format(head=cluster.head, port=PORT)),
        # 0.4 CPU seconds each. Without `start_interval` the start would wait for the first of them.
        interval="30s" if has_start_interval else "5s",
        timeout="20s",
        retries=3,
        start_period="600s",
        start_interval="2s" if has_start_interval else None,
    )
