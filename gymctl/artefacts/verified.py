"""What a registry and the engine hold of a lock or a benchmark, compared with its digests, thing by thing."""

from __future__ import annotations

import asyncio
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from gymctl.artefacts import content as contents
from gymctl.artefacts.descriptor import INDEXES, Descriptor, Manifest, short
from gymctl.artefacts.pulled import download, manifest_of
from gymctl.artefacts.reference import Reference
from gymctl.artefacts.registry import Registry
from gymctl.counts import counted
from gymctl.engine import Engine
from gymctl.errors import IntegrityError
from gymctl.images import sbom
from gymctl.images.lock import FILE, Lock, LockedImage, read
from gymctl.rollouts.findings import Finding
from gymctl.rollouts.passport import RowsDigest

PARALLEL = 4
BENCHMARK = "benchmark"
"""`Finding.thing` of what belongs to no image."""
SIZE_ONLY = "its size only"


@dataclass
class Registries:
    """The registries that a lock names, each opened once."""

    plain_http: bool = False
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    _open: dict[str, Registry] = field(default_factory=dict[str, Registry])
    _read: dict[tuple[str, str], str | None] = field(default_factory=dict[tuple[str, str], "str | None"])
    """By host and digest: why the bytes are not those of the digest, or None."""
    _reading: dict[tuple[str, str], asyncio.Lock] = field(
        default_factory=lambda: defaultdict[tuple[str, str], asyncio.Lock](asyncio.Lock)
    )

    async def __aenter__(self) -> Registries:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def of(self, host: str) -> Registry:
        if host not in self._open:
            registry = Registry(host, plain_http=self.plain_http)
            self._open[host] = await self._stack.enter_async_context(registry)
        return self._open[host]

    async def blob(
        self, name: str, registry: Registry, path: str, blob: Descriptor, *, is_deep: bool
    ) -> Finding:
        """Whether it is there with its size, and (is_deep) with its bytes: these are read once, however many
        images share them."""
        size = await registry.has_blob(path, blob.digest)
        if size is None:
            return Finding(name, "differs", f"the registry has no {short(blob.digest)}")
        if size != blob.size:
            what = f"{short(blob.digest)}: expected {blob.size:,} bytes, found {size:,}"
            return Finding(name, "differs", what)
        if not is_deep:
            return Finding(name, "ok", f"{short(blob.digest)}, {SIZE_ONLY}")
        wrong = await self._wrong_bytes(registry, path, blob)
        if wrong is not None:
            return Finding(name, "differs", wrong)
        return Finding(name, "ok", f"{short(blob.digest)}, {blob.size:,} bytes")

    async def _wrong_bytes(self, registry: Registry, path: str, blob: Descriptor) -> str | None:
        key = (registry.host, blob.digest)
        async with self._reading[key]:
            if key not in self._read:
                try:
                    async for _ in registry.blob(path, blob):
                        pass
                    self._read[key] = None
                except IntegrityError as error:
                    self._read[key] = error.what
        return self._read[key]


async def lock_findings(
    lock: Lock, registries: Registries, engine: Engine | None, *, is_deep: bool
) -> list[Finding]:
    """Every image of a lock, in its order: in its registry, and in the engine where it is there too.

    is_deep: every layer is read and hashed; else its size is asked for. PrerequisiteError: a registry does
    not answer, or lets nobody in.
    """
    for host in {_split(image)[0] for image in lock.images if image.pinned}:
        await registries.of(host)
    slots = asyncio.Semaphore(PARALLEL)

    async def look(image: LockedImage) -> list[Finding]:
        async with slots:
            found = [one async for one in _in_registry(image, registries, is_deep=is_deep)]
        found += await asyncio.to_thread(lambda: list(_in_engine(image, engine)))
        return [replace(one, thing=image.name) for one in found]

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(look(image)) for image in _told_apart(lock)]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [one for task in tasks for one in task.result()]


def _told_apart(lock: Lock) -> list[LockedImage]:
    """The images; one that is there for several platforms has its own in its name."""
    platforms: dict[str, set[str]] = {}
    for image in lock.images:
        platforms.setdefault(image.name, set()).add(image.platform)
    return [
        image.model_copy(update={"name": f"{image.name} {image.platform}"})
        if len(platforms[image.name]) > 1
        else image
        for image in lock.images
    ]


async def _in_registry(
    image: LockedImage, registries: Registries, *, is_deep: bool
) -> AsyncIterator[Finding]:
    if image.digest is None or image.pinned is None:
        yield Finding(f"{image.name} manifest", "not recorded", "it was never pushed")
        return
    host, path = _split(image)
    registry = await registries.of(host)
    where = f"{image.repository}@{image.digest}"
    try:
        manifest = await registry.manifest(path, image.digest)
    except IntegrityError as error:
        yield Finding(f"{image.name} manifest", "differs", error.what)
        return
    if manifest is None:
        yield Finding(f"{image.name} manifest", "differs", f"the registry has no {short(image.digest)}")
        return
    yield Finding(f"{image.name} manifest", "ok", short(manifest.digest))
    yield await _tag(image, registry, path)
    if manifest.media_type in INDEXES:
        yield Finding(f"{image.name} configuration", "not recorded", "an index of several platforms")
        return
    config = manifest.config(where)
    if image.id in (config.digest, manifest.digest):
        yield await registries.blob(f"{image.name} configuration", registry, path, config, is_deep=True)
    else:
        yield Finding.of(f"{image.name} configuration", image.id, config.digest)
    for number, layer in enumerate(manifest.layers(where), 1):
        yield await registries.blob(f"{image.name} layer {number}", registry, path, layer, is_deep=is_deep)
    async for found in _sbom(image, registry, path, manifest):
        yield found


async def _tag(image: LockedImage, registry: Registry, path: str) -> Finding:
    tagged = await registry.manifest(path, image.tag)
    name = f"{image.name} tag"
    if tagged is None:
        return Finding(name, "gone", f"{image.tag} names nothing")
    return Finding.of(name, image.digest or "", tagged.digest, image.tag)


async def _sbom(
    image: LockedImage, registry: Registry, path: str, manifest: Manifest
) -> AsyncIterator[Finding]:
    """What is attached, by its digests."""
    name = f"{image.name} SBOM"
    attached = await registry.referrers(path, manifest.digest, sbom.MEDIA_TYPE)
    if not attached:
        yield Finding(name, "gone", "none is attached")
    for one in attached:
        try:
            found = await registry.manifest(path, one.digest)
            if found is None:
                raise IntegrityError(f"the registry has no {short(one.digest)}")
            for layer in found.layers(path):
                await registry.read(path, layer)
        except IntegrityError as error:
            yield Finding(name, "differs", error.what)
        else:
            yield Finding(name, "ok", short(one.digest))


def _in_engine(image: LockedImage, engine: Engine | None) -> Iterator[Finding]:
    """The image that this machine has under the tag, if any. Blocking."""
    if engine is None:
        return
    short_name = image.repository.rsplit("/", 1)[-1]
    for repository in dict.fromkeys((image.repository, f"gymctl/{short_name}")):
        found = engine.image_id(f"{repository}:{image.tag}")
        if found is not None:
            right = image.digest if found == image.digest else image.id
            yield Finding.of(f"{image.name} here", right or "", found, f"{repository}:{image.tag}")


async def reference_findings(
    reference: Reference, registries: Registries, engine: Engine | None, *, is_deep: bool
) -> list[Finding]:
    """A benchmark in a registry: its manifest, every layer and file, its template, the images of its lock.

    Raises as `pulled.pull` when there is no such benchmark.
    """
    registry = await registries.of(reference.host)
    manifest = await manifest_of(registry, reference)
    found = [Finding("manifest", "ok", short(manifest.digest))]
    if reference.digest is not None and reference.tag is not None:
        tagged = await registry.manifest(reference.path, reference.tag)
        found.append(
            Finding("tag", "gone", f"{reference.tag} names nothing")
            if tagged is None
            else Finding.of("tag", reference.digest, tagged.digest, reference.tag)
        )
    with tempfile.TemporaryDirectory(prefix="gymctl-verify-") as scratch:
        folder = Path(scratch) / "files"
        pinned = reference.at(manifest.digest)
        try:
            listed = await download(registry, pinned, manifest, folder)
        except IntegrityError as error:
            found += [one async for one in _layers(registries, registry, pinned, manifest)]
            if all(one.status == "ok" for one in found):
                found.append(Finding("files", "differs", error.what))
            return _of_benchmark(found)
        found += [one async for one in _layers(registries, registry, pinned, manifest, is_known=True)]
        found.append(Finding("files", "ok", f"{counted(len(listed.files), 'file')} as benchmark.json lists"))
        found += await asyncio.to_thread(lambda: list(_template(listed, folder)))
        lock = read(folder / FILE) if (folder / FILE).is_file() else Lock()
    return _of_benchmark(found) + await lock_findings(lock, registries, engine, is_deep=is_deep)


def _of_benchmark(found: Iterable[Finding]) -> list[Finding]:
    return [replace(one, thing=BENCHMARK) for one in found]


async def _layers(
    registries: Registries,
    registry: Registry,
    pinned: Reference,
    manifest: Manifest,
    *,
    is_known: bool = False,
) -> AsyncIterator[Finding]:
    """is_known: all of them were hashed just now."""
    where = str(pinned)
    for blob in (manifest.config(where), *manifest.layers(where)):
        name = blob.annotations.get("org.opencontainers.image.title", "layer")
        if is_known:
            yield Finding(name, "ok", f"{short(blob.digest)}, {blob.size:,} bytes")
        else:
            yield await registries.blob(name, registry, pinned.path, blob, is_deep=True)


def _template(listed: contents.Manifest, folder: Path) -> Iterable[Finding]:
    """What a passport of a run must say, computed again from the files."""
    for place, expected in listed.passport.rows.items():
        with (folder / place).open("rb") as stream:
            digest = RowsDigest.of(line.rstrip(b"\r\n") for line in stream if line.strip())
        yield Finding.of(
            f"rows of {place}", f"sha256:{expected}", f"sha256:{digest}", counted(digest.count, "row")
        )
    lock = read(folder / FILE) if (folder / FILE).is_file() else Lock()
    held = {f"{image.name} {image.platform}": image.id for image in lock.images}
    for name in sorted(held.keys() | listed.passport.images.keys()):
        expected, seen = listed.passport.images.get(name, "nothing"), held.get(name, "nothing")
        if expected != seen:
            yield Finding.of(f"image {name}", expected, seen)


def _split(image: LockedImage) -> tuple[str, str]:
    host, _, path = image.repository.partition("/")
    return host, path
