"""A base of its own for these tests, so that builds are real ones and leave the user's images alone."""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gymctl.config.model import Config, GlobalSettings, ServerBlock
from gymctl.engine import Engine
from gymctl.images import base
from gymctl.images.plan import LABEL_BASE, LABEL_INPUTS


class Recorder:
    """A reporter that keeps what it is told."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.said: list[str] = []

    def step(self, name: str, text: str) -> None:
        self.steps.append(f"{name}: {text}")

    def note(self, text: str) -> None:
        self.said.append(text)

    def progress(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture
def reporter() -> Recorder:
    return Recorder()


@pytest.fixture(scope="session")
def engine() -> Engine:
    return Engine.connect()


def _config(folders: tuple[Path, ...]) -> Config:
    servers = {
        folder.name: ServerBlock(
            folder.name, "resources_servers", folder.name, "app.py", folder, {}, (), "127.0.0.1", -1, False
        )
        for folder in folders
    }
    return Config("images-test", servers, "127.0.0.1", 11000, {}, GlobalSettings(), (), (), (), {})


@pytest.fixture
def config_of() -> Callable[..., Config]:
    """A config with one server per folder, named after it."""
    return lambda *folders: _config(folders)


def _another_python(engine: Engine, *, layer: bool = False) -> str:
    """The usual Python image under another id, so a base is built on it; with `layer`, without any cache."""
    tag = f"gymctl-test-python:{uuid.uuid4().hex[:12]}"
    chosen = asyncio.run(base.choose(_config(()), engine, Recorder()))
    change = f"RUN echo {tag} >/etc/gymctl-test" if layer else f"LABEL dev.gymctl.test={tag}"
    dockerfile = f"FROM {chosen.reference}\nUSER 0\n{change}\n"
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
    with (
        tempfile.TemporaryDirectory() as scratch
    ):  # buildx does not remove what it makes for a Dockerfile on stdin
        environ = {**os.environ, "TMPDIR": scratch}
        subprocess.run(command, input=dockerfile, text=True, check=True, capture_output=True, env=environ)
    return tag


def remove_images(engine: Engine, python: str) -> None:
    """The Python image of these tests, the bases on it, and the servers on those."""
    images = engine.api.api.images(filters={"label": LABEL_INPUTS})
    bases = {tag for i in images if i["Labels"].get(LABEL_BASE) == python for tag in i["RepoTags"] or ()}
    servers = {tag for i in images if i["Labels"].get(LABEL_BASE) in bases for tag in i["RepoTags"] or ()}
    for tag in (*servers, *bases, python):
        engine.api.api.remove_image(tag, force=True)


@pytest.fixture(scope="module")
def python_image(engine: Engine) -> Iterator[str]:
    tag = _another_python(engine)
    yield tag
    remove_images(engine, tag)


@pytest.fixture
def fresh_base(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Point gymctl at a Python image whose base runs every step anew."""
    tag = _another_python(engine, layer=True)
    monkeypatch.setenv(base.VARIABLE, tag)
    yield tag
    remove_images(engine, tag)


@pytest.fixture
def own_base(python_image: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Point gymctl at this module's Python image."""
    monkeypatch.setenv(base.VARIABLE, python_image)
    return python_image
