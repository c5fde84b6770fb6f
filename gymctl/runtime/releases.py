"""A published package as a search root: `--search-dir nemo-gym==0.7.0`, fetched once into the cache.

    <cache>/releases/nemo-gym-0.7.0/    the wheel, unpacked: resources_servers/, benchmarks/, …

The user's index is asked for the hashes of that version, and a file with another one is refused. Nothing of
the package runs, and nothing that it asks for is installed: its servers get that in their images.
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from gymctl.config.model import BuildSettings
from gymctl.errors import ConfigError, GymctlError, PrerequisiteError, UsageError
from gymctl.images import mismatch
from gymctl.images.secrets import BuildSecrets
from gymctl.paths import cache_dir
from gymctl.programs import Finished, run_command
from gymctl.runtime import cache

PYTHON = "3.13.18"
"""A package may ask for a newer Python than ours; its files are only looked at."""
_REQUIREMENT = re.compile(r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)==([A-Za-z0-9.!+_-]+)")
_NO_VERSION = re.compile(r"there is no version of|not found in the package registry")
FLAG = "--search-dir"
ASKED, LOCKED, PACKAGE = "asked.txt", "locked.txt", "package"


def folders(search_dir: Iterable[str], tell: Callable[[str], None]) -> list[str]:
    """The entries of `--search-dir`, with a folder in place of every `NAME==VERSION`.

    Fetches what the cache does not hold. Raises UsageError for a version that does not exist, and
    PrerequisiteError for one that cannot be had, IntegrityError for a file that is not what the index says.
    """
    return [str(_folder(entry, tell)) if _is_requirement(entry) else entry for entry in search_dir]


def _is_requirement(entry: str) -> bool:
    return _REQUIREMENT.fullmatch(entry) is not None and not Path(entry).exists()


def _folder(requirement: str, tell: Callable[[str], None]) -> Path:
    name, _, version = requirement.partition("==")
    target = cache_dir() / "releases" / f"{re.sub(r'[-_.]+', '-', name).lower()}-{version}"
    if not target.is_dir():
        tell(f"fetching {requirement}")
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as side:
            (Path(side) / ASKED).write_text(f"{requirement}\n")
            asyncio.run(_unpack(requirement, Path(side)))
            if not target.is_dir():  # else somebody was faster
                (Path(side) / PACKAGE).rename(target)
    cache.used(target)
    return target


async def _unpack(requirement: str, folder: Path) -> None:
    options = ("--no-deps", "--only-binary", ":all:", "--python-version", PYTHON)
    await _uv(requirement, folder, "compile", "--generate-hashes", *options, ASKED, "-o", LOCKED)
    # Copied: uv's own cache must not change with a file that is edited here.
    where = ("--link-mode", "copy", "--target", PACKAGE)
    await _uv(requirement, folder, "install", "--require-hashes", *options, *where, "-r", LOCKED)


async def _uv(requirement: str, folder: Path, *arguments: str) -> None:
    import uv

    network = BuildSecrets.of(os.environ, _settings())
    environ = {"UV_PYTHON_DOWNLOADS": "never", **network.uv_environ}
    command = (uv.find_uv_bin(), "--no-progress", "--no-config", "pip", *arguments)
    done = await run_command(command, environ=environ, cwd=folder, secrets=network.values)
    if done.exit_code != 0:
        raise _failed(requirement, done)


def _settings() -> BuildSettings:
    """Of env.yaml: other files are found with what is fetched here. Mistakes are told when all is read."""
    from pydantic import ValidationError

    from gymctl.config.checks import build_keys
    from gymctl.config.sources import Selection, bare
    from gymctl.config.tree.origins import Origins

    try:
        said = bare(Selection(), keys=("build",)).document.get("build")
        block = build_keys.BuildKeys.model_validate({} if said is None else said)
    except (ConfigError, ValidationError):
        return BuildSettings()
    return build_keys.settings(block, Origins({}))


def _failed(requirement: str, done: Finished) -> GymctlError:
    lines = [line.strip() for line in done.last_lines if line.strip() and not line.startswith("warning:")]
    name, _, version = requirement.partition("==")
    if found := mismatch.find(lines):
        return mismatch.refusal(
            found,
            whose=f"`{requirement}`",
            where=f"{FLAG} {requirement}",
            hint="what the index says of the file and the file differ: ask whoever keeps the index",
            details=lines[-6:],
        )
    if any(_NO_VERSION.search(line) for line in lines) and "UV_OFFLINE" not in os.environ:
        return UsageError(
            f"the package index has no {name} {version} that could be unpacked",
            where=f"{FLAG} {requirement}",
            hint="name another version, or a folder",
            details=lines[-4:],
        )
    return PrerequisiteError(
        f"{name} {version} cannot be fetched",
        where=f"{FLAG} {requirement}",
        hint="check network, index (UV_DEFAULT_INDEX) and proxies; or unpack its wheel, and name that folder",
        details=lines[-6:],
    )
