"""Benchmarks of this user: unpacked once, by the digest of their manifest, checked again at every use.

<cache>/gymctl/benchmarks/<digest>.json   the manifest, whose sha256 is its name
<cache>/gymctl/benchmarks/<digest>/       the files, as a search root (content.py)
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gymctl.artefacts import content
from gymctl.artefacts.descriptor import Manifest, digest_of
from gymctl.paths import cache_dir
from gymctl.runtime import cache

_OF_ROOT = Path("/var/cache/gymctl")
"""Instead of a cache below /root."""


def has(digest: str) -> bool:
    """Whether the benchmark with this manifest (`sha256:…`) is there, whole."""
    return places(digest)[0].is_file()


def checked(digest: str) -> tuple[Path, content.Manifest]:
    """Its folder and benchmark.json, compared byte by byte with the digest. Raises IntegrityError."""
    file, folder = places(digest)
    data = file.read_bytes()
    found = hashlib.sha256(data).hexdigest()
    if f"sha256:{found}" != digest:
        raise content.differs(file.name, digest.removeprefix("sha256:"), found, file.parent)
    config = Manifest(data, "").config(str(file))
    cache.used(folder)
    return folder, content.check_folder(folder, config.digest.removeprefix("sha256:"))


@contextmanager
def arriving(manifest: bytes) -> Iterator[Path]:
    """A new place to make the folder in. When the block ends well it is kept: the folder first, then the
    manifest, each old or new and never half."""
    file, folder = places(digest_of(manifest))
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    scratch = Path(tempfile.mkdtemp(prefix=".new-", dir=file.parent))  # mode 0700
    files = scratch / "files"
    try:
        yield files
        (scratch / "manifest").write_bytes(manifest)
        files.chmod(0o700)
        if folder.exists() and not file.is_file():  # left by a process that was ended between the two steps
            shutil.rmtree(folder)
        try:
            files.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
            # Another process was faster; `checked` looks at what it made.
        (scratch / "manifest").replace(file)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def places(digest: str) -> tuple[Path, Path]:
    """The manifest's file and the folder."""
    folder = _folder()
    value = digest.removeprefix("sha256:")
    return folder / f"{value}.json", folder / value


def _folder() -> Path:
    """Cassettes and skills are mounted at their own place, and below /root no container's user reads them."""
    cache = cache_dir()
    return (_OF_ROOT if cache.is_relative_to("/root") else cache) / "benchmarks"
