"""What goes into a build: the files of a context in one order with plain modes, copied and hashed alike."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from gymctl.errors import ConfigError
from gymctl.paths import PACKAGE, bundled

# The container half of gymctl (DESIGN 3): what Dockerfile.base copies, and the process runtime's PYTHONPATH.
SDK_MODULES = ("__init__.py", "connections.py", "deferred.py", "errors.py", "paths.py", "transport.py")
SDK_PACKAGES = ("contract", "metrics", "servers")
SDK_LEFT_OUT = ("metrics/exporters",)

FIXED_TIME = 1754697600
"""When every image was made, as far as it says; seconds since 1970. Else no two builds of one image were
equal. scripts/fixed_times.sh has it too."""

# Never part of an image: tests, caches, environments, and files that hold a user's keys.
_LEFT_OUT = (
    "__pycache__",
    "*.pyc",
    ".*_cache",
    ".cache",
    ".git",
    ".gymctl",
    ".hypothesis",
    ".venv",
    "venv",
    "node_modules",
    ".DS_Store",
    ".env",
    ".env.*",
    "env.yaml",
)
_LEFT_OUT_AT_TOP = ("tests", "results")
_README = "README.md"
_READ_README = ("Dockerfile", "pyproject.toml")
"""Files that may copy it, or name it as a package's description."""
_LEFT_OUT_OF_DATA = ("cache", "*.tmp", "*.partial")


@dataclass(frozen=True, slots=True)
class Context:
    """The files of one build context: place inside the context -> file to copy. Sorted by place."""

    files: Mapping[str, Path]

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(file.stat().st_size for file in self.files.values())

    def digest(self) -> str:
        """sha256 over names, executable bits and bytes; neither order of creation nor file times count."""
        total = hashlib.sha256()
        for place, file in self.files.items():
            with file.open("rb") as stream:
                content = hashlib.file_digest(stream, "sha256").hexdigest()
            total.update(f"{place}\0{_mode(file):o}\0{content}\n".encode("utf-8", "surrogateescape"))
        return total.hexdigest()

    def copy_to(self, target: Path) -> None:
        """Write the files below `target`, readable by any user (a checkout may come from umask 077), with
        times that depend on nothing but their content: a COPY takes them into the image."""
        target.mkdir(parents=True, exist_ok=True)
        for place, file in self.files.items():
            copy = target / place
            for folder in reversed(copy.relative_to(target).parents):
                made = target / folder
                if not made.is_dir():
                    made.mkdir()
                made.chmod(0o755)
            shutil.copyfile(file, copy)
            copy.chmod(_mode(file))
            os.utime(copy, ns=(_time_of(copy), _time_of(copy)))
        for folder in {parent for place in self.files for parent in PurePosixPath(place).parents}:
            os.utime(target / folder, (FIXED_TIME, FIXED_TIME))


def _mode(file: Path) -> int:
    return 0o755 if file.stat().st_mode & 0o100 else 0o644


def _time_of(file: Path) -> int:
    """Nanoseconds since 1970, before FIXED_TIME. Another one for other content: BuildKit takes a file of the
    same place, size and time as in the last context that it was sent, of whichever image, for that file."""
    with file.open("rb") as stream:
        number = int.from_bytes(hashlib.file_digest(stream, "sha256").digest()[:8], "big")
    return FIXED_TIME * 10**9 - number % 10**17  # three years


def _sorted(files: Iterator[tuple[str, Path]]) -> Context:
    return Context(dict(sorted(files)))


def server_context(folder: Path) -> Context:
    """What of a server folder goes into its image. The README is for people and changes no image, unless the
    build itself reads it."""
    files = dict(folder_context(folder).files)
    readers = (files[name] for name in _READ_README if name in files)
    if not any(_README in file.read_text("utf-8", "replace") for file in readers):
        files.pop(_README, None)
    return Context(files)


def folder_context(folder: Path) -> Context:
    """The files of a server's or benchmark's folder. Links are followed: what they point at is copied."""
    if not folder.is_dir():
        raise ConfigError(f"no such server folder: {folder}")
    return _sorted(_walk(folder, PurePosixPath(), (folder.resolve(),)))


def checkout_files(root: Path, below: str = "nemo-gym") -> Iterator[tuple[str, Path]]:
    """All files of a source tree that a package may be built from, as `<below>/…`."""
    for place, file in _walk(root, PurePosixPath(), (root.resolve(),)):
        yield f"{below}/{place}", file


def _walk(folder: Path, place: PurePosixPath, inside: tuple[Path, ...]) -> Iterator[tuple[str, Path]]:
    for entry in folder.iterdir():
        at = place / entry.name
        if _is_left_out(at):
            continue
        if entry.is_dir():
            real = entry.resolve()
            if real not in inside:  # a link to a folder above would never end
                yield from _walk(entry, at, (*inside, real))
        elif entry.is_file():
            yield str(at), entry


def _is_left_out(place: PurePosixPath) -> bool:
    patterns: tuple[str, ...] = _LEFT_OUT
    if len(place.parts) == 1:
        patterns += _LEFT_OUT_AT_TOP
    elif place.parts[0] == "data":
        patterns += _LEFT_OUT_OF_DATA
    return any(fnmatch(place.name, pattern) for pattern in patterns)


def _sdk_files() -> Iterator[tuple[str, Path]]:
    for name in SDK_MODULES:
        yield f"gymctl/{name}", PACKAGE / name
    for package in SDK_PACKAGES:
        for file in (PACKAGE / package).rglob("*"):
            place = file.relative_to(PACKAGE).as_posix()
            is_left_out = any(place.startswith(f"{left_out}/") for left_out in SDK_LEFT_OUT)
            if file.is_file() and "__pycache__" not in file.parts and not is_left_out:
                yield f"gymctl/{place}", file


def sdk_context() -> Context:
    """The container half of gymctl as `gymctl/…`."""
    return _sorted(_sdk_files())


def stage_sdk(target: Path) -> Path:
    """Copy the container half to `target/gymctl`: `target` can stand on PYTHONPATH. Returns `target`."""
    sdk_context().copy_to(target)
    return target


def base_scripts() -> dict[str, Path]:
    """What every base copies beside its packages."""
    names = ("with_network.sh", "fixed_times.sh", "compile_code.py")
    return {name: bundled() / "scripts" / name for name in names}


def base_context() -> Context:
    """Everything that Dockerfile.base copies."""
    root = bundled()
    extra = {
        "base.lock": root / "server_images" / "base.lock",
        "uv.lock": root / "server_images" / "uv.lock",
    }
    return _sorted(iter({**sdk_context().files, **base_scripts(), **extra}.items()))
