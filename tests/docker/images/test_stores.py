"""The same images in an engine with the classic store and in one with the containerd store: one lock."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes.own_engine import needs_own_engine, own_engine

from gymctl.artefacts import saved
from gymctl.cli.verify_inputs import looking
from gymctl.config.model import Config
from gymctl.engine import Engine
from gymctl.images.build import ensure, plan_all
from gymctl.images.lock import Lock, write
from gymctl.images.locked import Source, ensure_locked
from gymctl.images.locking import lock_of
from gymctl.images.sbom import sboms
from gymctl.images.stores import configuration, held, held_or_gone

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600), needs_own_engine]


async def test_a_lock_means_the_same_images_in_either_store(
    tmp_path: Path,
    engine: Engine,
    own_base: str,
    config_of: Callable[..., Config],
    reporter: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    place = tmp_path / "small"
    place.mkdir()
    (place / "app.py").write_text("print('hello')\n")
    config = config_of(place)
    await ensure(config, engine, reporter)
    plans = await plan_all(config, engine, reporter)
    here = lock_of(plans, engine)
    with own_engine([plan.tag for plan in plans], has_containerd_store=True) as other:
        monkeypatch.setenv("DOCKER_HOST", other.environ["DOCKER_HOST"])
        there = Engine.connect()
        lock = lock_of(plans, there)
        assert [one.id for one in lock.images] == [one.id for one in here.images]
        assert all(one.digest not in (None, one.id) and one.pinned is None for one in lock.images)
        assert lock_of(plans, there) == lock, "from the cache"

        # What was locked there runs there and here; nothing is pulled.
        for where, names in ((there, "digest"), (engine, "id")):
            expected = [getattr(one, names) for one in lock.images]
            assert [held(where, one) for one in lock.images] == expected
            images = await ensure_locked(config, Source(lock, "lock"), where, reporter)
            assert [images.base, images["small"]] == expected

        # So does what was locked here: loaded there, it has a manifest that this lock cannot know.
        manifests = [one.digest for one in lock.images]
        assert all(one.digest is None for one in here.images)
        assert [held(there, one) for one in here.images] == manifests
        images = await ensure_locked(config, Source(here, "lock"), there, reporter)
        assert [images.base, images["small"]] == manifests
        other_inputs = here.images[1].model_copy(update={"inputs": "0" * 64})
        assert held(there, other_inputs) is None

        # A run's passport names the configuration, whichever engine made it, and is verified on either.
        write(tmp_path / "here.json", here)
        looks = [looking(one, tmp_path / "here.json") for one in (engine, there)]
        for image, manifest in zip(here.images, manifests, strict=True):
            assert [image.id in look(image.id) for look in looks] == [True, True]
            assert configuration(there, str(manifest)) == configuration(engine, image.id) == image.id
        assert [look(f"sha256:{'0' * 64}") for look in looks] == [set(), set()]

        references = [held_or_gone(there, one) for one in lock.images]
        packed = await saved.save(there, references, tmp_path / "saved.tar")
        assert {one.id for one in packed} == {one.id for one in lock.images}
        first = [file.read_bytes() for file in await sboms(there, lock.images, tmp_path / "there")]
    shutil.rmtree(tmp_path / "cache")
    monkeypatch.delenv("DOCKER_HOST")
    assert [file.read_bytes() for file in await sboms(engine, here.images, tmp_path / "here")] == first
    assert Lock(images=lock.images).with_images(here.images).images == here.images
