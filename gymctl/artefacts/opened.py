"""A bundle opened: every byte of the file is checked before anything of it is used.

A blob must have the digest that is its name, any other file the one in SHA256SUMS, and the lock and
benchmark.json must name just the images and files that are there. What differs is refused by what it is:
`layer 2 of resources_servers/weather`, `benchmarks/weather/data/example.jsonl`.
"""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pydantic import ValidationError

from gymctl.artefacts import content, layout, plain_tar
from gymctl.artefacts.descriptor import TITLE, digest_of, short
from gymctl.artefacts.pack import ARTIFACT_TYPE, FILES_TYPE
from gymctl.artefacts.plain_tar import Entry
from gymctl.config.names import beside
from gymctl.errors import GymctlError, IntegrityError, PrerequisiteError, UsageError
from gymctl.images import lock as lock_file
from gymctl.images.lock import Lock
from gymctl.images.sbom import MEDIA_TYPE as SBOM

LARGEST_MANIFEST = 16 << 20
"""Bytes of JSON that are read at once."""
AGAIN = "get the file again, or bundle again"
_KINDS = {ARTIFACT_TYPE: "the benchmark", SBOM: "an SBOM"}
SMALL = "files.tar of the benchmark"
_BLOB = re.compile(re.escape(layout.BLOBS) + "[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Opened:
    """A bundle that is whole."""

    path: Path
    manifest: content.Manifest
    artefact: bytes
    """The manifest of the benchmark, as a registry would have it."""
    lock: Lock
    places: Mapping[str, Entry]
    """Files of the benchmark that are blobs: benchmark.json, the lock, rows, large ones."""
    small: Entry
    """A tar with the others."""
    manifests: Mapping[str, str]
    """By id of an image's configuration: the digest of its manifest in the bundle."""

    @property
    def digest(self) -> str:
        """`sha256:…` of `artefact`."""
        return digest_of(self.artefact)

    def chunks(self, entry: Entry) -> Iterator[bytes]:
        """The bytes of `small`, or of one of `places`. Raises IntegrityError: it ends earlier than it did."""
        with self.path.open("rb") as stream:
            try:
                yield from plain_tar.chunks(stream, entry.offset, entry.size)
            except EOFError:
                what = "the bundle changed while it was read"
                raise IntegrityError(what, where=str(self.path), hint=AGAIN) from None


def open_bundle(path: Path) -> Opened:
    """Read the file once, whole. Raises IntegrityError for whatever is not as it was packed; UsageError:
    there is no such file; PrerequisiteError: it cannot be read."""
    try:
        stream = path.open("rb")
    except FileNotFoundError:
        hint = beside(path, "*.gymb") or "`gymctl bundle NAME` writes one"
        raise UsageError("there is no such bundle", where=str(path), hint=hint) from None
    except OSError as error:
        what = f"the bundle cannot be read: {error.strerror}"
        raise PrerequisiteError(what, where=str(path)) from None
    with stream:
        _check_kind(path, stream)
        entries = {entry.name: entry for entry in plain_tar.scan(stream, str(path))}
        bundle = _Bundle(path, stream, entries)
        bundle.check_names()
        bundle.check_digests()
        try:
            return bundle.opened()
        except (KeyError, IndexError, TypeError, AttributeError, ValueError, RecursionError):
            what = f"{layout.INDEX}, {layout.DOCKER} or a manifest is not what gymctl writes"
            raise IntegrityError(what, where=str(path)) from None


_COMPRESSED = {b"\x1f\x8b": "gunzip", b"\x28\xb5\x2f\xfd": "unzstd", b"\xfd7zXZ": "unxz"}


def _check_kind(path: Path, stream: IO[bytes]) -> None:
    """Raises IntegrityError for what was never a bundle, or is one inside something else."""
    start = stream.read(plain_tar.BLOCK)
    stream.seek(0)
    for magic, program in _COMPRESSED.items():
        if start.startswith(magic):
            hint = f"`{program}` it first"
            raise IntegrityError("the file is compressed", where=str(path), hint=hint)
    if len(start) == plain_tar.BLOCK and start[257:262] != b"ustar":
        raise IntegrityError("this is no bundle", where=str(path), hint="`gymctl bundle` writes one")


class _Bundle:
    """The file while it is looked at."""

    def __init__(self, path: Path, stream: IO[bytes], entries: Mapping[str, Entry]) -> None:
        self._path = path
        self._stream = stream
        self._entries = entries

    def check_names(self) -> None:
        for name in self._entries:
            if name not in layout.OTHERS and not _BLOB.fullmatch(name):
                raise self._wrong(f"{name!r} is no part of a bundle")
        for name in layout.OTHERS:
            if name not in self._entries:
                raise self._wrong(f"{name} is missing: this is no bundle, or not all of one")

    def check_digests(self) -> None:
        damaged = {
            name: entry.sha256
            for name, entry in self._entries.items()
            if name.startswith(layout.BLOBS) and name != layout.BLOBS + entry.sha256
        }
        found = [
            f"{name} is damaged: SHA256SUMS says {short(says)}, found {short(self._entries[name].sha256)}"
            for name, says in self._other_sums(damaged).items()
        ]
        if damaged:
            names = self._descriptions()
            for name, digest in damaged.items():
                expected = name.removeprefix(layout.BLOBS)
                what = names.get(expected, f"blob {short(expected)}")
                if what == SMALL:
                    what = self._in_small(self._entries[name]) or what
                found.append(f"{what} is damaged: found sha256 {short(digest)}, expected {short(expected)}")
        if len(found) > 1:
            what = f"{len(found)} parts of the bundle are damaged"
            raise IntegrityError(what, where=str(self._path), details=found, hint=AGAIN)
        if found:
            raise self._wrong(found[0])

    def _other_sums(self, damaged: Mapping[str, str]) -> dict[str, str]:
        """The files that are no blobs whose digest SHA256SUMS does not say, with what it says. Raises
        IntegrityError when SHA256SUMS itself is broken: a line of it is no line of it, or of no file."""
        text = self._read(layout.SUMS).decode("utf-8", "replace")
        says = {line[66:]: line[:64] for line in text.splitlines()}
        others = {name: entry for name, entry in self._entries.items() if name not in damaged}
        blobs = {name for name in self._entries if name.startswith(layout.BLOBS)}
        expected = {
            name: name.removeprefix(layout.BLOBS) if name in blobs else says.get(name, "")
            for name in self._entries
        }
        if text.encode() != layout.sums(expected.items()):
            raise self._wrong(f"{layout.SUMS} is damaged: it does not list the files that are here")
        return {
            name: says[name]
            for name, entry in others.items()
            if name not in blobs and name != layout.SUMS and says[name] != entry.sha256
        }

    def _descriptions(self) -> dict[str, str]:
        """What each blob is, by its digest in hex, as far as index.json and manifests can be read."""
        found: dict[str, str] = {}
        for entry in self._listed():
            name = str(entry.get("annotations", {}).get(layout.NAME, ""))
            kind = {ARTIFACT_TYPE: "the benchmark", SBOM: "an SBOM"}.get(entry.get("artifactType", ""))
            found.setdefault(_hex(entry), f"the manifest of {name or kind}")
            manifest = self._manifest(entry)
            config = content.MANIFEST if kind == "the benchmark" else f"the configuration of {name or kind}"
            found.setdefault(_hex(manifest.get("config", {})), config)
            for number, layer in enumerate(manifest.get("layers", ()), 1):
                title = str(layer.get("annotations", {}).get(TITLE, ""))
                if layer.get("mediaType") == FILES_TYPE:
                    title = SMALL
                found.setdefault(_hex(layer), title or f"layer {number} of {name}")
        return found

    def _in_small(self, tar: Entry) -> str:
        """Which files of the tar are not what benchmark.json says; empty where that cannot be told."""
        try:
            (listed,) = (entry for entry in self._listed() if entry.get("artifactType") == ARTIFACT_TYPE)
            text = self._bytes(self._blob(self._manifest(listed)["config"]))
            known = {entry.path: entry.sha256 for entry in content.parse(text, "").files}
            with tarfile.open(fileobj=io.BytesIO(self._bytes(tar))) as archive:
                files = {one.name: archive.extractfile(one) for one in archive}
                found = {name: file.read() for name, file in files.items() if file is not None}
        except (ValueError, KeyError, GymctlError, tarfile.TarError):
            return ""
        wrong = [name for name, data in found.items() if digest_of(data) != f"sha256:{known.get(name)}"]
        return ", ".join(wrong)

    def opened(self) -> Opened:
        """What is inside, once every file is known to be whole."""
        places: dict[str, Entry] = {}
        small: list[Entry] = []
        artefact = b""
        configs: dict[str, str] = {}
        names: dict[str, set[str]] = {}
        loaded: dict[str, list[str]] = {}
        reached: set[str] = set()
        for entry in self._listed():
            manifest = self._manifest(entry)
            described = (manifest["config"], *manifest["layers"])
            held = [self._blob(one) for one in described]
            reached |= {self._blob(entry).sha256, *(one.sha256 for one in held)}
            if "artifactType" in entry and "annotations" in entry:
                raise self._wrong(f"{layout.INDEX} gives a name to what is no image")
            if entry.get("artifactType") == ARTIFACT_TYPE:
                artefact = self._bytes(self._blob(entry))
                titled = zip(described, held, strict=True)
                places = {one["annotations"][TITLE]: blob for one, blob in titled}
                small = [places.pop(one["annotations"][TITLE]) for one in described if _is_small(one)]
            elif "artifactType" not in entry:
                id = str(manifest["config"]["digest"])
                configs[id] = str(entry["digest"])
                names[id] = {str(entry["annotations"][layout.CONTAINERD])}
                loaded[held[0].name] = [one.name for one in held[1:]]
        stray = {name.removeprefix(layout.BLOBS) for name in self._entries} - {*layout.OTHERS, *reached}
        if stray:
            raise self._wrong(f"blob {short(min(stray))} belongs to nothing in {layout.INDEX}")
        docker = json.loads(self._read(layout.DOCKER))
        if {image["Config"]: image["Layers"] for image in docker} != loaded:
            raise self._wrong(f"{layout.DOCKER} names other images than {layout.INDEX}")
        for image in docker:
            id = f"sha256:{image['Config'].removeprefix(layout.BLOBS)}"
            names[id] |= {f"docker.io/{tag}" for tag in image["RepoTags"]}
        manifest, lock = self._agreeing(places, configs)
        self._check_references(names, lock)
        return Opened(self._path, manifest, artefact, lock, places, small[0], configs)

    def _agreeing(
        self, places: Mapping[str, Entry], configs: Mapping[str, str]
    ) -> tuple[content.Manifest, Lock]:
        """benchmark.json and lock, which name what is there; or IntegrityError."""
        for place in (content.MANIFEST, lock_file.FILE):
            if place not in places:
                raise self._wrong(f"the benchmark has no {place}")
        manifest = content.parse(self._bytes(places[content.MANIFEST]), str(self._path))
        listed = {entry.path: entry.sha256 for entry in manifest.files}
        for place, entry in places.items():
            if place != content.MANIFEST and listed.get(place) != entry.sha256:
                raise self._wrong(f"{place} is not the file that {content.MANIFEST} names")
        try:
            lock = Lock.model_validate_json(self._bytes(places[lock_file.FILE]))
        except ValidationError:
            raise self._wrong(f"{lock_file.FILE} is broken") from None
        for image in lock.images:
            if image.id not in configs:
                raise self._wrong(f"the image of {image.name} is not the one in {lock_file.FILE}")
        return manifest, lock

    def _check_references(self, names: Mapping[str, set[str]], lock: Lock) -> None:
        """An image is loaded under just the name that it has in a bundle, and none but the locked ones."""
        allowed: dict[str, set[str]] = {}
        for image in lock.images:
            allowed.setdefault(image.id, set()).add(layout.full_reference(image))
        for id, found in names.items():
            if others := found - allowed.get(id, set()):
                what = f"{layout.INDEX} or {layout.DOCKER} gives an image a name that is not its own"
                raise IntegrityError(f"{what}: {min(others)}", where=str(self._path), hint="do not load it")

    def _listed(self) -> list[dict[str, Any]]:
        return self._parsed(self._entries[layout.INDEX]).get("manifests", [])

    def _manifest(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        """The manifest that an entry of index.json names; empty when it is damaged and so cannot be read."""
        blob = self._entries.get(layout.BLOBS + _hex(entry))
        return {} if blob is None else self._parsed(blob)

    def _blob(self, descriptor: Mapping[str, Any]) -> Entry:
        found = self._entries.get(layout.BLOBS + _hex(descriptor))
        if found is None or found.size != descriptor["size"]:
            raise self._wrong(f"blob {short(_hex(descriptor))} is missing or has another size")
        return found

    def _parsed(self, entry: Entry) -> dict[str, Any]:
        """JSON; nothing when the bytes are not what they were, or no JSON."""
        is_blob = entry.name.startswith(layout.BLOBS)
        if is_blob and entry.name != layout.BLOBS + entry.sha256:
            return {}
        try:
            found = json.loads(self._bytes(entry))
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    def _read(self, name: str) -> bytes:
        return self._bytes(self._entries[name])

    def _bytes(self, entry: Entry) -> bytes:
        if entry.size > LARGEST_MANIFEST:
            raise self._wrong(f"{entry.name} is too large")
        return b"".join(plain_tar.chunks(self._stream, entry.offset, entry.size))

    def _wrong(self, what: str) -> IntegrityError:
        return IntegrityError(what, where=str(self._path), hint=AGAIN)


def _is_small(descriptor: Mapping[str, Any]) -> bool:
    return descriptor["mediaType"] == FILES_TYPE


def _hex(descriptor: Mapping[str, Any]) -> str:
    return str(descriptor.get("digest", "")).removeprefix("sha256:")
