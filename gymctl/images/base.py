"""Which Python image everything stands on: the user's, python:3.13-slim, or one made from Debian packages."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping

from gymctl.config.model import Config
from gymctl.engine import Engine
from gymctl.errors import EngineError, PrerequisiteError
from gymctl.images.plan import BaseImage, registry_of
from gymctl.images.progress import Reporter
from gymctl.paths import bundled
from gymctl.programs import run_command

VARIABLE = "GYMCTL_BASE_IMAGE"
MIRROR_VARIABLE = "GYMCTL_REGISTRY_MIRROR"
PUBLIC = "python:3.13-slim"
HOME_MADE = "gymctl-python:3.13"
HOME_MADE_NEWER = "gymctl-python:3.13-sid"
NEMO_GYM_PYTHON = (3, 13, 14)
"""The oldest Python that the nemo-gym package installs on; Debian 13's is older."""
PULL_SECONDS = 600.0
_REFUSED = re.compile(
    r"unauthori[sz]ed|authentication required|no basic auth|\b40[13]\b|access.*denied", re.I
)


async def choose(
    config: Config, engine: Engine, reporter: Reporter, environ: Mapping[str, str] = os.environ
) -> BaseImage:
    """The base image, pulled or made when the engine has none yet.

    A named one (GYMCTL_BASE_IMAGE, then `build.base_image` of the config) is the only candidate. Otherwise
    what the engine holds comes first: a machine that once made its own does not try to pull at every start.
    The public one is pulled through `build.registry_mirror` where there is one.
    """
    found = await held(config, engine, environ)
    if found is not None:
        return found
    named = _named(config, environ)
    pulled = await _pull(engine, named or public(config, environ), reporter)
    if pulled is not None:
        return pulled
    if named:
        raise EngineError(
            f"the base image `{named}` is not on this machine and cannot be pulled",
            where=VARIABLE if environ.get(VARIABLE) else "build.base_image",
            hint=f"`docker pull {named}` says why; without the setting, {PUBLIC} or a home-made one is used",
        )
    return await _made(engine, HOME_MADE, "trixie", "Python 3.11 or later, pip and useradd", reporter)


async def held(config: Config, engine: Engine, environ: Mapping[str, str] = os.environ) -> BaseImage | None:
    """The base image, when the engine has one already. Only looks."""
    for reference in candidates(config, environ):
        found = await _local(engine, reference)
        if found is not None:
            return found
    return None


async def choose_for_nemo_gym(
    config: Config, engine: Engine, reporter: Reporter, environ: Mapping[str, str] = os.environ
) -> BaseImage:
    """The Python image for NeMo Gym's own servers: `choose`'s candidates where their Python is new enough."""
    found = await held_for_nemo_gym(config, engine, environ)
    if found is not None:
        return found
    shown = public(config, environ)
    for reference in dict.fromkeys((_named(config, environ) or shown, shown)):
        pulled = await _pull(engine, reference, reporter)
        if pulled is not None and await _is_new_enough(engine, pulled):
            return pulled
    oldest = ".".join(map(str, NEMO_GYM_PYTHON))
    return await _made(
        engine, HOME_MADE_NEWER, "sid", f"Python {oldest} or a later 3.13, pip and useradd", reporter
    )


async def held_for_nemo_gym(
    config: Config, engine: Engine, environ: Mapping[str, str] = os.environ
) -> BaseImage | None:
    """Like `held`, for NeMo Gym's own servers."""
    named = _named(config, environ) or public(config, environ)
    for reference in dict.fromkeys((named, public(config, environ), PUBLIC, HOME_MADE_NEWER)):
        found = await _local(engine, reference)
        if found is not None and (reference == HOME_MADE_NEWER or await _is_new_enough(engine, found)):
            return found
    return None


async def _is_new_enough(engine: Engine, image: BaseImage) -> bool:
    """Official images say their version; any other is asked."""
    version = await asyncio.to_thread(engine.image_variable, image.reference, "PYTHON_VERSION")
    if version is None:
        ask = ("--rm", "--network", "none", "--entrypoint", "python3", image.reference, "--version")
        finished = await engine.run("run", *ask)
        version = " ".join(finished.last_lines) if finished.exit_code == 0 else ""
    found = re.search(r"(\d+)\.(\d+)\.(\d+)", version)
    return found is not None and tuple(map(int, found.groups())) >= NEMO_GYM_PYTHON


def candidates(config: Config, environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """The images that may be the base, the preferred one first."""
    named = _named(config, environ)
    return (named,) if named else tuple(dict.fromkeys((public(config, environ), PUBLIC, HOME_MADE)))


def public(config: Config, environ: Mapping[str, str] = os.environ) -> str:
    """`PUBLIC` as it is pulled here."""
    mirror = environ.get(MIRROR_VARIABLE, "").rstrip("/") or config.settings.build.registry_mirror
    return PUBLIC if mirror is None else f"{mirror}/library/{PUBLIC}"


def _named(config: Config, environ: Mapping[str, str]) -> str | None:
    return environ.get(VARIABLE) or config.settings.build.base_image


async def _local(engine: Engine, reference: str) -> BaseImage | None:
    found = await asyncio.to_thread(engine.image_id, reference)
    return None if found is None else BaseImage(reference, found)


async def _pull(engine: Engine, reference: str, reporter: Reporter) -> BaseImage | None:
    reporter.progress(f"pulling {reference}")
    try:
        async with asyncio.timeout(PULL_SECONDS):
            finished = await engine.run("pull", "--quiet", "--platform", engine.platform, reference)
    except TimeoutError:
        return None
    host = registry_of(reference)
    if finished.exit_code != 0 and host is not None and _REFUSED.search("\n".join(finished.last_lines)):
        raise EngineError(
            f"the registry {host} does not give {reference} to you",
            details=finished.last_lines[-2:],
            hint=f"`docker login {host}`",
        )
    return await _local(engine, reference) if finished.exit_code == 0 else None


async def _made(engine: Engine, tag: str, suite: str, needs: str, reporter: Reporter) -> BaseImage:
    """Run scripts/python_image.sh, which says itself where it can work and what to do elsewhere."""
    if engine.platform != engine.facts.platform:
        what = f"no Python base image for {engine.platform} can be pulled"
        raise PrerequisiteError(what, hint=f"{VARIABLE}=<an image with {needs}> names one of that platform")
    reporter.note(
        f"no image with {needs} can be pulled; making {tag} from Debian packages (about a minute, once)"
    )
    finished = await run_command(("bash", str(bundled() / "scripts" / "python_image.sh"), tag, suite))
    if finished.exit_code != 0:
        what = f"no Python base image: {PUBLIC} cannot be pulled, and {tag} cannot be made here"
        lines = [line.removeprefix("python image: ") for line in finished.last_lines[-15:]]
        hint = f"{VARIABLE}=<an image with {needs}> uses another one"
        raise (PrerequisiteError if finished.exit_code == 3 else EngineError)(what, details=lines, hint=hint)
    made = await _local(engine, tag)
    if made is None:
        raise EngineError(f"scripts/python_image.sh ended well, but {tag} is not there")
    return made
