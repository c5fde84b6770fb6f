"""A run keeps the lock of its beginning; a later session's other images are told and written down."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from gymctl.cli import run_lock
from gymctl.images.lock import Lock, LockedImage, read
from gymctl.paths import RunPaths
from gymctl.rollouts import passport
from gymctl.rollouts.history import History
from gymctl.rollouts.passport import Identity
from gymctl.rollouts.store import RunStore


def lock(digit: str) -> Lock:
    image = LockedImage(
        name="resources_servers/weather",
        repository="gymctl/resources-weather",
        tag=digit * 20,
        id=f"sha256:{digit * 64}",
        platform="linux/amd64",
        inputs=digit * 64,
        context="c",
        base="Dockerfile.base",
    )
    return Lock().with_images([image])


async def session(store: RunStore, ran: Lock | None) -> list[str]:
    """What a user is told."""
    said: list[str] = []

    async def running() -> Lock | None:
        return ran

    run: Any = SimpleNamespace(is_resumed=not store.is_new, paths=store.paths, note_lock=store.note_lock)
    stack: Any = SimpleNamespace(lock=running)
    console: Any = SimpleNamespace(insist=said.append)
    await run_lock.note(run, stack, console)
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
    told = await session(again(paths), lock("2"))
    difference = f"image resources_servers/weather: sha256:{'1' * 12} → sha256:{'2' * 12}"
    assert told == [f"note: another image than when the run was begun: {difference}"]
    assert read(paths.lock) == lock("1")
    written = json.loads(paths.passport.read_text())
    assert [one["in_spite_of"] for one in written["continued"]] == [[], [difference]]


async def test_local_processes_leave_no_lock(tmp_path: Path) -> None:
    store = RunStore(RunPaths(tmp_path / "x.jsonl"))
    store.prepare([{"_ng_task_index": 0, "_ng_rollout_index": 0}])
    assert await session(store, None) == []
    assert not store.paths.lock.exists()
