"""What `images.lock.json` says of images that the engine holds: their plans, and their ids as it has them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from gymctl import __version__
from gymctl.engine import Engine, platform_of
from gymctl.errors import EngineError
from gymctl.images import lock
from gymctl.images.lock import Lock, LockedImage
from gymctl.images.plan import LABEL_BASE, LABEL_INPUTS, LABEL_SERVER, ImagePlan, without_registry
from gymctl.images.stores import configurations, named_by_manifest


def lock_of(plans: Sequence[ImagePlan], engine: Engine) -> Lock:
    """The lock of images that have been built. Blocking, some milliseconds an image.

    EngineError names an image that the engine does not hold.
    """
    names = {plan.tag: plan.source for plan in plans}
    found = [_inspect(plan, engine) for plan in plans]
    configs = configurations(engine, [image["Id"] for image in found if named_by_manifest(image)])
    images = [
        _locked(plan, image, configs, names.get(plan.parent, without_registry(plan.parent)))
        for plan, image in zip(plans, found, strict=True)
    ]
    return Lock(gymctl=__version__).with_images(images)


def lock_of_containers(known: Lock, ids: Collection[str], engine: Engine) -> Lock:
    """The lock of images that containers run, which the engine names by their ids, and of their bases.

    known: what was written down when they were started. An image that was built anew since then is not what
    they run: it counts with the id of theirs. Blocking.
    """
    by_id = {digest: one for one in known.images for digest in (one.id, one.digest) if digest is not None}
    found = [by_id.get(id) or _unknown(id, known, engine) for id in sorted(set(ids))]
    run = [image for image in found if image is not None]
    bases = {(image.base, image.platform) for image in run}
    below = [one for one in known.images if (one.name, one.platform) in bases and one not in run]
    return known.model_copy(update={"images": ()}).with_images([*below, *run])


def _unknown(id: str, known: Lock, engine: Engine) -> LockedImage | None:
    """Of an image that another one has taken the place of: what its labels tell. None: it was removed."""
    import docker.errors

    try:
        image = engine.api.api.inspect_image(id)
    except docker.errors.ImageNotFound:
        return None
    labels: Mapping[str, str] = image["Config"].get("Labels") or {}
    inputs = labels.get(LABEL_INPUTS, "")
    same = next((one for one in known.images if inputs and one.inputs == inputs), None)
    configs = configurations(engine, [id] if named_by_manifest(image) else [])
    return LockedImage(
        name=labels.get(LABEL_SERVER, "unknown"),
        repository=same.repository if same else "unknown",
        tag=inputs[:20],
        id=configs.get(id, id),
        digest=id if id in configs else None,
        platform=platform_of(image),
        inputs=inputs,
        context=same.context if same else "",
        base=same.base if same else labels.get(LABEL_BASE, ""),
        size=int(image["Size"]),
    )


def update(path: Path, made: Lock) -> None:
    """Write `made` into the lock at `path`, whose other images stay, also those that another command writes
    at the same time. IntegrityError: the file is no lock. PrerequisiteError: it cannot be written."""
    with lock.changing(path) as before:
        lock.write(path, before.model_copy(update={"gymctl": made.gymctl}).with_images(made.images))


def _locked(plan: ImagePlan, image: Mapping[str, Any], configs: Mapping[str, str], base: str) -> LockedImage:
    """configs: what `configurations` says."""
    name = str(image["Id"])
    return LockedImage(
        name=plan.source,
        repository=plan.repository,
        tag=plan.inputs[:20],
        id=configs.get(name, name),
        digest=name if name in configs else None,
        platform=platform_of(image),
        inputs=plan.inputs,
        context=plan.context_digest,
        base=base,
        size=int(image["Size"]),
    )


def _inspect(plan: ImagePlan, engine: Engine) -> Mapping[str, Any]:
    import docker.errors

    try:
        return engine.api.api.inspect_image(plan.tag)
    except docker.errors.ImageNotFound:
        hint = "another program removed it; run it again"
        raise EngineError(f"the image {plan.tag} of {plan.source} is not there", hint=hint) from None
