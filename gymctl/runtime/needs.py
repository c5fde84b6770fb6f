"""What a server needs and will not find where it runs: told before anything is built or started.

Needs are told from text, which can mislead: only those without which a server cannot do its work are refused,
and `start_anyway` makes warnings of them.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal

from gymctl.compose import limits
from gymctl.config.model import Config, ServerBlock
from gymctl.config.needs import settings
from gymctl.config.needs.catalogue import IMAGE_PYTHON, Catalogue
from gymctl.config.needs.need import Need
from gymctl.config.reading.roots import SearchRoots
from gymctl.config.tree.origins import dotted
from gymctl.errors import PrerequisiteError, PrerequisiteErrors
from gymctl.runtime.stack import Reporter

KEYS = {"opensandbox": "OPENSANDBOX_API_KEY", "e2b": "E2B_API_KEY", "daytona": "DAYTONA_API_KEY"}
"""Providers that are a service, and the variable that their configs take the key from."""
PROGRAMS = {"docker": "docker", "apptainer": "apptainer", "enroot": "enroot"}
"""Providers that run a program beside the server."""
WAIVER = "--start-anyway, or ++start_anyway=true, goes on without"
PROVIDER_CONFIGS = "nemo_gym/sandbox/providers/*/configs/*.yaml"
TOLD = ("network", "git", "programs")
MOST_TOLD, LONGEST_TEXT = 3, 50


@dataclass(frozen=True, slots=True)
class World:
    """What servers find where they run."""

    is_container: bool
    gpu: Literal["none", "not the default", "there"]
    python: tuple[int, ...]

    def has(self, program: str) -> bool:
        """In a container there is nothing but the image."""
        return not self.is_container and shutil.which(program) is not None


def of_engine(info: Mapping[str, Any]) -> World:
    """info: what `docker info` says. A container sees a GPU where NVIDIA's runtime is the default one, and
    otherwise where it asks for it."""
    runtimes = [str(name) for name in info.get("Runtimes") or ()]
    devices = [str(device.get("ID")) for device in info.get("DiscoveredDevices") or ()]  # engine 28: CDI
    is_default = str(info.get("DefaultRuntime")).startswith("nvidia")
    is_there = any(name.startswith("nvidia") for name in (*runtimes, *devices))
    return World(
        is_container=True,
        gpu="there" if is_default else "not the default" if is_there else "none",
        python=IMAGE_PYTHON,
    )


def of_machine() -> World:
    is_there = Path("/dev/nvidiactl").exists() or shutil.which("nvidia-smi") is not None
    return World(is_container=False, gpu="there" if is_there else "none", python=sys.version_info[:3])


def check(config: Config, world: World, reporter: Reporter) -> None:
    """Raises PrerequisiteError for a need that is not met, PrerequisiteErrors for several; says what servers
    will fetch. With `start_anyway` everything is only said."""
    errors: list[PrerequisiteError] = []
    catalogue = Catalogue(SearchRoots(config.search_roots), python=world.python)
    for name, block in config.servers.items():
        if not block.folder.is_absolute():
            continue  # a stand-in, which has no folder
        needs = catalogue.of_folder(block.folder, block.entrypoint)
        asks = limits.gpus(block.settings) is not None
        errors += _of_code(name, needs, world, asks_for_gpu=asks)
        if asks and world.gpu == "none":
            errors.append(_asks_in_vain(config, block, world))
        errors += _of_settings(config, block, world)
        _tell(name, needs, reporter)
    if config.settings.start_anyway:
        for error in errors:
            reporter.note(f"warning: {error.what} ({error.where})")
    elif len(errors) == 1:
        raise errors[0]
    elif errors:
        raise PrerequisiteErrors(errors)


def _tell(name: str, needs: tuple[Need, ...], reporter: Reporter) -> None:
    texts: list[str] = []
    for kind in TOLD:
        asked = [_short(need.what) for need in needs if need.kind == kind]
        more = f" and {len(asked) - MOST_TOLD} more" if len(asked) > MOST_TOLD else ""
        if asked:
            texts.append(f"{kind} ({', '.join(asked[:MOST_TOLD])}{more})")
    if texts:
        reporter.step(name, f"may want {', '.join(texts)}")


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"


def _of_code(
    name: str, needs: tuple[Need, ...], world: World, *, asks_for_gpu: bool
) -> Iterator[PrerequisiteError]:
    """asks_for_gpu: its block does, which is looked at by itself."""
    certain = [need for need in needs if need.is_certain]
    gpu = next((need for need in certain if need.kind == "gpu"), None)
    if gpu is not None and world.gpu != "there" and not asks_for_gpu:
        yield PrerequisiteError(
            f"`{name}` needs a GPU ({gpu.what}), {_no_gpu(world)}", where=gpu.where, hint=_gpu(world)
        )
    for need in certain:
        if need.kind == "python":
            version = ".".join(map(str, world.python[:2]))
            yield PrerequisiteError(
                f"`{name}` needs Python {need.what}, and runs on {version}", where=need.where, hint=WAIVER
            )


def _asks_in_vain(config: Config, block: ServerBlock, world: World) -> PrerequisiteError:
    place = _place(config, (*block.path, limits.KEY, "gpus"))
    wanted = limits.gpus(block.settings)
    what = f"`{block.name}` asks for GPUs (`gpus: {wanted}`), {_no_gpu(world)}"
    return PrerequisiteError(what, where=place, hint=_gpu(world))


def _no_gpu(world: World) -> str:
    if world.gpu == "not the default":
        return "and the engine gives none to a container that does not ask for it"
    return "and the engine has none to give" if world.is_container else "and this machine has none"


def _gpu(world: World) -> str:
    if world.gpu == "not the default":
        return f"`resources: {{gpus: 1}}` in its block gives it one; {WAIVER}"
    elsewhere = "serve the model elsewhere and name it with --model-type and --model-url"
    if world.is_container:
        elsewhere = f"install NVIDIA's container toolkit on the engine's machine, or {elsewhere}"
    return f"{elsewhere}; {WAIVER}"


def _of_settings(config: Config, block: ServerBlock, world: World) -> Iterator[PrerequisiteError]:
    for path, value in settings.below(block.settings, block.path):
        if path[-1] == "sandbox_provider" and value:
            problem = _sandbox(config, block, value, world)
        elif path[-1] == "sandbox_host" and world.is_container and _is_loopback(value):
            problem = (
                f"asks a sandbox service at {value}, which in a container is the container itself",
                f"++{dotted(path)}=host.docker.internal means this machine",
            )
        else:
            continue
        if problem is not None:
            what, hint = problem
            yield PrerequisiteError(
                f"`{block.name}` {what}", where=_place(config, path), hint=f"{hint}; {WAIVER}"
            )


def _sandbox(config: Config, block: ServerBlock, value: object, world: World) -> tuple[str, str] | None:
    """What is wrong with the sandbox provider that a block names or holds, and what to do."""
    provider = settings.provider(value, config.document)
    if provider is None:
        name = f"`{value}`" if isinstance(value, str) else "of its own"
        return f"needs a sandbox provider {name}, which no config defines", _provider_configs(config)
    held = config.document.get(value) if isinstance(value, str) else value
    variable = KEYS.get(provider)
    if variable is not None and not _key_of(held, provider):
        return f"has no key for its sandbox provider {provider}", f"set {variable}"
    program = PROGRAMS.get(provider)
    if program is None or world.has(program):
        return None
    if world.is_container:
        return (
            f"runs its sandboxes with {provider}, which is not in its container",
            "choose a provider that is a service, or --runtime process",
        )
    return f"runs its sandboxes with {provider}, which is not installed", f"install {program}"


def _key_of(held: object, provider: str) -> object:
    connection = held.get(provider) if isinstance(held, Mapping) else None
    connection = connection.get("connection") if isinstance(connection, Mapping) else None
    return connection.get("api_key") if isinstance(connection, Mapping) else None


def _provider_configs(config: Config) -> str:
    for root in config.search_roots:
        found = [path.relative_to(root) for path in sorted(root.glob(PROVIDER_CONFIGS))]
        if found:
            services = [path for path in found if path.stem in KEYS] or found
            return f"for example --config {services[0]}; there are {', '.join(path.stem for path in found)}"
    return "a config whose top level defines it"


def _is_loopback(value: object) -> bool:
    try:
        return value == "localhost" or ip_address(str(value)).is_loopback
    except ValueError:
        return False


def _place(config: Config, path: settings.Path) -> str:
    """Who wrote a value; of a mapping: its first leaf, or what is around it."""
    key = dotted(path)
    below = (origin for name, origin in config.origins.items() if name == key or name.startswith(f"{key}."))
    origin = next(below, None)
    return key if origin is None else origin.place
