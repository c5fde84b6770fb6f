"""Which Python image is chosen, in which order, and what is said when there is none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from gymctl.config.model import BuildSettings, Config, GlobalSettings
from gymctl.engine import Engine, EngineFacts
from gymctl.errors import EngineError, PrerequisiteError
from gymctl.images import base
from gymctl.images.base import HOME_MADE, PUBLIC, VARIABLE, choose
from gymctl.images.plan import BaseImage
from gymctl.programs import Finished

CONFIG = Config("p", {}, "127.0.0.1", 11000, {}, GlobalSettings(), (), (), (), {})


class ShelfEngine:
    """An engine with these images, and a registry with those."""

    platform = "linux/amd64"
    facts = EngineFacts("26.1.5", (1, 45), "amd64")

    def __init__(self, *local: str, registry: tuple[str, ...] = ()) -> None:
        self.local = {name: f"sha256:{name}" for name in local}
        self.registry = registry
        self.pulls: list[str] = []

    def image_id(self, reference: str) -> str | None:
        return self.local.get(reference)

    async def run(self, *args: str) -> Finished:
        reference = args[-1]
        self.pulls.append(reference)
        if reference not in self.registry:
            return Finished("docker pull", 1, "", ("no such host",))
        self.local[reference] = f"sha256:{reference}"
        return Finished("docker pull", 0, "", ())


class Silent:
    def step(self, name: str, text: str) -> None: ...
    def note(self, text: str) -> None: ...
    def progress(self, text: str) -> None: ...


async def chosen(shelf: ShelfEngine, config: Config = CONFIG, **environ: str) -> BaseImage:
    return await choose(config, cast(Engine, shelf), Silent(), environ)


def scripts(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Replace scripts/python_image.sh."""
    (folder / "scripts").mkdir()
    (folder / "scripts" / "python_image.sh").write_text(script)
    monkeypatch.setattr(base, "bundled", lambda: folder)


def building(**build: str) -> Config:
    return replace(CONFIG, settings=GlobalSettings(build=BuildSettings(**build)))


async def test_a_named_image_wins_and_the_environment_beats_the_config() -> None:
    shelf = ShelfEngine("mine", "ours", PUBLIC)
    config = building(base_image="ours")
    assert (await chosen(shelf, config, **{VARIABLE: "mine"})).reference == "mine"
    assert (await chosen(shelf, config)).reference == "ours"
    assert (await chosen(shelf)) == BaseImage(PUBLIC, f"sha256:{PUBLIC}")


async def test_a_named_image_that_cannot_be_had_is_an_error_and_nothing_else_is_used() -> None:
    with pytest.raises(EngineError) as caught:
        await chosen(ShelfEngine(PUBLIC), **{VARIABLE: "nowhere/python:1"})
    assert "nowhere/python:1" in caught.value.what
    assert caught.value.where == VARIABLE


async def test_what_is_there_is_used_without_trying_to_pull() -> None:
    shelf = ShelfEngine(HOME_MADE)
    assert (await chosen(shelf)).reference == HOME_MADE
    assert shelf.pulls == []


async def test_the_public_image_is_pulled_when_there_is_none() -> None:
    shelf = ShelfEngine(registry=(PUBLIC,))
    assert (await chosen(shelf)).reference == PUBLIC


async def test_a_machine_that_cannot_pull_makes_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = ShelfEngine()
    scripts(tmp_path, monkeypatch, f'echo "$1" >{tmp_path}/made\n')
    real: Any = shelf.image_id
    monkeypatch.setattr(shelf, "image_id", lambda name: "sha256:1" if _made(tmp_path) == name else real(name))
    assert (await chosen(shelf)).reference == HOME_MADE
    assert shelf.pulls == [PUBLIC]


def _made(folder: Path) -> str | None:
    file = folder / "made"
    return file.read_text().strip() if file.exists() else None


@pytest.mark.parametrize(("code", "error"), [(3, PrerequisiteError), (1, EngineError)])
async def test_what_the_script_says_is_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, error: type[EngineError]
) -> None:
    scripts(tmp_path, monkeypatch, f"echo 'python image: run as root' >&2; exit {code}\n")
    with pytest.raises(error) as caught:
        await chosen(ShelfEngine())
    assert caught.value.details == ("run as root",)
    assert VARIABLE in str(caught.value.hint)


async def test_the_public_image_comes_through_the_mirror_and_what_is_there_is_used_first() -> None:
    mirrored = f"mirror.example.com/hub/library/{PUBLIC}"
    shelf = ShelfEngine(registry=(PUBLIC, mirrored))
    config = building(registry_mirror="mirror.example.com/hub")
    assert (await chosen(shelf, config)).reference == mirrored
    assert shelf.pulls == [mirrored]
    own = {base.MIRROR_VARIABLE: "localhost:5000/"}
    assert base.candidates(config, own)[0] == f"localhost:5000/library/{PUBLIC}"
    assert (await chosen(ShelfEngine(PUBLIC), config)).reference == PUBLIC


@pytest.mark.parametrize(
    "said",
    [
        "Error response from daemon: Head ...: no basic auth credentials",
        "unauthorized: authentication required",
        "denied: requested access to the resource is denied",
    ],
)
async def test_a_registry_that_wants_a_login_is_named(said: str) -> None:
    class Closed(ShelfEngine):
        async def run(self, *args: str) -> Finished:
            return Finished("docker pull", 1, "", (said,))

    with pytest.raises(EngineError) as caught:
        await chosen(Closed(), building(base_image="registry.example.com:5000/team/python:3.13"))
    assert caught.value.hint == "`docker login registry.example.com:5000`"
    assert "team/python:3.13" in caught.value.what


async def test_no_image_is_made_for_another_platform(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shelf = ShelfEngine()
    monkeypatch.setattr(shelf, "platform", "linux/arm64")
    with pytest.raises(PrerequisiteError, match="for linux/arm64 can be pulled"):
        await chosen(shelf)
    assert shelf.pulls == [PUBLIC]
