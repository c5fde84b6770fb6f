"""`images.lock.json`: which images a project ran or will run, by digest. Beside a run, in a repository, in an
artefact.

An image is named three ways. `tag` says what it was made from (plan.py). `id` is the digest of the image's
configuration, which holds those of its layers: it is the same before and after a push, in a bundle and on
another machine, and it is what Docker's classic image store calls the image. `digest` is the manifest's, by
which a registry knows it, and an engine with the containerd store; with the classic store it is None until
the image was pushed.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from gymctl.config.names import beside
from gymctl.errors import IntegrityError, PrerequisiteError, UsageError
from gymctl.images.plan import CHECKOUT, registry_of

FILE = "images.lock.json"
SCHEMA = 1

# A lock may come from a stranger, and these go to the engine.
Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
Repository = Annotated[str, Field(pattern=r"^[A-Za-z0-9\[][\w.:/\[\]-]*$", max_length=300)]
Platform = Annotated[str, Field(pattern=r"^[a-z0-9]+/[a-z0-9_]+(/[a-z0-9]+)?$")]


def _named(name: str) -> str:
    """Early locks told where a checkout lay: the path is not passed on."""
    return CHECKOUT if name.startswith("nemo-gym at ") else name


Name = Annotated[str, AfterValidator(_named)]


def short(digest: str | None) -> str:
    """The 12 hex digits that messages show."""
    return "none" if digest is None else digest.removeprefix("sha256:")[:12]


def apart(one: str, other: str) -> tuple[str, str]:
    """Two digests as `short`, or whole where that shows no difference."""
    if one == other or short(one) != short(other):
        return short(one), short(other)
    return one.removeprefix("sha256:"), other.removeprefix("sha256:")


class LockedImage(BaseModel):
    """One image. `name`, `platform` and `context` are its key."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    name: Name
    """What it is the image of: `Dockerfile.base`, `resources_servers/weather`, `nemo-gym==0.7.0`,
    `nemo-gym checkout`. Never a path of the machine that built it."""
    repository: Repository
    """Without tag: `gymctl/resources-weather`, and `HOST/PATH/resources-weather` once it was pushed."""
    tag: str
    id: Digest
    """`sha256:…` of the image's configuration."""
    digest: Digest | None = None
    """`sha256:…` of its manifest."""
    platform: Platform
    """`linux/amd64`."""
    inputs: str
    """sha256 of everything that went in (plan.py), in hex."""
    context: str = ""
    """sha256 over the files of the folder alone, in hex: comparable where the base cannot be planned."""
    base: Name
    """The `name` of the image that it stands on; of a base the reference of the Python image."""
    size: int = 0
    """Bytes, unpacked, with everything below."""

    @property
    def pinned(self) -> str | None:
        """`repository@sha256:…`, what can be pulled; None when it was never pushed."""
        is_pushed = self.digest is not None and registry_of(self.repository) is not None
        return f"{self.repository}@{self.digest}" if is_pushed else None


class Lock(BaseModel):
    """The whole file. The same images give the same bytes: no time is written."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    schema_version: int = SCHEMA
    gymctl: str = ""
    """The version that built the images."""
    images: tuple[LockedImage, ...] = ()

    def find(self, name: str, platform: str, context: str = "") -> LockedImage | None:
        """Two folders may have one name, each in a root of its own: then the one with this `context`."""
        named = [one for one in self.images if (one.name, one.platform) == (name, platform)]
        return next((one for one in named if one.context == context), named[0] if named else None)

    def with_images(self, images: Iterable[LockedImage]) -> Lock:
        """With these in the place of those of the same name and platform: of an edited folder the last image
        stays. Several of one name that are given together, of folders in different roots, all stay."""
        pushed = {one.id: one for one in self.images if one.pinned is not None}
        found = {(one.name, one.platform, one.context): _as_pushed(one, pushed.get(one.id)) for one in images}
        replaced = {(name, platform) for name, platform, _ in found}
        for one in self.images:
            if (one.name, one.platform) not in replaced:
                found[one.name, one.platform, one.context] = one
        return self.model_copy(update={"images": tuple(found[key] for key in sorted(found))})

    def text(self) -> str:
        return json.dumps(self.model_dump(), indent=2) + "\n"


def _as_pushed(image: LockedImage, pushed: LockedImage | None) -> LockedImage:
    """The same image does not lose its place in a registry when it is looked at again."""
    if pushed is None or image.pinned is not None:
        return image
    return image.model_copy(update={"repository": pushed.repository, "digest": pushed.digest})


class _Version(BaseModel):
    """What every schema of a file of ours says, whatever else it has."""

    schema_version: int = SCHEMA
    gymctl: str = ""


def newer(data: bytes, schema: int) -> str | None:
    """The gymctl that wrote a file of a later schema, whose form nobody knows here. None: it is no such."""
    try:
        found = _Version.model_validate_json(data)
    except ValidationError:
        return None
    return found.gymctl if found.schema_version > schema else None


_ANEW = "was it edited by hand? remove it, and `gymctl build` writes it anew"


def read(path: Path) -> Lock:
    """Raises IntegrityError: broken, or written by a newer gymctl; UsageError: there is no such file;
    PrerequisiteError: it cannot be read."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        hint = beside(path, "*lock.json") or "`gymctl build` writes one; `--locked --lock FILE` takes another"
        raise UsageError("there is no lock file", where=str(path), hint=hint) from None
    except OSError as error:
        what = f"the lock file cannot be read: {error.strerror}"
        raise PrerequisiteError(what, where=str(path)) from None
    version = newer(data, SCHEMA)
    if version is not None:
        hint = "use that version"
        raise IntegrityError(f"the lock is of a newer gymctl ({version})", where=str(path), hint=hint)
    try:
        found = Lock.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"])) or "the file"
        what = f"the lock file is broken: {key}: {first['msg']}"
        raise IntegrityError(what, where=str(path), hint=_ANEW) from None
    _refuse_doubles(found, path)
    return found


def _refuse_doubles(lock: Lock, path: Path) -> None:
    """Raises IntegrityError: one image for two servers, or two images for one."""
    by_id: dict[str, LockedImage] = {}
    by_key: dict[tuple[str, str, str], LockedImage] = {}
    for image in lock.images:
        other = by_id.setdefault(image.id, image)
        if other.inputs != image.inputs:
            what = f"the lock has one image, {short(image.id)}, for {other.name} and for {image.name}"
            raise IntegrityError(what, where=str(path), hint=_ANEW)
        other = by_key.setdefault((image.name, image.platform, image.context), image)
        if other.id != image.id:
            ids = f"{short(other.id)} and {short(image.id)}"
            what = f"the lock has two images, {ids}, for {image.name} ({image.platform})"
            raise IntegrityError(what, where=str(path), hint=_ANEW)


def write(path: Path, lock: Lock) -> None:
    """Old or new, never half. Raises PrerequisiteError: the folder is not there, or closed to us."""
    temporary = path.with_name(f".{path.name}.new")
    try:
        temporary.unlink(missing_ok=True)  # of a command that was killed
        try:
            with temporary.open("x", encoding="utf-8") as file:
                file.write(lock.text())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise _unwritable(path, error) from None


@contextmanager
def changing(path: Path) -> Iterator[Lock]:
    """The lock at `path`, empty where there is none, while no other command that changes it is at work.

    Raises IntegrityError: the file is no lock. PrerequisiteError as `write`.
    """
    try:
        descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise _unwritable(path, error) from None
    try:
        # The folder, for the moment that it takes: a file that is replaced cannot be held.
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield read(path) if os.path.lexists(path) else Lock()
    finally:
        os.close(descriptor)


def check_place(path: Path) -> None:
    """What `write` and `changing` would refuse after minutes of building. Raises PrerequisiteError,
    UsageError, and IntegrityError: what is there is no lock."""
    if path.is_dir():
        raise UsageError("a lock is a file, and this is a folder", where=str(path))
    if not path.parent.is_dir():
        raise PrerequisiteError("the folder of the lock is not there", where=str(path.parent))
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise PrerequisiteError(
            "the lock cannot be written: its folder is closed to you", where=str(path), hint=_OTHER_PLACE
        )
    if os.path.lexists(path):
        read(path)


_OTHER_PLACE = "--lock FILE names another place"


def _unwritable(path: Path, error: OSError) -> PrerequisiteError:
    return PrerequisiteError(
        f"the lock cannot be written: {error.strerror}", where=str(path), hint=_OTHER_PLACE
    )
