"""What a run was made from, where it is still on this machine: rows, prompts, code, cassettes, images."""

from __future__ import annotations

import platform
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from gymctl import __version__
from gymctl.cli.identity import CODE, CONTENT, SDK, prompt_digest
from gymctl.engine import Engine
from gymctl.errors import GymctlError
from gymctl.images.context import sdk_context, server_context
from gymctl.rollouts.findings import Finding
from gymctl.rollouts.passport import Passport, ServerSeen
from gymctl.rollouts.prompts import Prompt
from gymctl.rollouts.seal import sha256

InspectedIds = Callable[[str], Collection[str]]
"""By a reference, all names of a local image that a passport may have for it; none: it is not there."""


def made_from(told: Passport, lock: Path) -> Iterator[Finding]:
    """Everything beside the run's own files. `lock`: that of the run, if it has one."""
    for name, digest in told.files.items():
        kind, read = ("prompt", _prompt) if name in told.prompts else ("file", sha256)
        yield _compared(f"{kind} {name}", digest, told.places.get(name, name), read)
    for key, digest in told.config.items():
        if key == SDK:
            yield _sdk(told, str(digest))
        elif key.endswith(CODE):
            yield _code(key, str(digest), told.places.get(key))
        elif key.endswith(CONTENT):
            yield _compared(f"file {key.removesuffix(CONTENT)}", str(digest), told.places.get(key), sha256)
    yield from _images(told, lock)
    yield _versions(told)
    yield _machine(told)


def _compared(name: str, digest: str, place: str | None, read: Callable[[Path], str]) -> Finding:
    if place is None:
        return Finding(name, "not recorded", "nothing says where it lay")
    path = Path(place)
    if not path.is_file():
        return Finding(name, "gone", f"{path} is not there")
    try:
        return Finding.of(name, digest, read(path))
    except GymctlError as error:
        return Finding(name, "differs", error.what)
    except OSError as error:
        return Finding(name, "gone", str(error.strerror))


def _prompt(path: Path) -> str:
    return prompt_digest(Prompt.read(path))


def _code(key: str, digest: str, place: str | None) -> Finding:
    name = f"code {key.removesuffix(CODE)}"
    if place is None:
        return Finding(name, "not recorded", "nothing says where it lay")
    if not Path(place).is_dir():
        return Finding(name, "gone", f"{place} is not there")
    return Finding.of(name, digest, f"sha256:{server_context(Path(place)).digest()}")


def _sdk(told: Passport, digest: str) -> Finding:
    """The part of gymctl that its servers run."""
    found = f"sha256:{sdk_context().digest()}"
    if told.gymctl != __version__ and found != digest:
        return Finding("code gymctl", "gone", f"it was gymctl {told.gymctl}, this is {__version__}")
    return Finding.of("code gymctl", digest, found)


def _images(told: Passport, lock: Path) -> Iterator[Finding]:
    """By id. A tag alone proves nothing, but one that now names another image is told as a difference."""
    ran = {name: seen for name, seen in told.servers.items() if seen.image or seen.id}
    if not ran:
        if told.machine.runtime == "compose" or told.images:
            yield Finding("images", "not recorded", "by tag only")
        return
    look = _engine(lock)
    if look is None:
        yield Finding("images", "gone", "no engine answers")
        return
    for name, seen in ran.items():
        yield _image(name, seen, look)


def _image(name: str, seen: ServerSeen, look: InspectedIds) -> Finding:
    title = f"image {name}"
    if seen.id is None:
        return Finding(title, "not recorded")
    if any(seen.id in look(reference) for reference in (seen.id, seen.digest) if reference):
        return Finding(title, "ok")
    tagged = look(seen.image) if seen.image and "@" not in seen.image else ()
    if tagged:
        return Finding(title, "ok") if seen.id in tagged else Finding.of(title, seen.id, min(tagged))
    return Finding(title, "gone", f"{seen.image or seen.id} is not here")


def _engine(lock: Path) -> InspectedIds | None:
    from gymctl import engine

    try:
        return looking(engine.Engine.connect(), lock) if engine.answers() else None
    except GymctlError:  # one that is too old, or lacks Compose
        return None


def looking(engine: Engine, lock: Path) -> InspectedIds:
    """By id also in the other kind of image store than that of the engine that made the run."""
    from gymctl.images.lock import read
    from gymctl.images.stores import configuration, held

    try:
        locked = {name: one for one in read(lock).images for name in (one.id, one.digest)}
    except GymctlError:  # none, or a broken one, which is told elsewhere
        locked = {}

    def look(reference: str) -> Collection[str]:
        found = {configuration(engine, reference), engine.image_id(reference)} - {None}
        if not found and reference in locked and held(engine, locked[reference]) is not None:
            found = {locked[reference].id, locked[reference].digest} - {None}
        return {one for one in found if one is not None}

    return look


def _versions(told: Passport) -> Finding:
    was, now = (
        f"gymctl {gymctl}, Python {python}"
        for gymctl, python in ((told.gymctl, told.python), (__version__, platform.python_version()))
    )
    return Finding("versions", "ok" if was == now else "gone", was if was == now else f"{was}; this is {now}")


def _machine(told: Passport) -> Finding:
    was = told.machine
    if not was.kernel:
        return Finding("machine", "not recorded")
    here = f"{platform.system()} {platform.release()} {platform.machine()}"
    then = f"{was.kernel} {was.architecture}"
    return Finding("machine", "ok" if here == then else "gone", then if here == then else f"it was {then}")
