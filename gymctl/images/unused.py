"""Which images of ours nobody needs any more: no container uses them, no lock names them, and they have no
name or are older than another of the same server.

An image that somebody gave a name of their own is theirs, and stays.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gymctl.errors import GymctlError
from gymctl.images import scratch
from gymctl.images.plan import AGAIN, LABEL_BASE, LABEL_INPUTS, LOADED

if TYPE_CHECKING:
    from pathlib import Path

    from gymctl.engine import Engine

OWN_NAMES = ("gymctl/", LOADED)
SHORTEST_TAG = 16
"""Hexadecimal digits of `inputs` that nobody types by chance."""
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
LOCKS = ("images.lock.json", "results/*/images.lock.json", "runs/*/images.lock.json")
"""Below the current folder: of the folder, and of its runs, which are to be run again."""


@dataclass(frozen=True, slots=True)
class HeldImage:
    """One image that gymctl built, as the engine holds it."""

    id: str
    tags: tuple[str, ...]
    digests: tuple[str, ...]
    """`repository@sha256:…` by which it was pulled."""
    inputs: str
    """sha256 of what it was made from, in hex; its tags are the beginning of it."""
    platform: str
    base: str
    """The tag that it stands on."""
    tagged: str
    """When it got its last tag, as a text that sorts."""
    is_used: bool
    """By a container, running or not."""
    own_size: int
    """Bytes that no other image has."""

    @property
    def is_named_by_others(self) -> bool:
        """`gymctl push` gives it the name that it has in a registry, with the tag of ours."""
        return any(not name.startswith(OWN_NAMES) and not self._is_pushed_as(name) for name in self.tags)

    @property
    def names_of_checks(self) -> tuple[str, ...]:
        """Those that `build --check-reproducible` gave."""
        return tuple(name for name in self.tags if name.startswith(AGAIN))

    def _is_pushed_as(self, name: str) -> bool:
        tag = name.rpartition(":")[2]
        return len(tag) >= SHORTEST_TAG and self.inputs.startswith(tag)


@dataclass(frozen=True, slots=True)
class Unused:
    image: HeldImage
    why: str


def held(engine: Engine) -> list[HeldImage]:
    """All images with our label. Blocking; the engine adds up its layers, which takes a second or more."""
    rows = [row for row in engine.api.df()["Images"] or () if LABEL_INPUTS in (row.get("Labels") or {})]
    containers = engine.api.api.containers(all=True)
    used = {row["ImageID"] for row in containers}
    return [_held(row, _inspect(row, engine), is_used=row["Id"] in used) for row in rows]


def _held(row: Mapping[str, Any], found: Mapping[str, Any], *, is_used: bool) -> HeldImage:
    return HeldImage(
        id=row["Id"],
        tags=tuple(tag for tag in row.get("RepoTags") or () if tag != "<none>:<none>"),
        digests=tuple(one for one in row.get("RepoDigests") or () if not one.startswith("<none>@")),
        inputs=row["Labels"][LABEL_INPUTS],
        platform=f"{found.get('Os')}/{found.get('Architecture')}",
        base=row["Labels"].get(LABEL_BASE, ""),
        # Not when it was made: builds have fixed times.
        tagged=str((found.get("Metadata") or {}).get("LastTagTime") or found.get("Created") or ""),
        is_used=is_used,
        own_size=max(0, int(row["Size"]) - max(0, int(row.get("SharedSize", 0)))),
    )


def _inspect(row: Mapping[str, Any], engine: Engine) -> Mapping[str, Any]:
    import docker.errors

    try:
        return engine.api.api.inspect_image(row["Id"])
    except docker.errors.APIError:  # just removed by another command
        return {}


def locked(folder: Path) -> frozenset[str]:
    """Ids, digests and tags that the lock files below a folder name; of one that is broken, or of a newer
    gymctl, all digests that stand in it."""
    from gymctl.images import lock

    found: set[str] = set()
    for path in (path for pattern in LOCKS for path in folder.glob(pattern)):
        try:
            images = lock.read(path).images
        except GymctlError:
            with suppress(OSError):
                found.update(_DIGEST.findall(path.read_text("utf-8", "replace")))
            continue
        for one in images:
            found |= {one.id, f"{one.repository}:{one.tag}", *([one.digest] if one.digest else [])}
    return frozenset(found)


def of_killed_checks(images: Iterable[HeldImage]) -> Iterator[tuple[HeldImage, str]]:
    """Names that are left of comparisons that were killed. An image may have no other."""
    for image in images:
        for name in image.names_of_checks:
            if not scratch.is_checking(name.removeprefix(AGAIN).partition("-")[0]):
                yield image, name


def remove_name(name: str, engine: Engine) -> str | None:
    """None when it is gone, with its image if that has no other; else why it stays."""
    import docker.errors

    try:
        engine.api.api.remove_image(name, force=False, noprune=True)
    except docker.errors.ImageNotFound:
        return None
    except docker.errors.APIError as error:
        return str(error.explanation or error)
    return None


def unused(images: Iterable[HeldImage], kept: Collection[str], *, all_images: bool) -> Iterator[Unused]:
    """Those that may go. kept: ids, digests and tags that stay, and with them the images that they stand on.

    all_images: also the newest of each server, and those that were pulled by digest.
    """
    images = list(images)
    staying = {image.id for image in images if _stays(image, kept)}
    if not all_images:
        newest: dict[tuple[str, str], HeldImage] = {}
        for image in sorted(images, key=lambda image: image.tagged):
            newest |= dict.fromkeys(((tag.rpartition(":")[0], image.platform) for tag in image.tags), image)
        staying |= {image.id for image in newest.values()}
        staying |= {image.id for image in images if not image.tags and image.digests}
    by_tag = {tag: image for image in images for tag in image.tags}
    below = [by_tag.get(image.base) for image in images if image.id in staying]
    while below:
        base = below.pop()
        if base is not None and base.id not in staying:
            staying.add(base.id)
            below.append(by_tag.get(base.base))
    for image in images:
        if image.id not in staying:
            yield Unused(image, _why(image, is_older=not all_images))


def _stays(image: HeldImage, kept: Collection[str]) -> bool:
    names = {image.id, *image.tags, *(one.rpartition("@")[2] for one in image.digests)}
    return (
        image.is_used or image.is_named_by_others or bool(image.names_of_checks) or not names.isdisjoint(kept)
    )


def _why(image: HeldImage, *, is_older: bool) -> str:
    if image.tags:
        return "an older one, not used" if is_older else "not used by a container"
    return "pulled by digest, not used" if image.digests else "it has no name any more"


def remove(image: HeldImage, engine: Engine) -> str | None:
    """None when it is gone, else why it stays: a new container, a tag that somebody has just given."""
    import docker.errors

    try:
        now = engine.api.api.inspect_image(image.id)
        if set(now.get("RepoTags") or ()) - set(image.tags):
            return "it has just got another name"
        # Digests first: one that has only them counts as pulled, and the next `clean` would keep it.
        for name in (*image.digests, *image.tags) or (image.id,):
            # With its last name an image is gone.
            with suppress(docker.errors.ImageNotFound):
                engine.api.api.remove_image(name, force=False, noprune=True)
    except docker.errors.ImageNotFound:
        return None
    except docker.errors.APIError as error:
        return str(error.explanation or error)
    return None
