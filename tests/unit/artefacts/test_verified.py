"""A layer that many images share is read once; that it is there is asked in each repository."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from gymctl.artefacts.descriptor import Descriptor
from gymctl.artefacts.verified import SIZE_ONLY, Registries, lock_findings
from gymctl.errors import IntegrityError
from gymctl.images.lock import Lock, LockedImage

LAYER = Descriptor.of("application/x", b"bytes")


@dataclass
class Held:
    """The part of a registry that is asked."""

    host: str = "localhost:5000"
    is_damaged: bool = False
    lacking: tuple[str, ...] = ()
    read: list[str] = field(default_factory=list[str])

    async def has_blob(self, path: str, digest: str) -> int | None:
        return None if path in self.lacking else LAYER.size

    async def blob(self, path: str, blob: Descriptor) -> AsyncIterator[bytes]:
        self.read.append(path)
        await asyncio.sleep(0)
        if self.is_damaged:
            raise IntegrityError("other bytes")
        yield b"bytes"


async def look(held: Any, *, is_deep: bool) -> list[tuple[str, str]]:
    registries = Registries()
    looks = [registries.blob(path, held, path, LAYER, is_deep=is_deep) for path in ("a", "b", "c")]
    return [(found.status, found.detail) for found in await asyncio.gather(*looks)]


async def test_bytes_are_read_once_and_damage_is_told_of_each_image() -> None:
    held = Held()
    assert {status for status, _ in await look(held, is_deep=True)} == {"ok"}
    assert len(held.read) == 1
    held = Held(is_damaged=True)
    assert await look(held, is_deep=True) == [("differs", "other bytes")] * 3
    assert len(held.read) == 1


async def test_without_deep_nothing_is_read_and_a_repository_that_lacks_it_is_found() -> None:
    held = Held(lacking=("b",))
    (_, size), (lacks, _), _ = await look(held, is_deep=False)
    assert size.endswith(SIZE_ONLY) and lacks == "differs"
    assert held.read == []


async def test_an_image_of_several_platforms_is_told_by_its_own() -> None:
    def image(name: str, platform: str) -> LockedImage:
        made = {"tag": "1", "inputs": "0" * 64, "base": "Dockerfile.base", "id": f"sha256:{'0' * 64}"}
        return LockedImage(name=name, repository="gymctl/a", platform=platform, **made)

    lock = Lock().with_images(
        [image("a", "linux/amd64"), image("a", "linux/arm64"), image("b", "linux/arm64")]
    )
    async with Registries() as registries:
        found = await lock_findings(lock, registries, None, is_deep=False)
    assert [one.thing for one in found] == ["a linux/amd64", "a linux/arm64", "b"]
    assert found[1].name == "a linux/arm64 manifest"
