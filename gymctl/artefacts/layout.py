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
from dataclasses import dataclass
from typing import Any, Protocol

from gymctl.artefacts.content import MANIFEST, Content, Item
from gymctl.artefacts.saved import SavedImage
from gymctl.images.lock import LockedImage

BLOBS = "blobs/sha256/"
SUMS = "SHA256SUMS"
INDEX = "index.json"
DOCKER = "manifest.json"
OTHERS = ("README.md", SUMS, INDEX, "load.sh", DOCKER, "oci-layout")
"""All files but the blobs."""

OCI = "application/vnd.oci.image"
MANIFEST_TYPE = f"{OCI}.manifest.v1+json"
BENCHMARK = "application/vnd.gymctl.benchmark.v1+json"
FILE_TYPE = "application/octet-stream"
EMPTY_TYPE = "application/vnd.oci.empty.v1+json"
SBOM = "application/vnd.cyclonedx+json"
TITLE = "org.opencontainers.image.title"
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
        return f"{self.locked.repository}:{self.locked.tag}"


def files(content: Content, images: Sequence[PackedImage]) -> dict[str, Source]:
    """Every file of the bundle by its name, in order."""
    blobs = _Blobs()
    entries = [entry for image in images for entry in _image(image, blobs)]
    entries.append(_benchmark(content, blobs))
    index = {"schemaVersion": 2, "mediaType": f"{OCI}.index.v1+json", "manifests": entries}
    loaded = [_docker(image) for image in images]
    made = {
        "README.md": _README.format(name=content.name, version=content.manifest.gymctl),
        "load.sh": _LOAD,
        "oci-layout": json.dumps({"imageLayoutVersion": "1.0.0"}),
        INDEX: _json(index).decode(),
        DOCKER: _json(loaded).decode(),
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

    def add(self, source: Source, media_type: str, **more: Any) -> dict[str, Any]:
        """Returns the descriptor (image-spec 1.1, descriptor.md)."""
        self.found.setdefault(source.sha256, source)
        return {
            "mediaType": media_type,
            "digest": f"sha256:{source.sha256}",
            "size": source.size,
            **{key: value for key, value in more.items() if value},
        }


def _image(image: PackedImage, blobs: _Blobs) -> Iterator[dict[str, Any]]:
    """The image's entry in index.json, then its SBOM's, which refers to it."""
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": blobs.add(Item.made(image.saved.config), f"{OCI}.config.v1+json"),
        "layers": [blobs.add(layer, layer.media_type) for layer in image.saved.layers],
    }
    names = {REF: image.locked.tag, CONTAINERD: _full(image.reference), NAME: image.locked.name}
    entry = blobs.add(Item.made(_json(manifest)), MANIFEST_TYPE)
    yield {**entry, "annotations": names, "platform": _platform(image.locked.platform)}
    title = {TITLE: f"{image.locked.name}.cdx.json"}
    bill = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "artifactType": SBOM,
        "config": blobs.add(Item.made(b"{}"), EMPTY_TYPE),
        "layers": [blobs.add(Item.made(image.sbom), SBOM, annotations=title)],
        "subject": entry,
    }
    yield {**blobs.add(Item.made(_json(bill)), MANIFEST_TYPE), "artifactType": SBOM}


def _benchmark(content: Content, blobs: _Blobs) -> dict[str, Any]:
    """The benchmark's entry in index.json: one layer a file, benchmark.json as the configuration."""
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "artifactType": BENCHMARK,
        "config": blobs.add(content.files[MANIFEST], BENCHMARK),
        "layers": [
            blobs.add(item, FILE_TYPE, annotations={TITLE: place})
            for place, item in content.files.items()
            if place != MANIFEST
        ],
    }
    entry = blobs.add(Item.made(_json(manifest)), MANIFEST_TYPE, annotations={REF: content.name})
    return {**entry, "artifactType": BENCHMARK}


def _docker(image: PackedImage) -> Mapping[str, Any]:
    """The image's entry in manifest.json, as `docker save` writes it."""
    return {
        "Config": BLOBS + image.saved.id.removeprefix("sha256:"),
        "RepoTags": [image.reference],
        "Layers": [BLOBS + layer.sha256 for layer in image.saved.layers],
    }


def _full(reference: str) -> str:
    """With its registry, as containerd wants it."""
    first, _, rest = reference.partition("/")
    has_host = rest and ("." in first or ":" in first or first == "localhost")
    return reference if has_host else f"docker.io/{reference if rest else f'library/{reference}'}"


def _platform(platform: str) -> dict[str, str]:
    return dict(zip(("os", "architecture", "variant"), platform.split("/"), strict=False))


def _json(value: object) -> bytes:
    return json.dumps(value, indent=1, ensure_ascii=False).encode() + b"\n"
