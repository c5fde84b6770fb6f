"""Images that belong to one test: everything stands on a Python image with an id of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import uuid
from collections.abc import Iterator

from gymctl.config.model import Config, GlobalSettings
from gymctl.engine import Engine
from gymctl.images import base
from gymctl.images.plan import LABEL_BASE, LABEL_INPUTS


class Silent:
    """A reporter that tells nobody."""

    def step(self, name: str, text: str) -> None: ...
    def note(self, text: str) -> None: ...
    def progress(self, text: str) -> None: ...


@contextlib.contextmanager
def own_python(engine: Engine, *, layer: bool = False) -> Iterator[str]:
    """The tag of such a Python image, for GYMCTL_BASE_IMAGE. Afterwards all that was built on it is gone.

    layer: with a layer of its own, so that what is built on it takes nothing from a cache.
    """
    import asyncio

    tag = f"gymctl-test-python:{uuid.uuid4().hex[:12]}"
    nothing = Config("own-images", {}, "127.0.0.1", 11000, {}, GlobalSettings(), (), (), (), {})
    chosen = asyncio.run(base.choose(nothing, engine, Silent()))
    command = [
        "docker",
        "buildx",
        "build",
        "--builder",
        engine.builder,
        "--load",
        "--quiet",
        "--tag",
        tag,
        "-",
    ]
    change = f"RUN echo {tag} >/etc/gymctl-test" if layer else f"LABEL dev.gymctl.test={tag}"
    dockerfile = f"FROM {chosen.reference}\nUSER 0\n{change}\n"
    with tempfile.TemporaryDirectory() as scratch:  # buildx leaves what it makes of a Dockerfile on stdin
        environ = {**os.environ, "TMPDIR": scratch}
        subprocess.run(command, input=dockerfile, text=True, check=True, capture_output=True, env=environ)
    try:
        yield tag
    finally:
        remove(engine, built_on(engine, tag))
        remove(engine, [tag])


def built_on(engine: Engine, python: str) -> list[str]:
    """Ids of images on a Python image: servers before their bases."""
    images = engine.api.api.images(filters={"label": LABEL_INPUTS})
    bases = [image for image in images if image["Labels"].get(LABEL_BASE) == python]
    tags = {f"{image['Labels']['dev.gymctl.inputs'][:20]}" for image in bases}
    servers = [image for image in images if str(image["Labels"].get(LABEL_BASE)).rpartition(":")[2] in tags]
    return [image["Id"] for image in (*servers, *bases)]


def remove(engine: Engine, images: list[str]) -> None:
    """Remove images with all their tags; those that are gone already are fine."""
    import docker.errors

    for image in images:
        with contextlib.suppress(docker.errors.ImageNotFound):
            engine.api.api.remove_image(image, force=True)
