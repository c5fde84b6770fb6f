"""Where local processes get their packages: one cached uv environment for each set of requirements.

    <cache>/envs/<key>/           key = Python, base.lock, requirements.txt, requirements-nodeps.txt
    <cache>/sdk/<digest>-<python>/gymctl   the container half of gymctl, on PYTHONPATH of every server

Both are made beside their place and renamed into it, under a lock: what exists is complete.
"""

from __future__ import annotations

import asyncio
import compileall
import contextlib
import fcntl
import hashlib
import os
import platform
import py_compile
import re
import secrets
import shutil
import sys
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gymctl.config.model import Config
from gymctl.errors import EngineError, GymctlError
from gymctl.images import failure, mismatch
from gymctl.images import requirements as locks
from gymctl.images.context import sdk_context, server_context
from gymctl.images.secrets import BuildSecrets
from gymctl.paths import bundled, cache_dir
from gymctl.programs import Finished, run_command
from gymctl.runtime import cache, tasks
from gymctl.runtime.stack import Reporter

REQUIREMENTS = "requirements.txt"
NO_DEPENDENCIES = "requirements-nodeps.txt"
SCHEME = "1"
"""Part of every key; another number when environments are built in another way."""
AT_ONCE = 2
KEPT_LINES = 5000
_PATH = re.compile(r"\s*(-e\s+|--editable[ =])?(file:)?\.{1,2}/")


@dataclass(frozen=True, slots=True)
class Recipe:
    """What one environment is made from."""

    servers: tuple[str, ...]
    lock: Path
    requirements: Path | None = None
    no_dependencies: Path | None = None
    hashed: Path | None = None
    """The server's requirements.lock: then it alone is installed."""
    folder: Path | None = None
    """The server's, where a requirement is a path in it: its content then belongs to the key."""

    @property
    def key(self) -> str:
        total = hashlib.sha256()
        python = (SCHEME, platform.python_version(), platform.machine(), sys.base_prefix)
        total.update("\0".join(python).encode())
        for file in (self.lock, self.requirements, self.no_dependencies, self.hashed):
            total.update(b"\0" + (b"" if file is None else file.read_bytes()))
        if self.folder is not None:
            total.update(f"\0{self.folder}\0{server_context(self.folder).digest()}".encode())
        return total.hexdigest()[:20]


@dataclass(frozen=True, slots=True)
class Environments:
    """Ready to run: an interpreter for each server and for the head, and the folder for PYTHONPATH."""

    pythons: Mapping[str, Path]
    head: Path
    sdk: Path


def recipes(config: Config) -> list[Recipe]:
    """One for the head, and one for each server; equal ones have equal keys."""
    lock = bundled() / "server_images" / "base.lock"
    found = [Recipe(servers=(), lock=lock)]
    for name, block in config.servers.items():
        requirements, no_dependencies = block.folder / REQUIREMENTS, block.folder / NO_DEPENDENCIES
        if not requirements.is_file():
            requirements = block.folder / "pyproject.toml"
        found.append(
            Recipe(
                servers=(name,),
                lock=lock,
                requirements=requirements if _says_something(requirements) else None,
                no_dependencies=no_dependencies if _says_something(no_dependencies) else None,
                hashed=locks.locked(block.folder) if block.family == "gymctl" else None,
                folder=block.folder if _names_a_path(requirements, no_dependencies) else None,
            )
        )
    return found


async def ensure(config: Config, reporter: Reporter) -> Environments:
    """Build what is missing. Raises EngineError with the server and the lines that tell what failed, and
    IntegrityError for a package that has another hash than its lock names."""
    sdk = await asyncio.to_thread(staged_sdk)
    by_key: dict[str, Recipe] = {}
    keys: dict[str, str] = {}
    for recipe in recipes(config):
        known = by_key.get(recipe.key)
        by_key[recipe.key] = recipe if known is None else _merged(known, recipe)
        keys.update(dict.fromkeys(recipe.servers or ("",), recipe.key))
    missing = {key: recipe for key, recipe in by_key.items() if not _folder(key).is_dir()}
    await _build_all(missing, BuildSecrets.of(os.environ, config.settings.build), config.secrets, reporter)
    for path in (sdk, *map(_folder, by_key)):
        cache.used(path)
    built = f", {len(missing)} built" if missing else ""
    reporter.step("environments", f"{len(by_key)} in use{built}")
    return Environments(
        pythons={name: _python(_folder(keys[name])) for name in config.servers},
        head=_python(_folder(keys[""])),
        sdk=sdk,
    )


def staged_sdk() -> Path:
    """The container half of gymctl, copied and compiled once for each content and Python.

    Compiled here, as in an image: where PYTHONDONTWRITEBYTECODE is set, every start would do it again.
    """
    context = sdk_context()
    target = cache_dir() / "sdk" / f"{context.digest()[:20]}-{sys.implementation.cache_tag}"
    if not target.is_dir():
        temporary = _beside(target)
        context.copy_to(temporary)
        unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
        compileall.compile_dir(
            temporary, quiet=2, stripdir=temporary, prependdir=target, invalidation_mode=unchecked
        )
        _rename(temporary, target)
    return target


def _says_something(file: Path) -> bool:
    """Whether a requirements file asks for anything: an empty one shares the base environment."""
    if not file.is_file():
        return False
    lines = file.read_text("utf-8").splitlines()
    return any(line.strip() and not line.strip().startswith("#") for line in lines)


def _names_a_path(*files: Path) -> bool:
    """Whether a requirement is a package in the server's own folder: `./mine`, `-e ./mine`."""
    lines = [line for file in files if file.is_file() for line in file.read_text("utf-8").splitlines()]
    return any(_PATH.match(line) for line in lines)


def _merged(known: Recipe, other: Recipe) -> Recipe:
    return replace(known, servers=(*known.servers, *other.servers))


def _folder(key: str) -> Path:
    return cache_dir() / "envs" / key


def _python(folder: Path) -> Path:
    return folder / "bin" / "python"


async def _build_all(
    missing: Mapping[str, Recipe], network: BuildSecrets, redacted: Collection[str], reporter: Reporter
) -> None:
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(key: str, recipe: Recipe) -> None:
        async with slots, _locked(key, reporter):
            if not _folder(key).is_dir():
                reporter.progress(f"environments: installing packages for {_whose(recipe)}")
                await _build(_folder(key), recipe, network, redacted)

    async with tasks.group() as group:
        for key, recipe in missing.items():
            group.create_task(one(key, recipe))


async def _build(target: Path, recipe: Recipe, network: BuildSecrets, redacted: Collection[str]) -> None:
    """network: the same CA bundle, index and proxies as an image's build."""
    for stale in target.parent.glob(f".{target.name}.*"):
        await asyncio.to_thread(shutil.rmtree, stale, ignore_errors=True)
    temporary = _beside(target)
    python = str(_python(temporary))
    environ = {"VIRTUAL_ENV": "", **network.uv_environ}
    install = ("pip", "install", "--compile-bytecode", "--python", python)
    steps = [
        ("venv", "--relocatable", "--no-python-downloads", "--python", sys.executable, str(temporary)),
        (*install, "--require-hashes", "-r", str(recipe.lock)),
    ]
    if recipe.hashed is not None:
        steps.append((*install, *locks.INSTALL.split(), "-r", str(recipe.hashed)))
    if recipe.requirements is not None:
        is_met = ("--offline",) if recipe.hashed is not None else ()
        steps.append((*install, *is_met, "-r", str(recipe.requirements)))
    if recipe.hashed is None and recipe.no_dependencies is not None:
        steps.append((*install, "--no-deps", "-r", str(recipe.no_dependencies)))
    try:
        for step in steps:
            # In the cache's folder: a uv.toml or pyproject.toml of the user's folder must not decide this.
            # Where a requirement is a path, it is meant from the server's folder, as in an image.
            done = await run_command(
                (locks.uv(), "--no-progress", *step),
                environ=environ,
                cwd=recipe.folder or target.parent,
                secrets={*redacted, *network.values},
                keep_lines=KEPT_LINES,
            )
            if done.exit_code != 0:
                raise _failed(recipe, done)
        _rename(temporary, target)
    finally:
        if temporary.exists():
            await asyncio.shield(asyncio.to_thread(shutil.rmtree, temporary, ignore_errors=True))


def _failed(recipe: Recipe, done: Finished) -> GymctlError:
    noise = (
        "Using CPython",
        "Using Python",
        "Creating virtual",
        "Activate with",
        "Resolved ",
        "Prepared ",
        "Downloading ",
    )
    lines = [line for line in done.last_lines if line.strip() and not line.strip().startswith(noise)]
    if found := mismatch.find(done.last_lines):
        is_own = recipe.hashed is not None and str(recipe.hashed) in done.command
        command = locks.COMMAND.format("NAME") if is_own else None
        return mismatch.refusal(
            found,
            whose=_whose(recipe),
            where=str(recipe.hashed if is_own else recipe.lock),
            hint=mismatch.hint_for("that file", command),
            details=failure.excerpt(lines),
        )
    file = recipe.no_dependencies if "--no-deps" in done.command else recipe.requirements
    return EngineError(
        f"the packages of {_whose(recipe)} cannot be installed (uv ended with {done.exit_code})",
        where=str(file or recipe.lock),
        details=failure.excerpt(lines),
        hint=failure.hint_for(lines)
        or ("check the network" if file is None else "correct that file; nothing half installed is kept"),
    )


def _whose(recipe: Recipe) -> str:
    return ", ".join(f"`{name}`" for name in recipe.servers) or "the head"


@contextlib.asynccontextmanager
async def _locked(key: str, reporter: Reporter) -> AsyncIterator[None]:
    """Two projects that need one environment build it once."""
    path = _folder(f".{key}-lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                reporter.progress("environments: another gymctl builds the same one")
                await asyncio.sleep(0.1)
        yield
    finally:
        os.close(descriptor)


def _beside(target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    return target.with_name(f".{target.name}.{secrets.token_hex(4)}")


def _rename(temporary: Path, target: Path) -> None:
    """Into place; another process may have been faster with the same content."""
    try:
        temporary.rename(target)
    except OSError:
        if not target.is_dir():
            raise
        shutil.rmtree(temporary, ignore_errors=True)
