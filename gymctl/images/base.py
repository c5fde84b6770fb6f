"""Which Python image everything stands on: the user's, python:3.13-slim, or one made from Debian packages."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping

from gymctl.config.model import Config
from gymctl.engine import Engine, run_command
from gymctl.errors import EngineError, PrerequisiteError
from gymctl.images.plan import BaseImage
from gymctl.images.progress import Reporter
from gymctl.paths import bundled

VARIABLE = "GYMCTL_BASE_IMAGE"
PUBLIC = "python:3.13-slim"
HOME_MADE = "gymctl-python:3.13"
PULL_SECONDS = 600.0


async def choose(
    config: Config, engine: Engine, reporter: Reporter, environ: Mapping[str, str] = os.environ
) -> BaseImage:
    """The base image, pulled or made when the engine has none yet.

    A named one (GYMCTL_BASE_IMAGE, then `build.base_image` of the config) is the only candidate. Otherwise
    what the engine holds comes first: a machine that once made its own does not try to pull at every start.
    """
    found = await held(config, engine, environ)
    if found is not None:
        return found
    named = environ.get(VARIABLE) or _configured(config)
    pulled = await _pull(engine, named or PUBLIC, reporter)
    if pulled is not None:
        return pulled
    if named:
        raise EngineError(
            f"the base image `{named}` is not on this machine and cannot be pulled",
            where=VARIABLE if environ.get(VARIABLE) else "build.base_image",
            hint=f"`docker pull {named}` says why; without the setting, {PUBLIC} or a home-made one is used",
        )
    await _make(reporter)
    made = await _local(engine, HOME_MADE)
    if made is None:
        raise EngineError(f"scripts/python_image.sh ended well, but {HOME_MADE} is not there")
    return made


async def held(config: Config, engine: Engine, environ: Mapping[str, str] = os.environ) -> BaseImage | None:
    """The base image, when the engine has one already. Only looks."""
    for reference in candidates(config, environ):
        found = await _local(engine, reference)
        if found is not None:
            return found
    return None


def candidates(config: Config, environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """The images that may be the base, the preferred one first."""
    named = environ.get(VARIABLE) or _configured(config)
    return (named,) if named else (PUBLIC, HOME_MADE)


def _configured(config: Config) -> str | None:
    build = config.document.get("build")
    value = build.get("base_image") if isinstance(build, Mapping) else None
    return str(value) if value else None


async def _local(engine: Engine, reference: str) -> BaseImage | None:
    found = await asyncio.to_thread(engine.image_id, reference)
    return None if found is None else BaseImage(reference, found)


async def _pull(engine: Engine, reference: str, reporter: Reporter) -> BaseImage | None:
    reporter.progress(f"pulling {reference}")
    try:
        async with asyncio.timeout(PULL_SECONDS):
            finished = await engine.run("pull", "--quiet", reference)
    except TimeoutError:
        return None
    return await _local(engine, reference) if finished.exit_code == 0 else None


async def _make(reporter: Reporter) -> None:
    """Run scripts/python_image.sh, which says itself where it can work and what to do elsewhere."""
    reporter.note(
        f"{PUBLIC} cannot be pulled; making {HOME_MADE} from Debian packages (about a minute, once)"
    )
    finished = await run_command(("bash", str(bundled() / "scripts" / "python_image.sh"), HOME_MADE))
    if finished.exit_code == 0:
        return
    what = f"no Python base image: {PUBLIC} cannot be pulled, and {HOME_MADE} cannot be made here"
    lines = [line.removeprefix("python image: ") for line in finished.last_lines[-15:]]
    hint = f"{VARIABLE}=<an image with Python 3.11 or later, pip and useradd> uses another one"
    raise (PrerequisiteError if finished.exit_code == 3 else EngineError)(what, details=lines, hint=hint)
