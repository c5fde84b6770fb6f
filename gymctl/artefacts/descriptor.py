"""What one thing in a registry says about another: media type, digest, size (OCI image spec 1.1)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gymctl.artefacts.answers import json_object, list_in
from gymctl.errors import IntegrityError

OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_EMPTY = "application/vnd.oci.empty.v1+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
MANIFESTS = (OCI_MANIFEST, DOCKER_MANIFEST, OCI_INDEX, DOCKER_LIST)
INDEXES = (OCI_INDEX, DOCKER_LIST)
EMPTY = b"{}"
TITLE = "org.opencontainers.image.title"


@dataclass(frozen=True, slots=True)
class Descriptor:
    media_type: str
    digest: str
    size: int
    artifact_type: str | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, media_type: str, data: bytes, **more: Any) -> Descriptor:
        return cls(media_type, digest_of(data), len(data), **more)

    @classmethod
    def read(cls, found: Any, where: str) -> Descriptor:
        """From a manifest's JSON. Raises IntegrityError."""
        try:
            digest, size = str(found["digest"]), int(found["size"])
            if not is_digest(digest) or size < 0:
                raise ValueError
            return cls(
                str(found["mediaType"]),
                digest,
                size,
                found.get("artifactType"),
                {str(key): str(value) for key, value in (found.get("annotations") or {}).items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            raise IntegrityError("a manifest is broken: a descriptor lacks its digest", where=where) from None

    def json(self) -> dict[str, Any]:
        more: dict[str, Any] = {"artifactType": self.artifact_type} if self.artifact_type else {}
        if self.annotations:
            more["annotations"] = dict(sorted(self.annotations.items()))
        return {"mediaType": self.media_type, "digest": self.digest, "size": self.size, **more}


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest as the registry gave it: the bytes count."""

    data: bytes
    media_type: str

    @property
    def digest(self) -> str:
        return digest_of(self.data)

    def parsed(self, where: str) -> dict[str, Any]:
        found = json_object(self.data)
        if found is None:
            raise IntegrityError("a manifest is broken: it is no JSON object", where=where)
        return found

    def config(self, where: str) -> Descriptor:
        return Descriptor.read(self.parsed(where).get("config"), where)

    def layers(self, where: str) -> list[Descriptor]:
        return [Descriptor.read(layer, where) for layer in list_in(self.parsed(where), "layers")]

    def descriptor(self, artifact_type: str | None = None) -> Descriptor:
        return Descriptor(self.media_type, self.digest, len(self.data), artifact_type)


def manifest_bytes(
    config: Descriptor,
    layers: list[Descriptor],
    *,
    artifact_type: str,
    subject: Descriptor | None = None,
    annotations: Mapping[str, str] | None = None,
) -> bytes:
    """An OCI manifest; the same input gives the same bytes."""
    more: dict[str, Any] = {} if subject is None else {"subject": subject.json()}
    if annotations:
        more["annotations"] = dict(sorted(annotations.items()))
    return canonical(
        {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "artifactType": artifact_type,
            "config": config.json(),
            "layers": [layer.json() for layer in layers],
            **more,
        }
    )


def canonical(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def is_digest(text: str) -> bool:
    algorithm, _, value = text.partition(":")
    return algorithm == "sha256" and len(value) == 64 and set(value) <= set("0123456789abcdef")


def short(digest: str) -> str:
    """`sha256:` and 12 digits, as messages show it."""
    return digest[: len("sha256:") + 12] if digest.startswith("sha256:") else digest[:12]
