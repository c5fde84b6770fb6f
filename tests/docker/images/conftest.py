"""A base of its own for these tests, so that builds are real ones and leave the user's images alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes.own_images import own_python

from gymctl.config.model import Config, GlobalSettings, ServerBlock
from gymctl.engine import Engine
from gymctl.images import base


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


@pytest.fixture(scope="module")
def python_image(engine: Engine) -> Iterator[str]:
    with own_python(engine) as tag:
        yield tag


@pytest.fixture
def fresh_base(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Point gymctl at a Python image whose base runs every step anew."""
    with own_python(engine, layer=True) as tag:
        monkeypatch.setenv(base.VARIABLE, tag)
        yield tag


@pytest.fixture
def own_base(python_image: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Point gymctl at this module's Python image."""
    monkeypatch.setenv(base.VARIABLE, python_image)
    return python_image
