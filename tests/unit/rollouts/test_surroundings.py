"""A run keeps the lock of its beginning; a later session's other images are told and written down."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gymctl.images.lock import Lock, LockedImage, read
from gymctl.paths import RunPaths
from gymctl.rollouts import passport, surroundings
from gymctl.rollouts.history import History
from gymctl.rollouts.passport import Identity
from gymctl.rollouts.store import RunStore
from gymctl.runtime.inforce import InForce
from gymctl.runtime.stack import ServerFacts, StackFacts


def image(digit: str, context: str = "c") -> LockedImage:
    return LockedImage(
        name="resources_servers/weather",
        repository="gymctl/resources-weather",
        tag=digit * 20,
        id=f"sha256:{digit * 64}",
        platform="linux/amd64",
        inputs=digit * 64,
        context=context,
        base="Dockerfile.base",
    )


def lock(*digits: str) -> Lock:
    return Lock().with_images([image(digit) for digit in digits])


def stack(ran: Lock | None) -> Any:
    async def running() -> Lock | None:
        return ran

    async def facts() -> StackFacts:
        return StackFacts({"weather": ServerFacts(InForce(), image_id="sha256:1")}, engine="26.1.5")

    return SimpleNamespace(runtime="compose", lock=running, facts=facts)


async def test_an_image_is_named_by_its_configuration_whatever_the_engine_calls_it() -> None:
    there = image("1").model_copy(update={"digest": "sha256:1"})
    seen = await surroundings.look(stack(Lock().with_images([there])))
    assert seen.servers["weather"].id == there.id
    assert (await surroundings.look(stack(lock("1")))).servers["weather"].id == "sha256:1"


async def session(store: RunStore, ran: Lock | None) -> Sequence[str]:
    """What a user is told."""
    said = store.note_surroundings(await surroundings.look(stack(ran)))
    store.begin()
    store.close()
    return said


def again(paths: RunPaths) -> RunStore:
    found = passport.read(paths.passport)
    assert found is not None
    store = RunStore(paths)
    store.take()
    store.go_on(passport.continued(found, Identity(), []), History(), 1)
    return store


async def test_the_first_lock_stays_and_another_image_is_told(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path / "x.jsonl")
    store = RunStore(paths)
    store.prepare([{"_ng_task_index": 0, "_ng_rollout_index": 0}])
    assert await session(store, lock("1")) == []
    assert read(paths.lock) == lock("1")

    assert await session(again(paths), lock("1")) == []
    difference = f"image resources_servers/weather: sha256:{'1' * 12} → sha256:{'2' * 12}"
    assert await session(again(paths), lock("2")) == [difference]
    assert read(paths.lock) == lock("1")
    written = json.loads(paths.passport.read_text())
    assert [one["in_spite_of"] for one in written["continued"]] == [[], [difference]]
    assert written["servers"]["weather"]["id"] == "sha256:1"


async def test_local_processes_leave_no_lock(tmp_path: Path) -> None:
    store = RunStore(RunPaths(tmp_path / "x.jsonl"))
    store.prepare([{"_ng_task_index": 0, "_ng_rollout_index": 0}])
    assert await session(store, None) == []
    assert not store.paths.lock.exists()


def test_folders_of_one_name_are_compared_each_with_itself() -> None:
    before = Lock().with_images([image("1", "a"), image("2", "b")])
    after = Lock().with_images([image("1", "a"), image("3", "b")])
    told = list(surroundings.other_images(before.text().encode(), after.text()))
    assert told == [f"image resources_servers/weather: sha256:{'2' * 12} → sha256:{'3' * 12}"]


@pytest.mark.parametrize("broken", [b"", b"{", b"[]", b'{"images": [1]}', b"\xff"])
def test_a_broken_lock_of_the_first_session_ends_no_run(broken: bytes) -> None:
    assert list(surroundings.other_images(broken, lock("1").text())) == []
