"""What an engine calls an image: its configuration (classic store) or its manifest (containerd store).

A lock names both, so that it means the same images on either engine. An engine with the containerd store does
not say what an image's configuration is; it is read from what `docker save` would write, once for each image.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Collection, Iterable, Mapping
from io import RawIOBase
from pathlib import Path
from typing import Any

from gymctl.engine import Engine
from gymctl.errors import IntegrityError
from gymctl.images.lock import LockedImage
from gymctl.images.plan import LABEL_INPUTS
from gymctl.paths import cache_dir

_BLOBS = "blobs/sha256/"
_CHUNK = 1 << 20


def held(engine: Engine, image: LockedImage) -> str | None:
    """The engine's id of a locked image, when it has it; what `docker` commands take, too. Blocking."""
    for reference in (image.id, image.digest, image.pinned):
        found = None if reference is None else engine.image_id(reference)
        if found is not None and found in (image.id, image.digest):
            return found
    return _under_another_manifest(engine, image) if engine.has_containerd_store else None


def _under_another_manifest(engine: Engine, image: LockedImage) -> str | None:
    """A manifest names layers as they are packed: that of a loaded image is not the one that was pushed."""
    rows = engine.api.api.images(filters={"label": f"{LABEL_INPUTS}={image.inputs}"})
    named = sorted({str(row["Id"]) for row in rows})
    configs = configurations(engine, named)
    return next((one for one in named if configs.get(one) == image.id), None)


def held_or_gone(engine: Engine, image: LockedImage) -> str:
    """As `held`. Raises IntegrityError."""
    found = held(engine, image)
    if found is None:
        what = f"the image of {image.name} is gone"
        raise IntegrityError(what, where=image.id, hint="run it again: it is rebuilt")
    return found


def configuration(engine: Engine, reference: str) -> str | None:
    """The digest of a local image's configuration, the same in either store; of an index of several platforms
    its own. None: it is not there, or for another platform. Blocking, as `configurations`."""
    found = engine.image_id(reference)
    if found is None or not engine.has_containerd_store:
        return found
    return configurations(engine, [found]).get(found, found)


def named_by_manifest(image: Mapping[str, Any]) -> bool:
    """Whether an image, as `inspect` shows it, has its manifest's digest for an id."""
    return any(str(one).endswith(f"@{image['Id']}") for one in image.get("RepoDigests") or ())


def configurations(engine: Engine, manifests: Iterable[str]) -> dict[str, str]:
    """By the digest of each manifest, an image's id in the containerd store: that of its configuration. One
    that is an index of several platforms is left out. Blocking; seconds for images not seen before."""
    wanted = set(manifests)
    known = {digest: found for digest in wanted if (found := _kept(digest)) is not None}
    for digest, found in _saved(engine, wanted - known.keys()).items():
        known[digest] = found
        _place(digest).parent.mkdir(parents=True, exist_ok=True)
        _place(digest).write_text(found)
    return known


def _saved(engine: Engine, wanted: Collection[str]) -> dict[str, str]:
    """From `docker save` of all, which has what they share once; read up to the last manifest."""
    if not wanted:
        return {}
    api = engine.api.api
    url = f"{api.base_url}/v{api.api_version}/images/get"
    found: dict[str, str] = {}
    with (
        api.get(url, params={"names": sorted(wanted)}, stream=True) as answer,
        tarfile.open(fileobj=_Body(answer.iter_content(_CHUNK)), mode="r|") as archive,
    ):
        answer.raise_for_status()
        for member in archive:
            digest = f"sha256:{member.name.removeprefix(_BLOBS)}"
            stream = archive.extractfile(member) if digest in wanted else None
            if stream is not None:
                config = json.load(stream).get("config")
                if config is not None:
                    found[digest] = str(config["digest"])
                if len(found) == len(wanted):
                    break
    return found


class _Body(RawIOBase):
    """An answer's chunks as a file."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._rest = b""

    def read(self, size: int = -1) -> bytes:
        while len(self._rest) < size:
            chunk = next(self._chunks, b"")
            if not chunk:
                break
            self._rest += chunk
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken


def _kept(digest: str) -> str | None:
    try:
        return _place(digest).read_text()
    except OSError:
        return None


def _place(digest: str) -> Path:
    return cache_dir() / "configurations" / digest.removeprefix("sha256:")
