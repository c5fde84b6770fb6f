"""Talks to the Docker engine: which one, is it new enough, and long steps that end when they are cancelled.

Nothing else in gymctl runs `docker` or opens the engine's socket. Three ways, each for what it is good at:

    Engine.run      the CLI as a child in its own session, for what takes long (build, pull, compose up):
                    streams lines, and is gone with all its children when the caller is cancelled
    Engine.api      docker-py, milliseconds a call: images, inspect, events, logs, stats, digests
    Engine.cli      python-on-whales, for short calls whose answer is wanted as objects

All three use the engine that the `docker` command would: DOCKER_HOST, DOCKER_CONTEXT, the current context.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymctl.errors import PrerequisiteError
from gymctl.paths import PACKAGE
from gymctl.programs import KEPT_LINES, Finished, mask, run_command

if TYPE_CHECKING:
    import docker
    import python_on_whales

OLDEST_API = (1, 41)
"""Engine 20.10."""
START_INTERVAL_API = (1, 44)
"""Engine 25: from here on a health check may have a `start_interval`; older engines refuse the file."""
FIXED_TIMES_API = (1, 42)
"""Engine 23: its BuildKit writes SOURCE_DATE_EPOCH into an image; older ones write the time of day."""
PLATFORM_VARIABLE = "DOCKER_DEFAULT_PLATFORM"
DEFAULT_HOST = "unix:///var/run/docker.sock"
_PLUGIN_PARENTS = ("/usr/local/lib", "/usr/local/libexec", "/usr/lib", "/usr/libexec")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the engine is, found as the `docker` command finds it."""

    context: str
    host: str

    @classmethod
    def active(cls, environ: Mapping[str, str] = os.environ) -> Endpoint:
        if environ.get("DOCKER_HOST"):
            return cls("default", environ["DOCKER_HOST"])
        folder = _config_folder(environ)
        name = environ.get("DOCKER_CONTEXT") or str(
            _json(folder / "config.json").get("currentContext") or "default"
        )
        if name == "default":
            return cls(name, DEFAULT_HOST)
        meta = folder / "contexts" / "meta" / hashlib.sha256(name.encode()).hexdigest() / "meta.json"
        host = _json(meta).get("Endpoints", {}).get("docker", {}).get("Host")
        if not host:
            hint = "`docker context ls` lists the contexts, `docker context use default` goes back"
            raise PrerequisiteError(f"the Docker context `{name}` has no engine address", hint=hint)
        return cls(name, host)

    @property
    def socket_path(self) -> str | None:
        return self.host.removeprefix("unix://") if self.host.startswith("unix://") else None


def _config_folder(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("DOCKER_CONFIG") or Path.home() / ".docker")


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def answers(timeout: float = 2.0) -> bool:
    """Does an engine answer? Milliseconds on a local socket; never raises. `--runtime auto` asks this."""
    if shutil.which("docker") is None:
        return False
    try:
        endpoint = Endpoint.active()
    except PrerequisiteError:
        return False
    if endpoint.socket_path is not None:
        return _ping(endpoint.socket_path, timeout)
    import docker.errors  # a remote engine: TLS and ssh are docker-py's business

    try:
        return bool(_client(endpoint, timeout).ping())
    except (docker.errors.DockerException, OSError):
        return False


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _ping(path: str, timeout: float) -> bool:
    connection = _UnixConnection(path, timeout)
    try:
        connection.request("GET", "/_ping")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _client(endpoint: Endpoint, timeout: float = 60.0) -> docker.DockerClient:
    import docker
    import docker.context

    if os.environ.get("DOCKER_HOST"):
        return docker.from_env(timeout=int(timeout))
    if endpoint.context == "default":
        return docker.DockerClient(base_url=endpoint.host, timeout=int(timeout))
    context = docker.context.ContextAPI.get_context(endpoint.context)
    tls = context.TLSConfig if context is not None else None
    return docker.DockerClient(base_url=endpoint.host, tls=tls or False, timeout=int(timeout))


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What the engine says of itself."""

    version: str
    api: tuple[int, int]
    architecture: str

    @property
    def has_start_interval(self) -> bool:
        return self.api >= START_INTERVAL_API

    @property
    def builds_reproducibly(self) -> bool:
        return self.api >= FIXED_TIMES_API

    @property
    def platform(self) -> str:
        """`linux/amd64`: what it runs without emulation."""
        return f"linux/{self.architecture}"


class Engine:
    """An engine that answers and is new enough, with Compose v2 and buildx beside it. Made by `connect`."""

    def __init__(self, endpoint: Endpoint, facts: EngineFacts, platform: str | None = None) -> None:
        self.endpoint = endpoint
        self.facts = facts
        self.platform = platform or os.environ.get(PLATFORM_VARIABLE) or facts.platform
        """What images are made for and containers run as, the same in every command."""

    @classmethod
    def connect(cls, platform: str | None = None) -> Engine:
        """The active engine. PrerequisiteError says what is missing and what to do.

        platform: default DOCKER_DEFAULT_PLATFORM, as of `docker` itself, then the engine's own.
        """
        if shutil.which("docker") is None:
            raise PrerequisiteError("Docker is not installed", hint=_install_hint())
        endpoint = Endpoint.active()
        if endpoint.socket_path is not None and not _ping(endpoint.socket_path, 10.0):
            raise _no_answer(endpoint)
        engine = cls(endpoint, _facts(endpoint), platform)
        if engine.facts.api < OLDEST_API:
            what = f"Docker Engine {engine.facts.version} is too old; 20.10 or later is needed"
            raise PrerequisiteError(what, hint=_install_hint())
        for plugin, name in (("compose", "Compose v2"), ("buildx", "buildx")):
            if not has_plugin(plugin):
                raise PrerequisiteError(
                    f"`docker {plugin}` does not work: {name} is missing", hint=_install_hint()
                )
        return engine

    @property
    def is_emulating(self) -> bool:
        """Whether containers are for another processor than the engine's: many times slower."""
        return self.platform != self.facts.platform

    @property
    def builder(self) -> str:
        """The builder inside the engine. Another one (`docker buildx use`) knows no local images."""
        return self.endpoint.context

    @cached_property
    def api(self) -> docker.DockerClient:
        """docker-py on the same engine. Blocking: call it through `asyncio.to_thread`."""
        return _client(self.endpoint)

    @cached_property
    def cli(self) -> python_on_whales.DockerClient:
        """python-on-whales on the same engine. Blocking, 60 ms and more a call."""
        import python_on_whales

        return python_on_whales.DockerClient(
            context=None if os.environ.get("DOCKER_HOST") else self.endpoint.context
        )

    @cached_property
    def has_containerd_store(self) -> bool:
        """Whether it calls images by their manifests, not by their configurations (images/stores.py)."""
        found = self.api.api.info().get("DriverStatus") or ()
        return any("io.containerd.snapshotter" in str(value) for _, value in found)

    def plugin_versions(self) -> dict[str, str]:
        """Versions of Compose and buildx as they print them; for `doctor`."""
        return {"compose": self.cli.compose.version(), "buildx": self.cli.buildx.version()}

    def image_id(self, reference: str) -> str | None:
        """The id of a local image; None when the engine has no such image, or has it for another platform."""
        import docker.errors

        try:
            image = self.api.api.inspect_image(reference)
        except docker.errors.ImageNotFound:
            return None
        return str(image["Id"]) if platform_of(image) == self.platform else None

    def image_labels(self, reference: str) -> Mapping[str, str]:
        """What a local image says of itself; nothing when it is not there."""
        import docker.errors

        try:
            return dict(self.api.api.inspect_image(reference)["Config"].get("Labels") or {})
        except docker.errors.ImageNotFound:
            return {}

    def image_variable(self, reference: str, name: str) -> str | None:
        """An environment variable that a local image sets; None when it does not, or is not there."""
        import docker.errors

        try:
            lines = self.api.api.inspect_image(reference)["Config"].get("Env") or ()
        except docker.errors.ImageNotFound:
            return None
        return next((line.partition("=")[2] for line in lines if line.startswith(f"{name}=")), None)

    async def run(
        self,
        *args: str,
        on_line: Callable[[str], None] | None = None,
        environ: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        secrets: Collection[str] = (),
        keep_lines: int = KEPT_LINES,
    ) -> Finished:
        """Run `docker ARGS` to its end, as `run_command` does."""
        return await run_command(
            ("docker", *args),
            on_line=on_line,
            environ=environ,
            cwd=cwd,
            secrets=secrets,
            keep_lines=keep_lines,
            hint=_install_hint(),
        )


def platform_of(image: Mapping[str, Any]) -> str:
    """`linux/amd64`, `linux/arm64`, `linux/arm/v7`: of an image as the engine's `inspect` shows it."""
    architecture, variant = str(image["Architecture"]), str(image.get("Variant") or "")
    # The variant of arm64 is v8 or left out: the same machines.
    is_told = variant and architecture != "arm64"
    return "/".join([str(image["Os"]), architecture, *([variant] if is_told else [])])


def _facts(endpoint: Endpoint) -> EngineFacts:
    import docker.errors

    try:
        answer = _client(endpoint).api.version(api_version=False)
    except (docker.errors.DockerException, OSError):
        raise _no_answer(endpoint) from None
    major, minor = (int(part) for part in str(answer["ApiVersion"]).split(".")[:2])
    return EngineFacts(str(answer["Version"]), (major, minor), str(answer.get("Arch", "")))


def _no_answer(endpoint: Endpoint) -> PrerequisiteError:
    path = endpoint.socket_path
    if path is not None and Path(path).exists() and not os.access(path, os.W_OK):
        hint = "your user may not use it: `sudo usermod -aG docker $USER`, then log in again"
        return PrerequisiteError("no permission to use the Docker engine", where=path, hint=hint)
    return PrerequisiteError("no Docker engine answers", where=mask(endpoint.host), hint=_install_hint())


def _install_hint() -> str:
    if (PACKAGE.parent / "Makefile").is_file():
        return "`make engine` installs and starts it on Debian and Ubuntu; elsewhere install Docker yourself"
    return "install or start Docker Engine (20.10 or later, with Compose v2 and buildx) or Docker Desktop"


def has_plugin(name: str) -> bool:
    """Is a CLI plugin there? Looks where `docker` looks, which is 100 times cheaper than running it."""
    folder = _config_folder(os.environ)
    extra = _json(folder / "config.json").get("cliPluginsExtraDirs") or ()
    parents = (Path(parent) / "docker" / "cli-plugins" for parent in _PLUGIN_PARENTS)
    places = (folder / "cli-plugins", *(Path(str(place)) for place in extra), *parents)
    files = (place / f"docker-{name}{suffix}" for place in places for suffix in ("", ".exe"))
    if any(os.access(file, os.X_OK) for file in files):
        return True
    # A packaging we do not know: let the command itself tell.
    return subprocess.run(["docker", name, "version"], capture_output=True, check=False).returncode == 0
