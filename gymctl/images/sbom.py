"""What is inside a finished image, as CycloneDX 1.6 JSON (https://cyclonedx.org/docs/1.6/json).

The image itself is asked: `inventory.py` runs in a container of it, with its own Python, as nobody, with no
network and nothing to write to. An image without Python is read from outside, and the document says what that
leaves out. The same image gives the same bytes, so the document carries no time.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gymctl.engine import Engine
from gymctl.errors import EngineError, IntegrityError, PrerequisiteError, first_cause
from gymctl.images import inventory
from gymctl.images.bom import About, document
from gymctl.images.lock import LockedImage
from gymctl.images.stores import held_or_gone
from gymctl.paths import cache_dir

MEDIA_TYPE = "application/vnd.cyclonedx+json"
PARALLEL = 2
NO_PYTHON = "no Python that runs in the image: Python packages were not looked for"
CANNOT_RUN = (126, 127)
"""How `docker run` ends when the program is not there, or is made for another processor."""


async def sbom(engine: Engine, image_id: str, name: str, held_as: str | None = None) -> bytes:
    """The document of one local image; kept in the user's cache by the image's id.

    held_as: what the engine calls the image, where that is not its id (stores.py).
    Raises IntegrityError when the engine has no such image, EngineError when it cannot be looked into.
    """
    script = await asyncio.to_thread(Path(inventory.__file__).read_bytes)
    made_by = hashlib.sha256(script).hexdigest()[:12]
    kept = cache_dir() / "sbom" / f"{image_id.replace(':', '-')}-{made_by}.json"
    about = await asyncio.to_thread(_about, engine, image_id, name, held_as or image_id)
    try:
        found: dict[str, Any] = json.loads(await asyncio.to_thread(kept.read_bytes))
    except (OSError, ValueError):
        found = await _inventory(engine, held_as or image_id, script.decode())
        await asyncio.to_thread(_keep, kept, json.dumps(found).encode())
    return await asyncio.to_thread(document, about, found)


async def sboms(engine: Engine, images: Iterable[LockedImage], folder: Path) -> list[Path]:
    """Write the document of each image to `folder`, as `<name>.cdx.json`; returns the files, in order. Two
    images of one name, of folders in different roots, also have the beginning of their ids in it."""
    images = list(images)
    names = Counter(file_name(image) for image in images)
    await asyncio.to_thread(_make, folder)
    slots = asyncio.Semaphore(PARALLEL)

    async def write(image: LockedImage) -> Path:
        async with slots:
            held = await asyncio.to_thread(held_or_gone, engine, image)
            content = await sbom(engine, image.id, image.name, held)
        name = file_name(image)
        file = folder / (name if names[name] == 1 else f"{image.id[7:19]}-{name}")
        await asyncio.to_thread(_write, file, content)
        return file

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(write(image)) for image in images]
    except ExceptionGroup as errors:
        raise first_cause(errors) from None
    return [task.result() for task in tasks]


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PrerequisiteError(f"SBOMs cannot be written: {error.strerror}", where=str(folder)) from None


def _write(file: Path, content: bytes) -> None:
    """Old or new, never half."""
    new = file.with_name(f".{file.name}.new")
    try:
        try:
            new.write_bytes(content)
            new.replace(file)
        finally:
            new.unlink(missing_ok=True)
    except OSError as error:
        raise PrerequisiteError(f"an SBOM cannot be written: {error.strerror}", where=str(file)) from None


def file_name(image: LockedImage) -> str:
    """`resources-weather.cdx.json`; the platform is named where it is not the usual one."""
    platform = "" if image.platform == "linux/amd64" else f"-{image.platform.partition('/')[2]}"
    return f"{image.repository.rsplit('/', 1)[-1]}{platform.replace('/', '-')}.cdx.json"


def _about(engine: Engine, image_id: str, name: str, held_as: str) -> About:
    import docker.errors

    try:
        found = engine.api.api.inspect_image(held_as)
    except docker.errors.ImageNotFound:
        hint = "`gymctl build` makes it"
        raise IntegrityError(f"the image of `{name}` is not there", where=image_id, hint=hint) from None
    return About(name, image_id, dict(found["Config"].get("Labels") or {}), str(found["Architecture"]))


async def _inventory(engine: Engine, held_as: str, script: str) -> dict[str, Any]:
    closed = ("--network", "none", "--read-only", "--user", "65534:65534", "--cap-drop", "ALL")
    closed = (*closed, "--security-opt", "no-new-privileges", "--init", "--rm", "--pull", "never")
    command = (*closed, "--entrypoint", "python3", held_as, "-I", "-S", "-c", script)
    finished = await engine.run("run", *command)
    if finished.exit_code == 0:
        return json.loads(finished.stdout)
    if finished.exit_code in CANNOT_RUN:
        return await asyncio.to_thread(_from_outside, engine, held_as)
    # Not the command: it holds the whole script.
    details = (f"exit code {finished.exit_code}", *finished.last_lines[-15:])
    raise EngineError("what is in the image cannot be read", where=held_as, details=details)


def _from_outside(engine: Engine, held_as: str) -> dict[str, Any]:
    """The inventory of an image whose Python cannot run: of the files that a stopped container has."""
    container = engine.api.api.create_container(held_as, command=["none"], network_disabled=True)["Id"]
    try:
        status = _files(engine, container, "/var/lib/dpkg/status")
        more = _files(engine, container, "/var/lib/dpkg/status.d")
        release = _files(engine, container, "/usr/lib/os-release") or _files(
            engine, container, "/etc/os-release"
        )
    finally:
        engine.api.api.remove_container(container, force=True, v=True)
    texts = [text for name, text in {**status, **more}.items() if not name.endswith(".md5sums")]
    return {
        "python": "",
        "distributions": [],
        "dpkg": inventory.dpkg_packages(texts),
        "release": inventory.release(next(iter(release.values()), "")),
        "unread": [NO_PYTHON],
    }


def _files(engine: Engine, container: str, path: str) -> dict[str, str]:
    """The files at or below `path`, by name; none where there is no such path."""
    import docker.errors

    try:
        stream, _ = engine.api.api.get_archive(container, path)
    except docker.errors.NotFound:
        return {}
    found: dict[str, str] = {}
    with tarfile.open(fileobj=io.BytesIO(b"".join(stream))) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isreg() else None
            if content is not None:
                found[member.name] = content.read().decode("utf-8", "replace")
    return found


def _keep(file: Path, content: bytes) -> None:
    """In the cache, old or new; a cache that cannot be written is only slower."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=file.parent, prefix=".new-", delete=False) as new:
            try:
                new.write(content)
                new.flush()
                Path(new.name).replace(file)
            except OSError:
                Path(new.name).unlink(missing_ok=True)
    except OSError:
        return
