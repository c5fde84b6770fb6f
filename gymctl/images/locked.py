"""The images of a config exactly as a lock names them: found in the engine or pulled by digest, never built.

Nothing goes by tag. A folder that is not what the lock was made from is refused, and so is an image that is
neither here nor in a registry under its digest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gymctl import __version__
from gymctl.config.model import Config
from gymctl.engine import Engine
from gymctl.errors import EngineError, GymctlError, IntegrityError, PrerequisiteError
from gymctl.images.build import Images
from gymctl.images.lock import Lock, LockedImage, apart, short
from gymctl.images.plan import CHECKOUT, LABEL_INPUTS, LABEL_SERVER, BaseImage, ImagePlan
from gymctl.images.progress import Reporter
from gymctl.images.project import Pythons, plan_project
from gymctl.images.refused import no_tls
from gymctl.images.stores import held
from gymctl.programs import Finished

PARALLEL_PULLS = 3
"""The engine itself fetches three layers at a time."""
_OR_BUILD = ", or `gymctl build` to build and lock what is there now"

_OTHER_BYTES = (
    "filesystem layer verification failed",
    "manifest verification failed",
    "invalid checksum digest",
    "unexpected commit digest",
    "unexpected commit size",
    "layers from manifest don't match image configuration",
    "image config verification failed",
    "does not match the specified platform",
)
"""What engines say when a registry answers with something else than the digest stands for."""
_NOT_THERE = (
    "manifest unknown",
    "name unknown",
    "blob unknown",
    "unknown blob",
    "not found",
    "no matching manifest",
)
_NOT_ALLOWED = ("unauthorized", "denied", "no basic auth credentials", "authentication required")
_NO_ANSWER = (
    "connection refused",
    "no such host",
    "i/o timeout",
    "timeout exceeded",
    "deadline exceeded",
    "network is unreachable",
    "no route to host",
    "connection reset",
    "proxyconnect",
)


@dataclass(frozen=True, slots=True)
class Source:
    """Where a lock was read from, and what it says."""

    lock: Lock
    where: str
    is_packed: bool = False
    """Whether it came with a benchmark that was pushed or bundled."""

    @property
    def name(self) -> str:
        """For the user, who never saw the file of a packed benchmark."""
        return "the benchmark" if self.is_packed else self.where


@dataclass(frozen=True, slots=True)
class _Need:
    """One image that is to be run."""

    plan: ImagePlan
    image: LockedImage

    @property
    def place(self) -> str:
        names = ", ".join(f"`{name}`" for name in self.plan.servers)
        return f"{self.plan.source} (server {names})" if names else self.plan.source


async def ensure_locked(config: Config, source: Source, engine: Engine, reporter: Reporter) -> Images:
    """The images of `config` by the engine's own ids, each the one that the lock names.

    IntegrityError names every server whose folder or image is not the locked one. PrerequisiteError: a
    registry does not answer or refuses. EngineError: an image cannot be pulled for another reason.
    """
    reporter.progress("looking at the locked images")
    needs = await asyncio.to_thread(_needs, config, source, engine.platform)
    if any(need.plan.kind == "base" and need.image.context != need.plan.context_digest for need in needs):
        reporter.note(f"the locked images hold gymctl {source.lock.gymctl}; this is {__version__}")
    ids: dict[str, str | None] = {}
    for need in needs:
        ids[need.plan.tag] = await asyncio.to_thread(held, engine, need.image)
    # By tag: two folders with the same name and content are one image.
    missing = list({need.plan.tag: need for need in needs if ids[need.plan.tag] is None}.values())
    _refuse([_nowhere(need) for need in missing if need.image.pinned is None], source)
    if missing:
        ids |= await _pulled(missing, engine, reporter, source)
    found = {tag: id for tag, id in ids.items() if id is not None}
    labels = {tag: await asyncio.to_thread(engine.image_labels, id) for tag, id in found.items()}
    _refuse([wrong for need in needs if (wrong := _of_another(need, labels[need.plan.tag]))], source)
    pulled = f", {len(missing)} pulled" if missing else ""
    reporter.step("images", f"{len(found)} in use, locked by {source.name}{pulled}")
    by_server = {name: found[need.plan.tag] for need in needs for name in need.plan.servers}
    return Images(found[needs[0].plan.tag], by_server, lock=_used(source.lock, needs))


def _needs(config: Config, source: Source, platform: str) -> list[_Need]:
    """What is to be run, the head's first. Raises IntegrityError when a folder is not the locked one."""
    # No Python image is looked for: of these plans names and contexts count, which do not depend on it.
    python = BaseImage("locked", "")
    plans = plan_project(config, Pythons(python, python))
    found = [(plan, source.lock.find(plan.source, platform, plan.context_digest)) for plan in plans]
    _refuse([problem for plan, image in found if (problem := _doubt(plan, image, source, platform))], source)
    runs = [_Need(plan, image) for plan, image in found if image is not None]
    return [need for index, need in enumerate(runs) if index == 0 or need.plan.kind == "server"]


def _doubt(
    plan: ImagePlan, image: LockedImage | None, source: Source, platform: str
) -> IntegrityError | None:
    """Why a folder is not what the lock knows, if so."""
    names = ", ".join(f"`{name}`" for name in plan.servers)
    where = f"server {names}" if names else plan.source
    if image is None:
        others = sorted({one.platform for one in source.lock.images if one.name == plan.source})
        what, hint = f"{plan.source} is not in the lock", "`gymctl build` builds it and adds it"
        if others:
            what += f" for {platform}, only for {', '.join(others)}"
        if others and source.is_packed:
            hint = (
                f"who pushed it can push it for {platform} too; DOCKER_DEFAULT_PLATFORM={others[0]} runs it"
            )
            hint += " where the engine emulates that"
        return IntegrityError(what, where=where, hint=hint)
    is_our_own = plan.kind == "base" and plan.source != CHECKOUT
    if image.context == plan.context_digest or (is_our_own and _fits(source.lock.gymctl)):
        return None
    if is_our_own:
        what = f"gymctl's own part of {plan.source} is not the locked one"
        hint = f"`pip install gymctl=={source.lock.gymctl}` brings the gymctl that wrote the lock"
        if source.lock.gymctl in ("", __version__):
            hint = "gymctl's own files were edited since"
    else:
        what = f"the folder of {plan.source} is not the locked one"  # a checkout: or gymctl's part in it
        hint = "go back to the files that were locked"
    expected, seen = apart(image.context, plan.context_digest)
    more = "" if source.is_packed else _OR_BUILD  # its lock is a part of it
    return IntegrityError(f"{what}: locked {expected}, found {seen}", where=where, hint=f"{hint}{more}")


def _fits(version: str) -> bool:
    """Whether images of that gymctl can be driven by this one: another release of the same minor version. The
    same version with other files was edited by somebody."""
    return version != __version__ and _minor(version) == _minor(__version__)


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]


def _of_another(need: _Need, labels: Mapping[str, str]) -> IntegrityError | None:
    """Whether the image itself says that it is another one than the lock calls it."""
    expected = {LABEL_SERVER: need.plan.source, LABEL_INPUTS: need.image.inputs}
    if need.plan.source == CHECKOUT:
        del expected[LABEL_SERVER]  # older images told where the checkout lay
    wrong = [labels[key] for key, value in expected.items() if labels.get(key, value) != value]
    if not wrong:
        return None
    what = (
        f"{short(need.image.id)} is not an image of {need.place} but of {labels.get(LABEL_SERVER, wrong[0])}"
    )
    if labels.get(LABEL_SERVER) == need.plan.source:
        what = f"{short(need.image.id)} is the image of another {need.place} than the lock tells of"
    return IntegrityError(
        what, where=need.plan.source, hint=f"go back to the lock as it was written{_OR_BUILD}"
    )


def _nowhere(need: _Need) -> IntegrityError:
    return IntegrityError(
        f"the image of {need.place} is not here: {short(need.image.id)}; it was never pushed",
        where=need.plan.source,
        hint="it can only be built and locked anew (`gymctl build`), or loaded from a bundle"
        " (`gymctl unbundle`)",
    )


async def _pulled(
    missing: Sequence[_Need], engine: Engine, reporter: Reporter, source: Source
) -> Mapping[str, str]:
    """Their ids by the plan's tag; all are tried before one is refused."""
    slots = asyncio.Semaphore(PARALLEL_PULLS)
    ids: dict[str, str] = {}
    problems: list[GymctlError] = []

    async def pull(need: _Need) -> None:
        async with slots:
            try:
                ids[need.plan.tag] = await _pull(need, engine, reporter)
            except GymctlError as error:
                problems.append(error)

    async with asyncio.TaskGroup() as pulls:
        for need in missing:
            pulls.create_task(pull(need))
    _refuse(problems, source)
    return ids


async def _pull(need: _Need, engine: Engine, reporter: Reporter) -> str:
    pinned = need.image.pinned
    assert pinned is not None, "refused before"
    reporter.progress(f"pulling {need.plan.source}")
    finished = await engine.run("pull", "--quiet", "--platform", need.image.platform, pinned)
    if finished.exit_code != 0:
        raise _failure(need, pinned, finished)
    found = await asyncio.to_thread(held, engine, need.image)
    if found is None:
        seen = await asyncio.to_thread(engine.image_id, pinned)
        locked, other = apart(need.image.id, seen or "nothing")
        raise IntegrityError(
            f"{pinned} is not the locked image of {need.place}: locked {locked}, found {other}",
            where=need.plan.source,
            hint="id and digest of the lock belong to two images: was it edited by hand?",
        )
    return found


def _failure(need: _Need, pinned: str, finished: Finished) -> GymctlError:
    """Why a pull failed: another content, or nothing there, is the lock's business; the rest is not."""
    lines = finished.last_lines[-5:]
    said = "\n".join(lines).lower()
    registry, image = pinned.partition("/")[0], f"the image of {need.place}"
    error: type[GymctlError] = EngineError
    what, hint = f"{image} cannot be pulled", None
    if wrong := no_tls(registry, said):
        error, what, hint = PrerequisiteError, f"{image} cannot be pulled: {wrong[0]}", wrong[1]
    elif any(sign in said for sign in _NO_ANSWER):
        error, what = PrerequisiteError, f"{registry} does not answer for {image}"
        hint = "images that are here need no registry; `gymctl unbundle` brings them from a file"
    elif any(sign in said for sign in _OTHER_BYTES):
        error, what = IntegrityError, f"{registry} answers with something else than {image}"
        hint = "do not use it; push the image again from where it was built"
    elif any(sign in said for sign in _NOT_ALLOWED):
        error, what = PrerequisiteError, f"{registry} refuses {image}"
        hint = f"`docker login {registry}`; a repository that is not there is refused in the same way"
    elif any(sign in said for sign in _NOT_THERE):
        error, what = IntegrityError, f"{registry} has no {short(need.image.digest or '')}, {image}"
        hint = "push it again from where it was built, or `gymctl build`"
    return error(what, where=pinned, details=lines, hint=hint)


def _refuse(problems: Sequence[GymctlError], source: Source) -> None:
    """Raise them as one, if there are any; a difference weighs more than a registry that is away."""
    if not problems:
        return
    first = next((one for one in problems if isinstance(one, IntegrityError)), problems[0])
    if len(problems) == 1:
        raise first
    details = [line for one in problems for line in (one.what, *(f"  {more}" for more in one.details))]
    hints = [one.hint for one in problems if one.hint]
    plain = dict.fromkeys(hint.removesuffix(_OR_BUILD) for hint in hints)
    hint = "; ".join(plain) + (_OR_BUILD if any(hint.endswith(_OR_BUILD) for hint in hints) else "")
    what = f"{len(problems)} images are not as locked"
    raise type(first)(what, where=source.where, details=details, hint=hint or None)


def _used(lock: Lock, needs: Sequence[_Need]) -> Lock:
    """The part of the lock that is run, with the bases below."""
    used = [need.image for need in needs]
    bases = {image.base for image in used}
    below = [one for one in lock.images if one.name in bases and one.platform == used[0].platform]
    return lock.model_copy(update={"images": ()}).with_images([*below, *used])
