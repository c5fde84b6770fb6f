"""A benchmark into a registry: its images by `docker push`, then itself; every digest is read back."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gymctl.artefacts.content import Content
from gymctl.artefacts.descriptor import INDEXES, Manifest, short
from gymctl.artefacts.pack import pack
from gymctl.artefacts.reference import Reference
from gymctl.artefacts.registry import Registry
from gymctl.engine import Engine
from gymctl.errors import EngineError, IntegrityError, PrerequisiteError
from gymctl.images import sbom, stores
from gymctl.images.lock import LockedImage
from gymctl.images.progress import Reporter
from gymctl.images.refused import no_tls
from gymctl.programs import Finished
from gymctl.runtime.tasks import group

PARALLEL_PUSHES = 2
"""The engine itself sends five layers at a time."""
CONTENT_TAG = 20
"""Digits of the artefact's own digest that are a tag of it as well: one that never moves."""
_LAYER = re.compile(r"([0-9a-f]{12}): (Pushed|Layer already exists|Mounted from .*)")
_NOT_ALLOWED = ("unauthorized", "denied", "no basic auth credentials", "authentication required")
_NO_REPOSITORY = ("name unknown", "does not exist in the registry", "repository not found")
_NO_ANSWER = ("connection refused", "no such host", "timeout", "no route to host", "unreachable")


@dataclass(frozen=True, slots=True)
class Place:
    """Where things go: `HOST/PATH/`."""

    host: str
    prefix: str
    """`bench/`, or empty."""

    def path(self, name: str) -> str:
        return f"{self.prefix}{name}"


@dataclass(frozen=True, slots=True)
class PushedImage:
    image: LockedImage
    """With the repository and digest that it has now."""
    sent: int
    """Bytes that had to travel, as layers are stored."""
    has_sbom: bool


@dataclass(frozen=True, slots=True)
class PushedBenchmark:
    reference: Reference
    """By tag, with its digest."""
    size: int
    sent: int
    moved_from: str | None
    """The digest that the tag named before, if another."""


async def check_engine(place: Place, engine: Engine) -> None:
    """Let the engine look into the registry. Raises PrerequisiteError when it gets no TLS with it, which then
    is told before anything is built; whatever else is wrong the push itself tells better."""
    import docker.errors
    import requests

    try:
        await asyncio.to_thread(engine.api.api.inspect_distribution, f"{place.host}/{place.path('base')}")
    except (docker.errors.DockerException, requests.RequestException, OSError) as error:
        said = str(getattr(error, "explanation", None) or "")
        if wrong := no_tls(place.host, said):
            raise PrerequisiteError(f"nothing can be pushed: {wrong[0]}", hint=wrong[1]) from None


async def push_images(
    images: Sequence[LockedImage], place: Place, engine: Engine, registry: Registry, reporter: Reporter
) -> list[PushedImage]:
    """Tag and push images, and read each back; what others stand on goes first.

    Raises PrerequisiteError: no login, no answer, no TLS. IntegrityError: the registry holds something else
    than what was sent. EngineError: anything else that `docker push` complains of.
    """
    below = {image.base for image in images}
    first = [image for image in images if image.name in below or image.name == "Dockerfile.base"]
    pushed = {image.name: await _push(image, place, engine, registry, reporter) for image in first}
    slots = asyncio.Semaphore(PARALLEL_PUSHES)

    async def push(image: LockedImage) -> None:
        async with slots:
            pushed[image.name] = await _push(image, place, engine, registry, reporter)

    async with group() as pushes:
        for image in images:
            if image.name not in pushed:
                pushes.create_task(push(image))
    return [pushed[image.name] for image in images]


async def _push(
    image: LockedImage, place: Place, engine: Engine, registry: Registry, reporter: Reporter
) -> PushedImage:
    path = place.path(image.repository.rsplit("/", 1)[-1])
    target = f"{place.host}/{path}:{image.tag}"
    reporter.progress(f"pushing {image.name}")
    held = await asyncio.to_thread(_tagged, engine, image, target)
    lines: dict[str, str] = {}

    def take(line: str) -> None:
        if match := _LAYER.fullmatch(line.strip()):
            lines[match[1]] = match[2]

    finished = await engine.run("push", target, on_line=take)
    if finished.exit_code != 0:
        raise _failure(image, place.host, finished)
    manifest = await read_back(registry, path, image)
    layers = manifest.layers(target)
    names = held["RootFS"]["Layers"]
    sent = sum(
        layer.size
        for name, layer in zip(names, layers, strict=True)
        if "Pushed" in (lines.get(name[7:19]), lines.get(layer.digest[7:19]))
    )
    reporter.progress(f"looking into {image.name}")
    document = await sbom.sbom(engine, image.id, image.name, held["Id"])
    await registry.attach(path, manifest.descriptor(), sbom.MEDIA_TYPE, document)
    known = image.model_copy(update={"repository": f"{place.host}/{path}", "digest": manifest.digest})
    return PushedImage(known, sent, has_sbom=True)


def _tagged(engine: Engine, image: LockedImage, target: str) -> dict[str, Any]:
    import docker.errors

    try:
        held: dict[str, Any] = engine.api.api.inspect_image(stores.held_or_gone(engine, image))
        repository, _, tag = target.rpartition(":")
        engine.api.api.tag(held["Id"], repository, tag)
    except docker.errors.ImageNotFound:
        raise EngineError(f"the image of {image.name} is gone", hint="run it again: it is rebuilt") from None
    except docker.errors.APIError as error:  # a name that is too long
        what = f"the engine does not call the image of {image.name} so: {error.explanation}"
        raise EngineError(what, where=target[:300]) from None
    return held


async def read_back(registry: Registry, path: str, image: LockedImage) -> Manifest:
    """What the registry holds under the image's tag: its manifest, with a configuration that is the image's
    own, and every layer. Raises IntegrityError."""
    where = f"{registry.host}/{path}:{image.tag}"
    manifest = await registry.manifest(path, image.tag)
    if manifest is None:
        raise IntegrityError(f"{image.name} was pushed, and the registry does not know it", where=where)
    if manifest.media_type in INDEXES:
        raise EngineError(
            f"{image.name} was pushed as an index of several platforms, which a lock cannot name",
            where=where,
            hint="build it with an engine that has the classic image store, or without attestations",
        )
    config = manifest.config(where)
    if image.id not in (config.digest, manifest.digest):
        raise IntegrityError(
            f"the registry holds another image as {image.name}: "
            f"expected {short(image.id)}, found {short(config.digest)}",
            where=where,
            hint="somebody else pushed to this tag at the same time, or the registry is not to be trusted",
        )
    await registry.read(path, config)
    for layer in manifest.layers(where):
        size = await registry.has_blob(path, layer.digest)
        if size != layer.size:
            raise IntegrityError(
                f"a layer of {image.name} is not in the registry as it was sent: {short(layer.digest)}",
                where=where,
                hint="push it again",
            )
    return manifest


async def push_benchmark(content: Content, place: Place, tag: str, registry: Registry) -> PushedBenchmark:
    """Send the benchmark's own artefact and read it back. What is there already is not sent again."""
    path, artefact = place.path(content.name), pack(content)
    made = artefact.descriptor
    before = await registry.manifest(path, tag)
    sent = 0
    for blob, item in artefact.blobs:
        sent += blob.size if await registry.put_blob(path, blob, item) else 0
    own = made.digest.removeprefix("sha256:")[:CONTENT_TAG]
    for name in (own, tag):
        known = before if name == tag else await registry.manifest(path, name)
        if known is None or known.digest != made.digest:
            await registry.put_manifest(path, name, artefact.manifest)
    found = await registry.manifest(path, tag)
    if found is None or found.data != artefact.manifest:
        raise IntegrityError(
            "the registry holds another manifest than was sent",
            where=f"{place.host}/{path}:{tag}",
            hint="somebody else pushed to this tag at the same time, or the registry is not to be trusted",
        )
    for blob, _ in artefact.blobs:
        async for _chunk in registry.blob(path, blob):
            pass
    moved = before.digest if before is not None and before.digest != made.digest else None
    size = sum(blob.size for blob, _ in artefact.blobs)
    return PushedBenchmark(Reference(place.host, path, tag, made.digest), size, sent, moved)


def _failure(image: LockedImage, host: str, finished: Finished) -> EngineError | PrerequisiteError:
    lines = finished.last_lines[-3:]
    said = "\n".join(lines).lower()
    what = f"{image.name} cannot be pushed"
    if wrong := no_tls(host, said):
        return PrerequisiteError(f"{what}: {wrong[0]}", details=lines, hint=wrong[1])
    if any(sign in said for sign in _NOT_ALLOWED):
        return PrerequisiteError(
            f"{what}: {host} does not let you", details=lines, hint=f"docker login {host}"
        )
    if any(sign in said for sign in _NO_REPOSITORY):
        hint = "some registries want a repository to be made there first"
        return PrerequisiteError(f"{what}: {host} has no such repository", details=lines, hint=hint)
    if any(sign in said for sign in _NO_ANSWER):
        return PrerequisiteError(f"{what}: {host} does not answer", details=lines)
    return EngineError(what, details=lines)


def unpushed(image: LockedImage) -> LockedImage:
    """As it was before any push: what a push begins with, whatever registry it went to before."""
    if image.pinned is None:
        return image
    name = image.repository.rsplit("/", 1)[-1]
    return image.model_copy(update={"repository": f"gymctl/{name}", "digest": None})
