"""Write a bundle: one file with a benchmark, the images of its servers and their SBOMs (layout.py)."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from gymctl.artefacts import layout, plain_tar, saved
from gymctl.artefacts.content import Content
from gymctl.artefacts.descriptor import short
from gymctl.artefacts.layout import PackedImage, Source
from gymctl.counts import counted
from gymctl.engine import Engine
from gymctl.errors import EngineError, IntegrityError, PrerequisiteError
from gymctl.images import scratch
from gymctl.images.lock import Lock, LockedImage
from gymctl.images.progress import Reporter
from gymctl.images.sbom import sbom
from gymctl.images.stores import held_or_gone

SUFFIX = ".gymb"


async def bundle(content: Content, lock: Lock, engine: Engine, output: Path, reporter: Reporter) -> int:
    """Write the bundle to `output`, old or new, never half; returns its size in bytes.

    lock: the images, which the engine holds; all for one platform. Memory does not grow with what is packed;
    disk does, to twice the size for a while. Raises PrerequisiteError: nothing can be written there.
    """
    try:
        with scratch.folder(scratch.BUNDLE, output.parent) as folder:
            return await _bundle(content, lock, engine, output, reporter, folder)
    except OSError as error:
        what = f"the bundle cannot be written: {error.strerror}"
        hint = "it takes twice its size for a while; --output names another place"
        raise PrerequisiteError(what, where=str(output), hint=hint) from None


async def _bundle(
    content: Content, lock: Lock, engine: Engine, output: Path, reporter: Reporter, folder: Path
) -> int:
    images = lock.images
    reporter.progress(f"looking into {counted(len(images), 'image')}")
    held = [await asyncio.to_thread(held_or_gone, engine, image) for image in images]
    bills = [await sbom(engine, image.id, image.name, one) for image, one in zip(images, held, strict=True)]
    reporter.progress(f"saving {counted(len(images), 'image')}")
    found = await saved.save(engine, held, folder / "images.tar")
    packed = [PackedImage(image, _of(image, found), bill) for image, bill in zip(images, bills, strict=True)]
    reporter.progress(f"writing {output.name}")
    files = layout.files(content, packed)
    stop = threading.Event()
    writing = asyncio.ensure_future(asyncio.to_thread(write, files, folder / "new", output, stop))
    try:
        return await asyncio.shield(writing)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([writing])  # else it writes into the folder while that is removed
        raise


def _of(image: LockedImage, found: list[saved.SavedImage]) -> saved.SavedImage:
    for one in found:
        if one.id == image.id:
            return one
    if len(found) == 1:
        what = f"the engine's image of {image.name} is {short(found[0].id)}, the lock has {short(image.id)}"
        raise IntegrityError(what, hint="build again")
    raise EngineError(f"the engine did not save the image of {image.name}", where=image.id)


def write(files: Mapping[str, Source], temporary: Path, output: Path, stop: threading.Event) -> int:
    with temporary.open("wb") as stream:
        for name, source in files.items():
            plain_tar.write(stream, name, source.size, _until(stop, source.chunks()))
        plain_tar.end(stream)
        stream.flush()
        os.fsync(stream.fileno())
        size = stream.tell()
    temporary.replace(output)
    return size


def _until(stop: threading.Event, chunks: Iterator[bytes]) -> Iterator[bytes]:
    """A thread cannot be cancelled; this one is told."""
    for chunk in chunks:
        if stop.is_set():
            raise InterruptedError
        yield chunk
