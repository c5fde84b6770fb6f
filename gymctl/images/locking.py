"""What `images.lock.json` says of images that the engine holds: their plans, and their ids as it has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gymctl import __version__
from gymctl.engine import Engine
from gymctl.errors import EngineError
from gymctl.images.lock import Lock, LockedImage
from gymctl.images.plan import ImagePlan, without_registry


def lock_of(plans: Sequence[ImagePlan], engine: Engine) -> Lock:
    """The lock of images that have been built. Blocking, some milliseconds an image.

    EngineError names an image that the engine does not hold.
    """
    names = {plan.tag: plan.source for plan in plans}
    images = [
        _locked(plan, _inspect(plan, engine), names.get(plan.parent, without_registry(plan.parent)))
        for plan in plans
    ]
    return Lock(gymctl=__version__).with_images(images)


def platform_of(image: Mapping[str, Any]) -> str:
    """`linux/amd64`, `linux/arm64`, `linux/arm/v7`: of an image as the engine's `inspect` shows it."""
    architecture, variant = str(image["Architecture"]), str(image.get("Variant") or "")
    # The variant of arm64 is v8 or left out: the same machines.
    is_told = variant and architecture != "arm64"
    return "/".join([str(image["Os"]), architecture, *([variant] if is_told else [])])


def _locked(plan: ImagePlan, image: Mapping[str, Any], base: str) -> LockedImage:
    return LockedImage(
        name=plan.source,
        repository=plan.repository,
        tag=plan.inputs[:20],
        id=str(image["Id"]),
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
