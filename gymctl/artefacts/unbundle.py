"""Use a bundle: its images into the engine, its benchmark into a folder that `--search-dir` finds."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path

from gymctl.artefacts import content
from gymctl.artefacts.opened import Opened
from gymctl.engine import Engine
from gymctl.errors import IntegrityError, PrerequisiteError
from gymctl.images.lock import LockedImage
from gymctl.images.progress import Reporter
from gymctl.paths import cache_dir


def place_of(digest: str) -> Path:
    """Where a benchmark with this benchmark.json is unpacked by default."""
    return cache_dir() / "benchmarks" / digest


async def load(opened: Opened, engine: Engine, reporter: Reporter) -> list[str]:
    """Load the images that the engine lacks, and check that it then has every one by the id in the lock.

    Returns the names of those that it lacked.
    """
    missing = [image for image in opened.lock.images if not await _has(engine, image, opened)]
    if not missing:
        return []
    reporter.progress(f"loading {len(missing)} images")
    finished = await engine.run("load", "--quiet", "--input", str(opened.path))
    if any("no space left" in line for line in finished.last_lines):
        hint = "`docker system df` shows what takes the room"
        raise PrerequisiteError("the engine's disk is full: the images cannot be loaded", hint=hint)
    finished.check("the engine does not load the images")
    for image in missing:
        if not await _has(engine, image, opened):
            what = f"the engine made another image of {image.name} than the lock names, {image.id[:19]}"
            raise IntegrityError(what, where=str(opened.path))
    return [image.name for image in missing]


async def _has(engine: Engine, image: LockedImage, opened: Opened) -> bool:
    """An engine with the containerd store calls an image by its manifest."""
    for name in (image.id, opened.manifests[image.id]):
        if await asyncio.to_thread(engine.image_id, name) is not None:
            return True
    return False


def unpack(opened: Opened, folder: Path) -> bool:
    """Write the benchmark's files to `folder`, whole or not at all. Returns whether it was not there yet.

    A folder that is there has to hold just these files, or IntegrityError.
    """
    if folder.exists():
        content.check_folder(folder, opened.digest)
        return False
    folder.parent.mkdir(parents=True, exist_ok=True)
    executable = {entry.path for entry in opened.manifest.files if entry.executable}
    with tempfile.TemporaryDirectory(prefix=".gymctl-", dir=folder.parent) as scratch:
        new = Path(scratch) / "new"
        for place in opened.places:
            path = new / place
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as stream:
                for chunk in opened.chunks(place):
                    stream.write(chunk)
            if place in executable:
                path.chmod(path.stat().st_mode | 0o111)
        content.check_folder(new, opened.digest)
        try:
            new.rename(folder)
        except OSError:
            if not folder.exists():
                raise
            content.check_folder(folder, opened.digest)  # another process was faster
            shutil.rmtree(new)
            return False
    return True
