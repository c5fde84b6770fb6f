"""A benchmark out of a registry: pulled by digest, unpacked once (kept.py), checked again at every use."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import dataclass
from pathlib import Path

from gymctl.artefacts import content, kept, pack
from gymctl.artefacts.descriptor import TITLE, Descriptor, Manifest, short
from gymctl.artefacts.reference import Reference
from gymctl.artefacts.registry import Registry
from gymctl.errors import IntegrityError, PrerequisiteError, UsageError
from gymctl.images import lock as lock_file

MOST_CONFIG_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Pulled:
    reference: Reference
    """As it was asked for, with the digest that it has."""
    folder: Path
    manifest: content.Manifest

    @property
    def lock(self) -> Path:
        return self.folder / lock_file.FILE


async def pull(reference: Reference, *, plain_http: bool = False) -> Pulled:
    """The benchmark of a reference, unpacked. One that is pinned and was pulled before needs no network.

    Raises IntegrityError that names the file or layer that differs; PrerequisiteError for no such tag and
    a registry that does not answer; UsageError for something that is no benchmark.
    """
    if reference.digest is not None and kept.has(reference.digest):
        return await asyncio.to_thread(_checked, reference.at(reference.digest))
    async with Registry(reference.host, plain_http=plain_http) as registry:
        manifest = await manifest_of(registry, reference)
        pinned = reference.at(manifest.digest)
        if not kept.has(manifest.digest):
            await _fetch(registry, pinned, manifest)
    return await asyncio.to_thread(_checked, pinned)


async def manifest_of(registry: Registry, reference: Reference) -> Manifest:
    """The manifest of a benchmark. Raises as `pull`."""
    manifest = await registry.manifest(reference.path, reference.wanted)
    if manifest is None and reference.digest is not None:
        what = f"the registry has no manifest {short(reference.digest)} there"
        raise IntegrityError(what, where=str(reference), hint="it was deleted, or never pushed to this place")
    if manifest is None:
        tags = await registry.tags(reference.path)
        names = ", ".join(tag for tag in tags if not tag.startswith("sha256-"))
        hint = f"tags there: {names}" if names else "`gymctl push` puts a benchmark there"
        what = f"the registry has no `{reference.tag or 'latest'}` there"
        raise PrerequisiteError(what, where=str(reference), hint=hint)
    if manifest.parsed(str(reference)).get("artifactType") != pack.ARTIFACT_TYPE:
        hint = "`gymctl push` shows the reference of the benchmark beside those of its images"
        raise UsageError("this is no benchmark but something else", where=str(reference), hint=hint)
    return manifest


def _checked(pinned: Reference) -> Pulled:
    """What is in the cache, compared byte by byte with its digest."""
    assert pinned.digest is not None
    folder, manifest = kept.checked(pinned.digest)
    return Pulled(pinned, folder, manifest)


async def _fetch(registry: Registry, pinned: Reference, manifest: Manifest) -> None:
    with kept.arriving(manifest.data) as folder:
        await download(registry, pinned, manifest, folder)


async def download(
    registry: Registry, pinned: Reference, manifest: Manifest, target: Path
) -> content.Manifest:
    """Every file of a benchmark below `target`, which is new, and each compared with its digest."""
    where, path = str(pinned), pinned.path
    config = manifest.config(where)
    if config.media_type != pack.CONFIG_TYPE or config.size > MOST_CONFIG_BYTES:
        raise IntegrityError("the benchmark lacks its benchmark.json", where=where)
    text = await registry.read(path, config)
    listed = content.parse(text, where)
    pack.write_file(target, content.MANIFEST, iter([text]), is_executable=False)
    entries = {entry.path: entry for entry in listed.files}
    layers = manifest.layers(where)
    _check_room(sum(layer.size for layer in layers), target.parent, where)
    for layer in layers:
        if layer.media_type == pack.FILES_TYPE:
            tar = await _layer(registry, path, layer, target.parent / "files.tar")
            await asyncio.to_thread(pack.unpack_files, tar, listed, target, where)
            tar.unlink()
            continue
        place = layer.annotations.get(TITLE, "")
        if layer.media_type != pack.FILE_TYPE or place not in entries or (target / place).exists():
            raise IntegrityError(f"layer {short(layer.digest)} is no file of the benchmark", where=where)
        (target / place).parent.mkdir(parents=True, exist_ok=True)
        file = await _layer(registry, path, layer, target / place)
        file.chmod(0o555 if entries[place].executable else 0o444)
    return await asyncio.to_thread(content.check_folder, target, config.digest.removeprefix("sha256:"))


def _check_room(size: int, folder: Path, where: str) -> None:
    free = shutil.disk_usage(folder).free
    if size > free:
        what = (
            f"the benchmark has {size / 1e6:,.0f} MB, and there is room for {free / 1e6:,.0f} MB in {folder}"
        )
        raise PrerequisiteError(what, where=where, hint="make room, or XDG_CACHE_HOME names another disk")


async def _layer(registry: Registry, path: str, layer: Descriptor, target: Path) -> Path:
    with target.open("xb") as stream:
        async for chunk in registry.blob(path, layer):
            stream.write(chunk)
    return target
