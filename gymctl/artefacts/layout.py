"""The files of a bundle: an OCI image layout (image-spec 1.1, image-layout.md), and what `docker load` reads.

    README.md, load.sh        how to use it without gymctl
    SHA256SUMS                `sha256sum -c` checks every file
    oci-layout, index.json    images, the benchmark, SBOMs: each by its manifest
    manifest.json             the images once more, as `docker save` names them
    blobs/sha256/<digest>     manifests, configurations, layers, files: each once, whoever shares it

Layers are not compressed: their digests are then those in the image's configuration, which is the image's id
in the lock, and no compressor's version changes a byte. (A bundle of 246 MB: `zstd` makes it 82 MB in 1.6 s;
gzipped layers would be 88 MB after 11 s.)
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from gymctl.artefacts.content import Content, Item
from gymctl.artefacts.descriptor import (
    EMPTY,
    OCI_EMPTY,
    OCI_INDEX,
    OCI_MANIFEST,
    TITLE,
    Descriptor,
    canonical,
    manifest_bytes,
)
from gymctl.artefacts.pack import ARTIFACT_TYPE, pack
from gymctl.artefacts.saved import SavedImage
from gymctl.images.lock import LockedImage
from gymctl.images.plan import LOADED
from gymctl.images.sbom import MEDIA_TYPE as SBOM

BLOBS = "blobs/sha256/"
SUMS = "SHA256SUMS"
INDEX = "index.json"
DOCKER = "manifest.json"
OTHERS = ("README.md", SUMS, INDEX, "load.sh", DOCKER, "oci-layout")
"""All files but the blobs."""

OCI = "application/vnd.oci.image"
REF = "org.opencontainers.image.ref.name"
CONTAINERD = "io.containerd.image.name"
NAME = "dev.gymctl.name"
"""Annotation of an image in index.json: its name in the lock."""

_README = """\
# {name}

A benchmark for LLM agents, packed by gymctl {version}: the images of its servers, its configuration and data.

    gymctl unbundle FILE.gymb              check everything, load the images, unpack the benchmark
    gymctl eval FILE.gymb --model-type …   the same, and run it

Without gymctl:

    docker load -i FILE.gymb               load the images; this file is a Docker archive, too
    tar xf FILE.gymb && sh load.sh         check every file first
    sha256sum -c SHA256SUMS                only check

`index.json` is an OCI image layout: any tool for those reads the images, the benchmark's files and the SBOMs.
"""
_LOAD = """\
#!/bin/sh
# Checks every file of the bundle beside this script, then loads its images into Docker.
set -eu
cd "$(dirname "$0")"
sha256sum --quiet --strict -c SHA256SUMS
tar -cf - blobs manifest.json | docker load
"""


class Source(Protocol):
    """Bytes that are in a file, or were made."""

    @property
    def sha256(self) -> str: ...
    @property
    def size(self) -> int: ...
    def chunks(self) -> Iterator[bytes]: ...


@dataclass(frozen=True, slots=True)
class PackedImage:
    """One image with what the bundle says of it."""

    locked: LockedImage
    saved: SavedImage
    sbom: bytes

    @property
    def reference(self) -> str:
        return reference(self.locked)


def reference(image: LockedImage) -> str:
    """What an engine calls the image once it is loaded. Never a name that a build looks for: an image out of
    somebody's file must not take the place of one that was built here."""
    return f"{LOADED}{image.repository.rsplit('/', 1)[-1]}:{image.id[7:27]}"


def full_reference(image: LockedImage) -> str:
    """With its registry, as containerd wants it."""
    return f"docker.io/{reference(image)}"


def files(content: Content, images: Sequence[PackedImage]) -> dict[str, Source]:
    """Every file of the bundle by its name, in order."""
    blobs = _Blobs()
    entries = [entry for image in images for entry in _image(image, blobs)]
    entries.append(_benchmark(content, blobs))
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries}
    loaded = [_docker(image) for image in images]
    made = {
        "README.md": _README.format(name=content.name, version=content.manifest.gymctl),
        "load.sh": _LOAD,
        "oci-layout": json.dumps({"imageLayoutVersion": "1.0.0"}),
        INDEX: canonical(index).decode(),
        DOCKER: canonical(loaded).decode(),
    }
    found: dict[str, Source] = {name: Item.made(text.encode()) for name, text in made.items()}
    found |= {f"{BLOBS}{digest}": source for digest, source in blobs.found.items()}
    found[SUMS] = Item.made(sums((name, source.sha256) for name, source in found.items()))
    return dict(sorted(found.items()))


def sums(digests: Iterable[tuple[str, str]]) -> bytes:
    """SHA256SUMS of files, as `sha256sum` writes it, in order of their names."""
    return "".join(f"{digest}  {name}\n" for name, digest in sorted(digests) if name != SUMS).encode()


class _Blobs:
    """Each content once, by its digest."""

    def __init__(self) -> None:
        self.found: dict[str, Source] = {}

    def add(self, source: Source, media_type: str, **more: Any) -> Descriptor:
        self.found.setdefault(source.sha256, source)
        return Descriptor(media_type, f"sha256:{source.sha256}", source.size, **more)


def _image(image: PackedImage, blobs: _Blobs) -> Iterator[dict[str, Any]]:
    """The image's entry in index.json, then its SBOM's, which refers to it."""
    manifest = {
        "schemaVersion": 2,
        "mediaType": OCI_MANIFEST,
        "config": blobs.add(Item.made(image.saved.config), f"{OCI}.config.v1+json").json(),
        "layers": [blobs.add(layer, layer.media_type).json() for layer in image.saved.layers],
    }
    names = {
        REF: image.reference.partition(":")[2],
        CONTAINERD: full_reference(image.locked),
        NAME: image.locked.name,
    }
    subject = blobs.add(Item.made(canonical(manifest)), OCI_MANIFEST)
    yield {**replace(subject, annotations=names).json(), "platform": _platform(image.locked.platform)}
    bill = manifest_bytes(
        blobs.add(Item.made(EMPTY), OCI_EMPTY),
        [blobs.add(Item.made(image.sbom), SBOM, annotations={TITLE: f"{image.locked.name}.cdx.json"})],
        artifact_type=SBOM,
        subject=subject,
    )
    yield blobs.add(Item.made(bill), OCI_MANIFEST, artifact_type=SBOM).json()


def _benchmark(content: Content, blobs: _Blobs) -> dict[str, Any]:
    """The benchmark's entry in index.json: the artefact that `push` sends to a registry. It has no reference
    name: an engine with the containerd store would load it as an image of that name."""
    artefact = pack(content)
    for descriptor, item in artefact.blobs:
        blobs.add(item, descriptor.media_type)
    return blobs.add(Item.made(artefact.manifest), OCI_MANIFEST, artifact_type=ARTIFACT_TYPE).json()


def _docker(image: PackedImage) -> Mapping[str, Any]:
    """The image's entry in manifest.json, as `docker save` writes it."""
    return {
        "Config": BLOBS + image.saved.id.removeprefix("sha256:"),
        "RepoTags": [image.reference],
        "Layers": [BLOBS + layer.sha256 for layer in image.saved.layers],
    }


def _platform(platform: str) -> dict[str, str]:
    return dict(zip(("os", "architecture", "variant"), platform.split("/"), strict=False))
