"""What is written into the lock of images that the engine holds."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import docker.errors
import pytest

from gymctl.engine import platform_of
from gymctl.errors import EngineError, IntegrityError
from gymctl.images import lock
from gymctl.images.context import Context
from gymctl.images.locking import lock_of, lock_of_containers, update
from gymctl.images.plan import Dockerfile, ImagePlan

BASE = ImagePlan(
    repository="gymctl/base",
    inputs="a" * 64,
    dockerfile=Dockerfile("FROM x"),
    context=Context({}),
    context_digest="b" * 64,
    parent="python:3.13-slim",
    kind="base",
    source="Dockerfile.base",
)
SERVER = ImagePlan(
    repository="gymctl/resources-weather",
    inputs="c" * 64,
    dockerfile=Dockerfile("FROM x"),
    context=Context({}),
    context_digest="d" * 64,
    parent=BASE.tag,
    kind="server",
    source="resources_servers/weather",
    servers=("w",),
)


def engine_with(images: dict[str, dict[str, Any]]) -> Any:
    def inspect_image(tag: str) -> dict[str, Any]:
        if tag not in images:
            raise docker.errors.ImageNotFound(tag)
        return images[tag]

    return SimpleNamespace(api=SimpleNamespace(api=SimpleNamespace(inspect_image=inspect_image)))


def image(digit: str, **more: str) -> dict[str, Any]:
    return {"Id": f"sha256:{digit * 64}", "Os": "linux", "Architecture": "amd64", "Size": 7, **more}


def test_an_image_is_locked_by_what_the_engine_and_its_plan_say() -> None:
    lock = lock_of([BASE, SERVER], engine_with({BASE.tag: image("1"), SERVER.tag: image("2")}))
    base, server = lock.images
    assert (base.name, base.base, base.id) == ("Dockerfile.base", "python:3.13-slim", f"sha256:{'1' * 64}")
    assert server.model_dump() == {
        "name": "resources_servers/weather",
        "repository": "gymctl/resources-weather",
        "tag": "c" * 20,
        "id": f"sha256:{'2' * 64}",
        "digest": None,
        "platform": "linux/amd64",
        "inputs": "c" * 64,
        "context": "d" * 64,
        "base": "Dockerfile.base",
        "size": 7,
    }
    assert lock.gymctl
    assert f"{server.repository}:{server.tag}" == SERVER.tag


def test_an_image_that_is_gone_is_named() -> None:
    with pytest.raises(EngineError, match="of resources_servers/weather is not there"):
        lock_of([BASE, SERVER], engine_with({BASE.tag: image("1")}))


def test_platforms_are_written_as_docker_takes_them() -> None:
    assert platform_of(image("1", Architecture="arm64", Variant="v8")) == "linux/arm64"
    assert platform_of(image("1", Architecture="arm", Variant="v7")) == "linux/arm/v7"


def test_a_lock_keeps_other_images_and_what_a_push_said_of_unchanged_ones(tmp_path: Path) -> None:
    path = tmp_path / "images.lock.json"
    images = {BASE.tag: image("1"), SERVER.tag: image("2")}
    update(path, lock_of([BASE, SERVER], engine_with(images)))
    pushed = [
        one.model_copy(
            update={"digest": f"sha256:{'9' * 64}", "repository": f"localhost:5000/{one.repository}"}
        )
        for one in lock.read(path).images
    ]
    lock.write(path, lock.read(path).with_images(pushed))
    update(path, lock_of([SERVER], engine_with({SERVER.tag: image("2")})))
    assert [one.pinned for one in lock.read(path).images] == [one.pinned for one in pushed]
    update(path, lock_of([SERVER], engine_with({SERVER.tag: image("3")})))
    base, server = lock.read(path).images
    assert base.pinned == pushed[0].pinned
    assert (server.id, server.digest, server.repository) == (f"sha256:{'3' * 64}", None, SERVER.repository)


def test_a_broken_lock_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "images.lock.json"
    path.write_text("{")
    with pytest.raises(IntegrityError):
        update(path, lock_of([BASE], engine_with({BASE.tag: image("1")})))
    assert path.read_text() == "{"


def test_a_run_is_locked_to_the_images_of_its_containers_and_their_bases() -> None:
    known = lock_of([BASE, SERVER], engine_with({BASE.tag: image("1"), SERVER.tag: image("2")}))
    nobody = engine_with({})
    assert lock_of_containers(known, [f"sha256:{'2' * 64}"], nobody) == known
    assert [one.id for one in lock_of_containers(known, [f"sha256:{'1' * 64}"], nobody).images] == [
        f"sha256:{'1' * 64}"
    ]


def test_a_container_that_runs_what_was_built_anew_since_keeps_its_own_id() -> None:
    known = lock_of([BASE, SERVER], engine_with({BASE.tag: image("1"), SERVER.tag: image("2")}))
    old = f"sha256:{'3' * 64}"
    labels = {"Labels": SERVER.labels}
    engine = engine_with({old: {**image("3"), "Config": labels}})
    base, server = lock_of_containers(known, [f"sha256:{'1' * 64}", old], engine).images
    assert (base.id, server.id) == (f"sha256:{'1' * 64}", old)
    assert (server.name, server.inputs, server.context) == (SERVER.source, "c" * 64, "d" * 64)


def test_an_image_that_nobody_knows_any_more_ends_no_run() -> None:
    known = lock_of([BASE], engine_with({BASE.tag: image("1")}))
    gone = f"sha256:{'9' * 64}"
    assert lock_of_containers(known, [f"sha256:{'1' * 64}", gone], engine_with({})).images == known.images
