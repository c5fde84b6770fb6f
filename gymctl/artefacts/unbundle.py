"""Use a bundle: its images into the engine, its benchmark into a folder that `--search-dir` finds."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from gymctl.artefacts import content, kept
from gymctl.artefacts.descriptor import short
from gymctl.artefacts.opened import Opened
from gymctl.artefacts.pack import unpack_files, write_file
from gymctl.counts import counted
from gymctl.engine import Engine
from gymctl.errors import IntegrityError, PrerequisiteError
from gymctl.images import lock as lock_file
from gymctl.images import scratch
from gymctl.images.lock import LockedImage
from gymctl.images.progress import Reporter


async def load(opened: Opened, engine: Engine, reporter: Reporter) -> list[str]:
    """Load the images that the engine lacks, and check that it then has every one by the id in the lock.

    Returns the names of those that it lacked.
    """
    missing = [image for image in opened.lock.images if not await _has(engine, image, opened)]
    if not missing:
        return []
    reporter.progress(f"loading {counted(len(missing), 'image')}")
    finished = await engine.run("load", "--quiet", "--input", str(opened.path))
    if any("no space left" in line for line in finished.last_lines):
        hint = "`docker system df` shows what takes the room"
        raise PrerequisiteError("the engine's disk is full: the images cannot be loaded", hint=hint)
    finished.check("the engine does not load the images")
    for image in missing:
        if not await _has(engine, image, opened):
            what = f"the engine made another image of {image.name} than the lock names, {short(image.id)}"
            raise IntegrityError(what, where=str(opened.path))
    return [image.name for image in missing]


async def _has(engine: Engine, image: LockedImage, opened: Opened) -> bool:
    """An engine with the containerd store calls an image by its manifest."""
    for name in (image.id, opened.manifests[image.id]):
        if await asyncio.to_thread(engine.image_id, name) is not None:
            return True
    return False


async def lock_for(opened: Opened, engine: Engine, folder: Path) -> Path:
    """The lock by which the engine finds the images: the benchmark's own, in its folder. With the containerd
    store, which calls an image by its manifest: one beside the folder that names those, too."""
    images: list[LockedImage] = []
    for image in opened.lock.images:
        if await asyncio.to_thread(engine.image_id, image.id) is None:
            image = image.model_copy(update={"digest": opened.manifests[image.id]})
        images.append(image)
    if tuple(images) == opened.lock.images:
        return folder / lock_file.FILE
    path = folder.with_name(f"{folder.name}.lock.json")
    lock = opened.lock.model_copy(update={"images": tuple(images)})
    await asyncio.to_thread(lock_file.write, path, lock)
    return path


def keep(opened: Opened) -> Path:
    """The benchmark in the user's cache, unpacked when it is not there yet. Returns its folder."""
    if not kept.has(opened.digest):
        with kept.arriving(opened.artefact) as new:
            unpack(opened, new)
    return kept.checked(opened.digest)[0]


def unpack_to(opened: Opened, folder: Path) -> None:
    """As `unpack`; the folder is whole or not there. PrerequisiteError: it cannot be written."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with scratch.folder(scratch.UNBUNDLE, folder.parent) as new:
            unpack(opened, new / "files")
            (new / "files").rename(folder)
    except OSError as error:
        what = f"the benchmark cannot be unpacked: {error.strerror}"
        raise PrerequisiteError(what, where=str(folder)) from None


def unpack(opened: Opened, folder: Path) -> None:
    """Write the benchmark's files to a folder that is not there yet, and compare each with benchmark.json."""
    folder.mkdir(parents=True)
    executable = {entry.path for entry in opened.manifest.files if entry.executable}
    for place, entry in opened.places.items():
        write_file(folder, place, opened.chunks(entry), is_executable=place in executable)
    with tempfile.NamedTemporaryFile(dir=folder.parent, prefix=".files-", suffix=".tar") as tar:
        for chunk in opened.chunks(opened.small):
            tar.write(chunk)
        tar.flush()
        unpack_files(Path(tar.name), opened.manifest, folder, str(opened.path))
    content.check_folder(folder, opened.places[content.MANIFEST].sha256)
