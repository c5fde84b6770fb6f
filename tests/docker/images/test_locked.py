"""Pulling by digest from a registry that tells the truth, that lies, and that is away."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.registry import Registry, registry

from gymctl.config.model import Config
from gymctl.engine import Engine
from gymctl.errors import EngineError, GymctlError, IntegrityError, PrerequisiteError
from gymctl.images.build import ensure
from gymctl.images.context import base_context, server_context
from gymctl.images.lock import Lock, LockedImage
from gymctl.images.locked import Source, ensure_locked

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]
SMALL = "FROM scratch\nCOPY one /one\nCOPY two /two\n"


def docker(*args: str, check: bool = True) -> str:
    return subprocess.run(["docker", *args], capture_output=True, text=True, check=check).stdout.strip()


class World:
    """A registry with one small image, an engine that has it as base, and a server folder to be run."""

    def __init__(self, served: Registry, base: str, folder: Path) -> None:
        self.registry = served
        self.folder = folder
        self.base_id = docker("image", "inspect", "--format", "{{.Id}}", base)
        self._first = served.add(base)
        self.pulled: list[str] = []

    def image(self) -> tuple[LockedImage, str]:
        """A pushed image that the engine has never seen, and the digest of its top layer."""
        digest, identity = self.registry.with_layer(self._first, f"{uuid.uuid4()}" * 50)
        image = self._locked(f"resources_servers/{self.folder.name}", identity, self.context)
        pushed = image.model_copy(
            update={"repository": f"{self.registry.address}/team/server", "digest": digest}
        )
        self.pulled.append(f"{pushed.repository}@{digest}")
        return pushed, self.registry.layers(digest)[-1]

    @property
    def context(self) -> str:
        return server_context(self.folder).digest()

    def lock(self, image: LockedImage) -> Source:
        base = self._locked("Dockerfile.base", self.base_id, base_context().digest())
        return Source(Lock().with_images([base, image]), "images.lock.json")

    def _locked(self, name: str, identity: str, context: str) -> LockedImage:
        return LockedImage(
            name=name,
            repository="gymctl-test/small",
            tag="1",
            id=identity,
            platform="linux/amd64",
            inputs="0" * 64,
            context=context,
            base="Dockerfile.base",
        )


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    build, kept, server = tmp_path / "build", tmp_path / "registry", tmp_path / "server"
    for folder in (build, kept, server):
        folder.mkdir()
    for name in ("one", "two"):
        (build / name).write_text(name)
    (build / "Dockerfile").write_text(SMALL)
    (server / "app.py").write_text("app = 1\n")
    tag = f"gymctl-test-small:{uuid.uuid4().hex[:12]}"
    subprocess.run(["docker", "build", "--quiet", "--tag", tag, str(build)], check=True, capture_output=True)
    with registry(kept) as served:
        made = World(served, tag, server)
        yield made
        for reference in (tag, *made.pulled):
            docker("rmi", "--force", reference, check=False)


async def refused(
    world: World, config: Config, engine: Engine, reporter: Any, image: LockedImage
) -> GymctlError:
    with pytest.raises(GymctlError) as caught:
        await ensure_locked(config, world.lock(image), engine, reporter)
    assert engine.image_id(image.id) is None, "what was refused is not here"
    return caught.value


async def test_it_is_pulled_once_and_then_no_registry_is_asked(
    world: World, engine: Engine, config_of: Callable[..., Config], reporter: Any
) -> None:
    image, _ = world.image()
    source, config = world.lock(image), config_of(world.folder)
    first = await ensure_locked(config, source, engine, reporter)
    assert first["server"] == image.id
    assert reporter.steps == ["images: 2 in use, locked by images.lock.json, 1 pulled"]
    world.registry.requests.clear()
    world.registry.status = 500
    assert (await ensure_locked(config, source, engine, reporter)).by_server == first.by_server
    assert world.registry.requests == []


def one_bit(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


async def test_a_lie_of_the_registry_is_refused_whatever_it_is_about(
    world: World, engine: Engine, config_of: Callable[..., Config], reporter: Any
) -> None:
    config = config_of(world.folder)

    async def lied(about: Callable[[LockedImage, str], str], change: Callable[[bytes], bytes]) -> GymctlError:
        image, layer = world.image()
        digest = about(image, layer)
        world.registry.lies = {digest: change(world.registry.blobs[digest].read_bytes())}
        return await refused(world, config, engine, reporter, image)

    for error in (
        await lied(lambda _, layer: layer, one_bit),
        await lied(lambda _, layer: layer, lambda content: content[:600]),
        await lied(lambda _, layer: layer, lambda content: content + bytes(512)),
        await lied(lambda image, _: str(image.digest), lambda content: content + b" "),
        await lied(lambda image, _: image.id, lambda content: content.replace(b"a test", b"b test")),
    ):
        assert isinstance(error, IntegrityError), error
        assert "answers with something else than the image of resources_servers/server" in error.what
        assert world.registry.address in str(error.where)


async def test_what_is_gone_from_the_registry_is_an_integrity_error(
    world: World, engine: Engine, config_of: Callable[..., Config], reporter: Any
) -> None:
    for part in ("manifest", "layer"):
        image, layer = world.image()
        del world.registry.blobs[str(image.digest) if part == "manifest" else layer]
        error = await refused(world, config_of(world.folder), engine, reporter, image)
        assert isinstance(error, IntegrityError), error
        assert "has no" in error.what


async def test_a_lock_whose_id_and_digest_are_of_two_images_is_refused(
    world: World, engine: Engine, config_of: Callable[..., Config], reporter: Any
) -> None:
    image, _ = world.image()
    other, _ = world.image()
    mixed = image.model_copy(update={"digest": other.digest})
    error = await refused(world, config_of(world.folder), engine, reporter, mixed)
    assert isinstance(error, IntegrityError)
    assert f"locked {image.id[7:19]}, found {other.id[7:19]}" in error.what


async def test_a_registry_that_refuses_or_is_away_has_another_exit_code(
    world: World, engine: Engine, config_of: Callable[..., Config], reporter: Any
) -> None:
    config = config_of(world.folder)
    image, _ = world.image()
    for status in (401, 403):
        world.registry.status = status
        error = await refused(world, config, engine, reporter, image)
        assert isinstance(error, PrerequisiteError), error
        assert f"docker login {world.registry.address}" in str(error.hint)
    world.registry.status = 500
    assert isinstance(await refused(world, config, engine, reporter, image), EngineError)
    away = image.model_copy(update={"repository": "127.0.0.1:9/team/server"})
    error = await refused(world, config, engine, reporter, away)
    assert isinstance(error, PrerequisiteError)
    assert "127.0.0.1:9 does not answer" in error.what


def layers_of(image: str) -> bytes:
    return subprocess.run(["docker", "save", image], capture_output=True, check=True).stdout


async def test_files_of_keys_and_results_are_in_no_layer(
    tmp_path: Path, engine: Engine, own_base: str, config_of: Callable[..., Config], reporter: Any
) -> None:
    """B47, B48."""
    places = ("env.yaml", ".env", "sub/.env.local", "results/x.jsonl", ".git/config")
    folder = tmp_path / "closed"
    (folder / "sub").mkdir(parents=True)
    for place in places:
        (folder / place).parent.mkdir(exist_ok=True)
        (folder / place).write_text("key: sk-CANARY-4711\n")
    (folder / "app.py").write_text(f"seen = '{uuid.uuid4().hex}'\n")
    (folder / "Dockerfile").write_text(
        "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nARG INDEX_TOKEN\nCOPY . /srv/server\n"
    )
    image = (await ensure(config_of(folder), engine, reporter))["closed"]
    saved = layers_of(image)
    assert b"seen = '" in saved
    assert b"sk-CANARY" not in saved
    assert "sk-CANARY" not in docker("history", "--no-trunc", image)
    assert any("INDEX_TOKEN" in text and text.startswith("warning: ") for text in reporter.said)
    assert any(" built from " in text and text.endswith(" kB of files") for text in reporter.steps)
