"""A benchmark as one artefact of a registry: its content as blobs, and the manifest that names them.

    manifest    artifactType application/vnd.gymctl.benchmark.v1+json
      config    benchmark.json: every file with its digest, so the manifest's digest stands for all of them
      layers    one tar with the small files; rows, large files and images.lock.json each as it is, by title

The same content gives the same bytes.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gymctl.artefacts.content import MANIFEST, Content, Item
from gymctl.artefacts.content import Manifest as BenchmarkManifest
from gymctl.artefacts.descriptor import OCI_MANIFEST, TITLE, Descriptor, manifest_bytes
from gymctl.errors import IntegrityError
from gymctl.images import lock as lock_file

ARTIFACT_TYPE = "application/vnd.gymctl.benchmark.v1+json"
CONFIG_TYPE = "application/vnd.gymctl.benchmark.config.v1+json"
FILES_TYPE = "application/vnd.gymctl.benchmark.files.v1.tar"
FILE_TYPE = "application/vnd.gymctl.benchmark.file.v1"
LARGE = 1 << 20
"""A file of more bytes is a layer of its own."""


@dataclass(frozen=True, slots=True)
class Artefact:
    manifest: bytes
    blobs: tuple[tuple[Descriptor, Item], ...]
    """Everything that the manifest names, each once."""

    @property
    def descriptor(self) -> Descriptor:
        return Descriptor.of(OCI_MANIFEST, self.manifest, artifact_type=ARTIFACT_TYPE)


def pack(content: Content) -> Artefact:
    alone = {*content.manifest.data, lock_file.FILE}
    single = {place: item for place, item in content.files.items() if place in alone or item.size > LARGE}
    single.pop(MANIFEST, None)
    small = {p: item for p, item in content.files.items() if p not in single and p != MANIFEST}
    config = _descriptor(CONFIG_TYPE, content.files[MANIFEST], MANIFEST)
    tar = Item.made(_tar(small))
    layers = [(_descriptor(FILES_TYPE, tar, "files.tar"), tar)]
    layers += [(_descriptor(FILE_TYPE, item, place), item) for place, item in single.items()]
    about = {TITLE: content.name}
    if content.manifest.description:
        about["org.opencontainers.image.description"] = content.manifest.description
    manifest = manifest_bytes(
        config, [layer for layer, _ in layers], artifact_type=ARTIFACT_TYPE, annotations=about
    )
    every = [(config, content.files[MANIFEST]), *layers]
    return Artefact(manifest, tuple({one.digest: (one, item) for one, item in every}.values()))


def _descriptor(media_type: str, item: Item, title: str) -> Descriptor:
    return Descriptor(media_type, f"sha256:{item.sha256}", item.size, annotations={TITLE: title})


def _tar(files: dict[str, Item]) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for place, item in sorted(files.items()):
            entry = tarfile.TarInfo(place)
            entry.size, entry.mode = item.size, 0o755 if item.is_executable else 0o644
            tar.addfile(entry, io.BytesIO(b"".join(item.chunks())))
    return held.getvalue()


def write_file(folder: Path, place: str, chunks: Iterator[bytes], *, is_executable: bool) -> None:
    """One file below `folder`, which nobody should change afterwards."""
    path = folder / place
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as stream:
        for chunk in chunks:
            stream.write(chunk)
    path.chmod(0o555 if is_executable else 0o444)


def unpack_files(tar_file: Path, manifest: BenchmarkManifest, folder: Path, where: str) -> None:
    """The tar layer. What benchmark.json does not list, or is no plain file, is refused."""
    listed = {entry.path: entry for entry in manifest.files}
    try:
        with tarfile.open(tar_file, mode="r:") as tar:
            for member in tar:
                stream = tar.extractfile(member) if member.isreg() else None
                entry = listed.get(member.name)
                # A sparse file is larger than what was sent.
                if stream is None or entry is None or member.issparse() or member.size != entry.size:
                    raise IntegrityError(f"{member.name!r} is no file of the benchmark", where=where)
                chunks = iter(lambda stream=stream: stream.read(1 << 20), b"")
                write_file(folder, entry.path, chunks, is_executable=entry.executable)
    except (tarfile.TarError, FileExistsError, ValueError) as error:
        raise IntegrityError(f"a layer is no tar of files: {error}", where=where) from None
