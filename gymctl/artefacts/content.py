"""What a benchmark consists of: files, laid out as a search root, and `benchmark.json` that lists them.

    benchmark.json                      name, files with their digests, what a run of it must come from
    images.lock.json                    the images of its servers
    benchmarks/weather/config.yaml      and what it includes, prompts, prepare.py, rows
    resources_servers/weather/app.py    every server folder, with the files that its image holds

`--search-dir <that folder> weather` runs it. The same inputs give the same bytes. `gather.py` makes one from
a configuration; the artefact in a registry and the bundle are two ways to carry it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from gymctl import __version__
from gymctl.errors import ConfigError, IntegrityError
from gymctl.images import lock as lock_file

MANIFEST = "benchmark.json"
SCHEMA = 1
SECRET_OVERLAP = 1 << 20
LONGEST_NAME = 255
"""Bytes, as file systems have it."""
LONGEST_PLACE = 1024
_CHUNK = 8 << 20


@dataclass(frozen=True, slots=True)
class Item:
    """One file: on disk, or made (`data`)."""

    sha256: str
    """In hex."""
    size: int
    is_executable: bool = False
    path: Path | None = None
    data: bytes = b""

    @classmethod
    def of(cls, path: Path) -> Self:
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
            size = stream.tell()
        return cls(digest, size, bool(path.stat().st_mode & 0o100), path)

    @classmethod
    def made(cls, data: bytes) -> Self:
        return cls(hashlib.sha256(data).hexdigest(), len(data), data=data)

    def chunks(self) -> Iterator[bytes]:
        """The bytes. Raises IntegrityError when the file is not what it was."""
        if self.path is None:
            yield self.data
            return
        digest = hashlib.sha256()
        with self.path.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
                yield chunk
        if digest.hexdigest() != self.sha256:
            raise IntegrityError("a file changed while it was packed", where=str(self.path), hint="again")

    def __iter__(self) -> Iterator[bytes]:
        """`chunks`, as often as it is asked for."""
        return self.chunks()

    def write_to(self, stream: IO[bytes]) -> None:
        for chunk in self.chunks():
            stream.write(chunk)

    def holds(self, secrets: frozenset[bytes]) -> bool:
        """Whether one of these values (each shorter than `SECRET_OVERLAP`) stands in it."""
        rest = b""
        for chunk in self.chunks():
            text = rest + chunk
            if any(secret in text for secret in secrets):
                return True
            rest = text[-SECRET_OVERLAP:]
        return False


class FileEntry(BaseModel):
    """One line of `files` in benchmark.json."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    path: str
    sha256: str
    size: int
    executable: bool = False


class Template(BaseModel):
    """What a passport of a run of this benchmark must say."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    rows: dict[str, str] = {}
    """By place of each file of rows: the digest that does not depend on their order (passport.RowsDigest)."""
    config: str = ""
    """sha256 over the settings of its servers, secrets masked, addresses left out; in hex."""
    images: dict[str, str] = {}
    """By name and platform: the id of the image's configuration."""


class Manifest(BaseModel):
    """`benchmark.json`."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    schema_version: int = SCHEMA
    name: str
    benchmark: str
    """What selects it below the folder: `weather`, `weather/live`."""
    description: str = ""
    model: str = ""
    """The implementation of the model server of its own; nothing where who runs it chooses the model."""
    gymctl: str = ""
    data: tuple[str, ...] = ()
    """Of `files`: those with rows."""
    files: tuple[FileEntry, ...] = ()
    passport: Template = Template()

    def text(self) -> str:
        return json.dumps(self.model_dump(), indent=2, ensure_ascii=False) + "\n"


@dataclass(frozen=True, slots=True)
class Content:
    """All files by place, sorted; `images.lock.json` and `benchmark.json` are among them."""

    manifest: Manifest
    files: Mapping[str, Item] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.manifest.name

    @property
    def digest(self) -> str:
        """sha256 of benchmark.json, which names every other file; in hex."""
        return self.files[MANIFEST].sha256


def content(
    *,
    name: str,
    benchmark: str,
    files: Mapping[str, Item],
    data: tuple[str, ...] = (),
    template: Template | None = None,
    description: str = "",
    model: str = "",
    lock: lock_file.Lock | None = None,
) -> Content:
    """Files as a whole, with lock and benchmark.json. The images of `lock` enter the template."""
    held = dict(files)
    template = template or Template()
    if lock is not None:
        held[lock_file.FILE] = Item.made(lock.text().encode())
        ids = {f"{one.name} {one.platform}": one.id for one in lock.images}
        template = template.model_copy(update={"images": dict(sorted(ids.items()))})
    for place in held:
        check_place(place)
    manifest = Manifest(
        name=name,
        benchmark=benchmark,
        description=description,
        model=model,
        gymctl=__version__,
        data=tuple(sorted(data)),
        files=tuple(
            FileEntry(path=place, sha256=item.sha256, size=item.size, executable=item.is_executable)
            for place, item in sorted(held.items())
        ),
        passport=template,
    )
    held[MANIFEST] = Item.made(manifest.text().encode())
    return Content(manifest, dict(sorted(held.items())))


def relocked(packed: Content, lock: lock_file.Lock) -> Content:
    """The same content with another lock: with the places that its images have in a registry."""
    manifest = packed.manifest
    files = {place: item for place, item in packed.files.items() if place not in (MANIFEST, lock_file.FILE)}
    return content(
        name=manifest.name,
        benchmark=manifest.benchmark,
        files=files,
        data=manifest.data,
        template=manifest.passport,
        description=manifest.description,
        model=manifest.model,
        lock=lock,
    )


def check_place(place: str) -> None:
    """A place below a folder, whoever wrote it. Raises IntegrityError."""
    path = PurePosixPath(place)
    is_plain = place == str(path) and not path.is_absolute() and ".." not in path.parts and path.parts
    is_name = place.isprintable() and all(len(part.encode()) <= LONGEST_NAME for part in path.parts)
    if not is_plain or not is_name or "\\" in place or len(place) > LONGEST_PLACE:
        raise IntegrityError(f"{place!r} is no place for a file of a benchmark")


def parse(text: bytes, where: str) -> Manifest:
    """benchmark.json as read from anywhere. Raises IntegrityError: broken, or of a newer gymctl."""
    version = lock_file.newer(text, SCHEMA)
    if version is not None:
        what = f"the benchmark was packed by a newer gymctl ({version})"
        raise IntegrityError(what, where=where, hint="use that version")
    try:
        found = Manifest.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"])) or "the file"
        raise IntegrityError(f"{MANIFEST} is broken: {key}: {first['msg']}", where=where) from None
    places = [entry.path for entry in found.files]
    for place in places:
        check_place(place)
    if len(set(places)) != len(places) or MANIFEST in places:
        raise IntegrityError(f"{MANIFEST} lists a file twice", where=where)
    folders = {str(folder) for place in places for folder in PurePosixPath(place).parents}
    if both := folders & {MANIFEST, *places}:
        raise IntegrityError(f"{MANIFEST} lists {min(both)} as a file and as a folder", where=where)
    return found


def check_folder(folder: Path, digest: str | None = None) -> Manifest:
    """Compare an unpacked folder with its benchmark.json; `digest`: what that has to be, in hex.

    Raises IntegrityError that names the first file that differs, is missing or was not there.
    """
    try:
        text = (folder / MANIFEST).read_bytes()
    except OSError as error:
        raise IntegrityError(f"{MANIFEST} cannot be read: {error.strerror}", where=str(folder)) from None
    found_digest = hashlib.sha256(text).hexdigest()
    if digest is not None and found_digest != digest:
        raise differs(MANIFEST, digest, found_digest, folder)
    manifest = parse(text, str(folder / MANIFEST))
    for entry in manifest.files:
        path = folder / entry.path
        try:
            if path.is_symlink():
                raise IntegrityError(f"{entry.path} is a link", where=str(folder), hint=_UNPACK_AGAIN)
            item = Item.of(path)
        except OSError as error:
            what = f"{entry.path} cannot be read: {error.strerror}"
            raise IntegrityError(what, where=str(folder), hint=_UNPACK_AGAIN) from None
        if item.sha256 != entry.sha256:
            raise differs(entry.path, entry.sha256, item.sha256, folder)
        if item.is_executable != entry.executable:
            raise IntegrityError(
                f"{entry.path} changed its mode: executable or not", where=str(folder), hint=_UNPACK_AGAIN
            )
    listed = {MANIFEST, *(entry.path for entry in manifest.files)}
    for path in sorted(folder.rglob("*")):
        place = path.relative_to(folder).as_posix()
        if (path.is_symlink() or not path.is_dir()) and place not in listed:
            what = f"{place} is no part of the benchmark"
            raise IntegrityError(what, where=str(folder), hint=_UNPACK_AGAIN)
    return manifest


_UNPACK_AGAIN = "remove that folder: it is then unpacked again"


def differs(place: str, expected: str, found: str, folder: Path | str) -> IntegrityError:
    """What to raise for a file whose digest is another one."""
    what = f"{place} is not what it was: sha256 {found[:12]}, expected {expected[:12]}"
    return IntegrityError(what, where=str(folder), hint=_UNPACK_AGAIN)


def refuse_secrets(files: Mapping[str, Item], secrets: frozenset[str]) -> None:
    """Raises ConfigError that names each file in which a secret value stands, and no value."""
    values = frozenset(secret.encode("utf-8", "surrogateescape") for secret in secrets if secret)
    found = [place for place, item in sorted(files.items()) if values and item.holds(values)]
    if found:
        raise ConfigError(
            "the benchmark holds the value of a key, token or password that this configuration uses",
            details=found,
            hint="take it out of these files: write ${oc.env:NAME} in its place, or put it into env.yaml",
        )


def settings_digest(blocks: Mapping[str, Any]) -> str:
    """sha256 in hex over settings as JSON with sorted keys."""
    text = json.dumps(blocks, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
