"""What `docker save` wrote: the configuration and the layers of each image, as places inside that file."""

from __future__ import annotations

import hashlib
import json
import posixpath
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gymctl.artefacts import plain_tar
from gymctl.engine import Engine
from gymctl.errors import EngineError, PrerequisiteError

TAR = "application/vnd.oci.image.layer.v1.tar"
# An engine with the containerd store saves layers as a registry had them.
_COMPRESSED = {b"\x1f\x8b": f"{TAR}+gzip", b"\x28\xb5\x2f\xfd": f"{TAR}+zstd"}


@dataclass(frozen=True, slots=True)
class Slice:
    """Bytes inside a file."""

    sha256: str
    """In hex."""
    size: int
    path: Path
    offset: int
    media_type: str

    def chunks(self) -> Iterator[bytes]:
        with self.path.open("rb") as stream:
            yield from plain_tar.chunks(stream, self.offset, self.size)


@dataclass(frozen=True, slots=True)
class SavedImage:
    """One image: its configuration, and its layers from the lowest to the highest."""

    config: bytes
    layers: tuple[Slice, ...]

    @property
    def id(self) -> str:
        return f"sha256:{hashlib.sha256(self.config).hexdigest()}"


async def save(engine: Engine, references: Sequence[str], file: Path) -> list[SavedImage]:
    """Save images of the engine to `file` and find what is in it. References are ids or digests.

    The order is that of the file. Raises EngineError, and PrerequisiteError when a disk is full.
    """
    import asyncio

    finished = await engine.run("save", "--output", str(file), *references)
    if any("no space left" in line for line in finished.last_lines):
        hint = "make room: the images are written twice, unpacked, beside the bundle"
        raise PrerequisiteError("the disk is full: the images cannot be saved", where=str(file), hint=hint)
    finished.check("the engine does not save the images")
    return await asyncio.to_thread(find, file)


def find(file: Path) -> list[SavedImage]:
    """The images of a file that `docker save` of any version wrote. Every layer is read once."""
    with tarfile.open(file, "r:") as archive:
        members = {posixpath.normpath(member.name): member for member in archive}
        known: dict[str, Slice] = {}

        def content(name: str) -> bytes:
            stream = archive.extractfile(members[name])
            assert stream is not None, name
            return stream.read()

        found: list[SavedImage] = []
        for image in json.loads(content("manifest.json")):
            config = content(posixpath.normpath(image["Config"]))
            layers = [_real(posixpath.normpath(name), members) for name in image["Layers"]]
            for name in layers:
                if name not in known:
                    known[name] = _slice(file, members[name])
            one = SavedImage(config, tuple(known[name] for name in layers))
            _check(one)
            found.append(one)
    return found


def _real(name: str, members: dict[str, tarfile.TarInfo]) -> str:
    """Engine 20.10 writes a layer that several images have once, and links to it."""
    member = members[name]
    if not member.issym():
        return name
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), member.linkname))


def _slice(file: Path, member: tarfile.TarInfo) -> Slice:
    total = hashlib.sha256()
    start = b""
    with file.open("rb") as stream:
        for chunk in plain_tar.chunks(stream, member.offset_data, member.size):
            start = start or chunk[:4]
            total.update(chunk)
    kind = next((kind for magic, kind in _COMPRESSED.items() if start.startswith(magic)), TAR)
    return Slice(total.hexdigest(), member.size, file, member.offset_data, kind)


def _check(image: SavedImage) -> None:
    """A layer that is not compressed must be what the configuration says of it."""
    expected = json.loads(image.config)["rootfs"]["diff_ids"]
    same = len(expected) == len(image.layers) and all(
        layer.media_type != TAR or digest == f"sha256:{layer.sha256}"
        for digest, layer in zip(expected, image.layers, strict=False)
    )
    if not same:
        raise EngineError("the engine saved an image whose layers are not its own", where=image.id)
