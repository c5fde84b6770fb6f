"""What is checked before anything is built or started: ports, disk, models that containers cannot reach."""

from __future__ import annotations

import os
import re
import shutil
import socket
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gymctl.compose.addresses import HOST_GATEWAY, LOOPBACK, is_loopback_url, published_host
from gymctl.compose.limits import limits
from gymctl.compose.mounts import mounts as wanted_mounts
from gymctl.compose.names import HEAD
from gymctl.compose.profiles import profile_of
from gymctl.compose.ray import clusters
from gymctl.config.model import Config
from gymctl.config.ports import is_free
from gymctl.config.tree.masking import redact
from gymctl.contract.part import HeadStatus
from gymctl.engine import Engine
from gymctl.errors import ConfigError, ConfigErrors, PrerequisiteError
from gymctl.runtime import probe

SMALLEST_DISK = 500 * 1024**2
CONNECT_SECONDS = 1.0
DESCRIPTORS_PER_CONNECTION = 6
"""Of docker-proxy: two sockets and two pipes. When they run out it dies for good, and the port with it."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A port that must be ours, and whose it is."""

    server: str
    host: str
    port: int

    setting: str | None = None
    """The key that names it, when it is no server's own."""

    @property
    def key(self) -> str:
        if self.setting is not None:
            return self.setting
        return "head_server.port" if self.server == HEAD else f"{self.server}….port"


def complete(config: Config) -> None:
    """Every field that a server cannot start without is set, and each block's `resources` can be had."""
    errors = [*(error for _, error in config.unstartable), *_resources(config)]
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise ConfigErrors(errors)


def _resources(config: Config) -> Iterator[ConfigError]:
    for block in config.servers.values():
        try:
            profile_of(block)
            limits(block.name, block.settings, host_cpus=1)
        except ConfigError as error:
            yield error


async def ports(config: Config, *, own: Collection[int] = ()) -> None:
    """All ports that the config asks for are free, or held by this project itself (`own`)."""
    wanted = [Wanted(HEAD, published_host(config.head_host), config.head_port)]
    wanted += [
        Wanted(name, published_host(block.host), block.port)
        for name, block in config.servers.items()
        if block.is_port_explicit
    ]
    wanted += [
        Wanted(cluster.head, LOOPBACK, cluster.dashboard_port, "ray_dashboard_port")
        for cluster in clusters(config)
        if cluster.dashboard_port is not None
    ]
    taken = [item for item in wanted if item.port not in own and not is_free(item.host, item.port)]
    if not taken:
        return
    holders = [await holder(item.host, item.port) for item in taken]
    raise port_taken(list(zip(taken, holders, strict=True)))


def mounts(config: Config) -> None:
    """Every file and folder that a server wants to read is there."""
    for name, block in config.servers.items():
        for mount in wanted_mounts(name, block.settings):
            if not Path(mount.source).exists():
                raise PrerequisiteError(f"{mount.source} does not exist", where=f"{name}….mounts")


def captures(config: Config, owner: tuple[int, int] | None) -> None:
    """The folders of recorded model calls are there, and servers may write into them. owner: uid and gid that
    servers run as, where that is another user than ours; a folder that is made here is given to them."""
    for folder in map(Path, config.settings.capture_folders):
        try:
            is_new = not folder.exists()
            folder.mkdir(parents=True, exist_ok=True)
            if is_new and owner is not None:
                os.chown(folder, *owner)
            status = folder.stat()
        except OSError as error:
            raise PrerequisiteError(
                f"model calls cannot be recorded: {error.strerror}",
                where=str(folder),
                hint="name another place with ++model_call_capture_dir=…",
            ) from error
        if not _may_write(folder, status, owner):
            uid, gid = owner or (os.getuid(), os.getgid())
            raise PrerequisiteError(
                f"model calls cannot be recorded: user {uid} may not write here",
                where=str(folder),
                hint=f"chown {uid}:{gid} {folder}",
            )


def _may_write(folder: Path, status: os.stat_result, owner: tuple[int, int] | None) -> bool:
    if owner is None:
        return os.access(folder, os.W_OK | os.X_OK)
    uid, gid = owner
    shift = 6 if status.st_uid == uid else 3 if status.st_gid == gid else 0
    return (status.st_mode >> shift) & 0o3 == 0o3


def port_taken(rows: list[tuple[Wanted, Holder]]) -> PrerequisiteError:
    first, holder = rows[0]
    others = [f"port {item.port} of {_whose(item)} is in use by {other}" for item, other in rows[1:]]
    free = "++head_server.port=…" if first.server == HEAD else "another `port`, or none to get a free one"
    stop = f"gymctl down {holder.project}, or " if holder.project else ""
    return PrerequisiteError(
        f"port {first.port} of {_whose(first)} is in use by {holder}",
        where=first.key,
        details=others,
        hint=f"{stop}choose {free}",
    )


def _whose(item: Wanted) -> str:
    return "the head" if item.server == HEAD else f"`{item.server}`"


@dataclass(frozen=True, slots=True)
class Holder:
    """Who listens on a port: one of gymctl's projects, or a process."""

    project: str | None = None
    process: str | None = None

    def __str__(self) -> str:
        if self.project:
            return f"project `{self.project}`"
        return self.process or "another program"


async def holder(host: str, port: int) -> Holder:
    """Ask whoever listens: our servers say their project's name. Else look for the process."""
    url = f"http://{host}:{port}"
    async with probe.client(CONNECT_SECONDS) as session:
        status = await probe.head(session, url, project="")
        if isinstance(status, HeadStatus):
            return Holder(project=status.project)
        for answer in (status, await probe.server(session, url, project="", name="")):
            if match := re.search(r"project `([^`]+)`", answer.stranger):
                return Holder(project=match[1])
    return Holder(process=_process_at(port))


def _process_at(port: int) -> str | None:
    """`python (process 4711)`, on Linux and for processes that this user may look at."""
    inodes = {f"socket:[{inode}]" for inode in _listening(port)}
    if not inodes:
        return None
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if any(str(link.readlink()) in inodes for link in (entry / "fd").iterdir()):
                name = (entry / "comm").read_text().strip()
                return f"`{name}` (process {entry.name})"
        except OSError:
            continue
    return None


def _listening(port: int) -> Iterator[str]:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9]


# ------------------------------------------------------------------------------------------- with an engine


def engine(config: Config, engine: Engine) -> None:
    """Room for images and containers, and model endpoints that containers can reach. Blocking."""
    info = engine.api.info()
    free = free_disk(info)
    if free is not None and free < SMALLEST_DISK:
        raise PrerequisiteError(
            f"only {free / 1024**2:.0f} MB are free for images and containers",
            where=info.get("DockerRootDir"),
            hint="`docker system df` shows what takes the room, `docker builder prune` frees build caches",
        )
    _reachable_models(config, engine)


def ray_address(config: Config) -> None:
    """A server in a container is no Ray node, so it can only be a client: of `ray://HOST:10001`."""
    address = config.settings.ray.address
    users = [name for name, block in config.servers.items() if block.uses_ray]
    if address is None or not users or address.startswith("ray://"):
        return
    key = "ray_head_node_address"
    host = address.rpartition("://")[2].partition(":")[0]
    raise ConfigError(
        f"`{users[0]}` cannot join Ray at {address} from a container, which is no node of that cluster",
        where=str(config.origins.get(key, key)),
        hint=f"`{key}: ray://{host or 'HOST'}:10001` is the port for clients; without the key, gymctl starts "
        "Ray beside the servers",
    )


def free_disk(info: dict[str, Any]) -> int | None:
    """Free bytes where the engine keeps its images; None when that is on another machine."""
    root = Path(str(info.get("DockerRootDir", "")))
    try:
        return shutil.disk_usage(root).free if root.is_dir() else None
    except OSError:
        return None


def _reachable_models(config: Config, engine: Engine) -> None:
    """A server on this machine's 127.0.0.1 cannot be reached from a container on Linux: say so now, instead
    of waiting for it. One that does not answer yet is none of our business; the wait deals with it."""
    for key, url in _model_urls(config):
        port = _port(url)
        if port is None or not is_loopback_url(url) or not _connects(LOOPBACK, port):
            continue
        gateway = _own_gateway(engine)
        if gateway is None or _connects(gateway, port):
            continue
        origin = config.origins.get(key)
        raise ConfigError(
            f"{redact(url, config.secrets)} answers on {LOOPBACK} only, where containers cannot reach it",
            where=f"{origin} ({key})" if origin is not None else key,
            hint=f"let that server listen on 0.0.0.0 or {gateway} (containers call it {HOST_GATEWAY}), "
            "or use --runtime process",
        )


def _model_urls(config: Config) -> Iterator[tuple[str, str]]:
    for name, block in config.servers.items():
        if block.kind != "responses_api_models":
            continue
        for key, value in block.settings.items():
            if key.endswith("base_url"):
                urls = value if isinstance(value, list) else [value]
                path = f"{name}.{block.kind}.{block.implementation}.{key}"
                yield from ((path, url) for url in urls if isinstance(url, str) and url)


def _port(url: str) -> int | None:
    try:
        parts = urlsplit(url)
        return parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return None


def _own_gateway(engine: Engine) -> str | None:
    """What `host-gateway` stands for, when it is an address of this very machine (not of a VM)."""
    bridges = engine.api.api.networks(names=["bridge"])
    settings = [row for bridge in bridges for row in (bridge.get("IPAM") or {}).get("Config") or ()]
    gateway = next((str(row["Gateway"]) for row in settings if row.get("Gateway")), None)
    return gateway if gateway is not None and _is_own(gateway) else None


def _is_own(address: str) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe_socket:
        try:
            probe_socket.bind((address, 0))
        except OSError:
            return False
        return True


def _connects(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=CONNECT_SECONDS):
            return True
    except OSError:
        return False


def proxy_capacity() -> int | None:
    """How many connections a published port survives when docker-proxy serves it; None: no proxy, or unknown.

    Only a local dockerd can be looked at: its command line, its daemon.json, its descriptor limit.
    """
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "comm").read_text().strip() != "dockerd":
                continue
            command = (entry / "cmdline").read_bytes().decode(errors="replace")
            limit = re.search(r"Max open files\s+(\d+)", (entry / "limits").read_text())
        except OSError:
            continue
        if "--userland-proxy=false" in command or _is_switched_off():
            return None
        return int(limit[1]) // DESCRIPTORS_PER_CONNECTION if limit else None
    return None


def _is_switched_off() -> bool:
    try:
        text = Path("/etc/docker/daemon.json").read_text("utf-8")
    except OSError:
        return False
    return re.search(r'"userland-proxy"\s*:\s*false', text) is not None
