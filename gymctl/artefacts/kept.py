"""Benchmarks of this user: unpacked once, by the digest of their manifest, checked again at every use.

<cache>/gymctl/benchmarks/<digest>.json   the manifest, whose sha256 is its name
<cache>/gymctl/benchmarks/<digest>/       the files, as a search root (content.py)
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gymctl.artefacts import content
from gymctl.artefacts.descriptor import Manifest, digest_of
from gymctl.errors import PrerequisiteError
from gymctl.images import scratch
from gymctl.paths import benchmarks_dir
from gymctl.runtime import cache


def has(digest: str) -> bool:
    """Whether the benchmark with this manifest (`sha256:…`) is there, whole."""
    file, folder = places(digest)
    return file.is_file() and folder.is_dir()


def checked(digest: str) -> tuple[Path, content.Manifest]:
    """Its folder and benchmark.json, compared byte by byte with the digest. Raises IntegrityError, and
    PrerequisiteError when other users may write there."""
    file, folder = places(digest)
    _check_owner(file.parent)
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
    manifest, each old or new and never half. Who is faster of several that bring it at once keeps it.

    Raises PrerequisiteError when nothing can be written there.
    """
    digest = digest_of(manifest)
    file, folder = places(digest)
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _check_owner(file.parent)
        with scratch.folder(".new-", file.parent) as new:
            files = new / "files"
            yield files
            (new / "manifest").write_bytes(manifest)
            files.chmod(0o700)
            with _alone(file.parent):
                if has(digest):
                    return
                # Left by a process that was ended between the two steps, or by who removed one of them.
                file.unlink(missing_ok=True)
                if folder.exists():
                    shutil.rmtree(folder)
                files.rename(folder)
                (new / "manifest").replace(file)
    except OSError as error:
        what = f"the benchmark cannot be unpacked: {error.strerror}"
        hint = "XDG_CACHE_HOME names another place"
        raise PrerequisiteError(what, where=str(file.parent), hint=hint) from None


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _check_owner(folder: Path) -> None:
    """Who else may write there could change a file after it was checked. Raises PrerequisiteError."""
    for path in (folder, *folder.resolve().parents):
        status = path.stat()
        is_shared = status.st_mode & 0o002 or (status.st_mode & 0o020 and status.st_gid not in _groups())
        is_foreign = status.st_uid not in (0, os.getuid())
        if is_foreign or (is_shared and not status.st_mode & stat.S_ISVTX):
            raise PrerequisiteError(
                "other users could change benchmarks after they were checked: this folder is not yours alone",
                where=str(path),
                hint=f"`chmod go-w {path}`, or XDG_CACHE_HOME names a folder of your own",
            )


def _groups() -> tuple[int, int]:
    """Root's, and the one that many systems give each user alone."""
    return 0, os.getgid()


def places(digest: str) -> tuple[Path, Path]:
    """The manifest's file and the folder."""
    folder = benchmarks_dir()
    value = digest.removeprefix("sha256:")
    return folder / f"{value}.json", folder / value
