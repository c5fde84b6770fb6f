"""A benchmark goes to a registry and comes back file by file; what was altered on the way is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from fakes.own_registry import LocalRegistry

from gymctl.artefacts import content as contents
from gymctl.artefacts import pulled
from gymctl.artefacts.content import Content, Item
from gymctl.artefacts.descriptor import OCI_MANIFEST, Manifest
from gymctl.artefacts.pack import LARGE, Artefact, pack
from gymctl.artefacts.reference import Reference
from gymctl.errors import IntegrityError, PrerequisiteError, UsageError
from gymctl.images.lock import Lock

ROWS = "benchmarks/tool/data/rows.jsonl"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "gymctl" / "benchmarks"


def left(cache: Path) -> list[str]:
    """What pulls that were refused left there, or beside it."""
    return [path.name for path in (*cache.iterdir(), cache.parent / "outside") if path.exists()]


def made(rows: bytes = b'{"id": 1}\n') -> Content:
    files = {
        "benchmarks/tool/config.yaml": Item.made(b"tool: {}\n"),
        ROWS: Item.made(rows),
        "resources_servers/tool/large.bin": Item.made(b"x" * (LARGE + 1)),
        "resources_servers/tool/run.sh": replace(Item.made(b"#!/bin/sh\n"), is_executable=True),
    }
    return contents.content(name="tool", benchmark="tool", files=files, data=(ROWS,), lock=Lock())


async def pushed(registry: LocalRegistry, tag: str, content: Content | None = None) -> Artefact:
    artefact = pack(content or made())
    async with registry.client() as client:
        for blob, item in artefact.blobs:
            await client.put_blob("bench/tool", blob, item.chunks())
        await client.put_manifest("bench/tool", tag, artefact.manifest)
    return artefact


def named(registry: LocalRegistry, tag: str | None = None, digest: str | None = None) -> Reference:
    return Reference(registry.host, "bench/tool", tag, digest)


async def test_every_file_comes_back_with_its_mode(registry: LocalRegistry) -> None:
    content = made()
    artefact = await pushed(registry, "1", content)
    found = await pulled.pull(named(registry, "1"))
    assert found.reference.digest == artefact.descriptor.digest
    for place, item in content.files.items():
        assert (found.folder / place).read_bytes() == item.data
    assert (found.folder / "resources_servers/tool/run.sh").stat().st_mode & 0o777 == 0o555
    assert found.folder.stat().st_mode & 0o077 == 0
    assert found.lock.is_file()


def test_same_content_is_the_same_artefact() -> None:
    assert pack(made()).manifest == pack(made()).manifest
    assert pack(made()).manifest != pack(made(b'{"id": 2}\n')).manifest


async def test_pinned_benchmark_that_is_in_the_cache_needs_no_registry(registry: LocalRegistry) -> None:
    artefact = await pushed(registry, "1")
    await pulled.pull(named(registry, "1"))
    gone = Reference("127.0.0.1:1", "bench/tool", None, artefact.descriptor.digest)
    assert (await pulled.pull(gone)).manifest.name == "tool"


@pytest.mark.parametrize("place", [ROWS, "resources_servers/tool/run.sh", "benchmark.json"])
async def test_file_altered_in_the_cache_is_named_at_the_next_use(
    registry: LocalRegistry, place: str
) -> None:
    await pushed(registry, "1")
    file = (await pulled.pull(named(registry, "1"))).folder / place
    file.chmod(0o755 if place.endswith(".sh") else 0o644)
    file.write_bytes(file.read_bytes() + b"#")
    with pytest.raises(IntegrityError, match=place):
        await pulled.pull(named(registry, "1"))


async def test_every_layer_altered_in_the_registry_is_refused(registry: LocalRegistry, cache: Path) -> None:
    artefact = await pushed(registry, "1")
    for blob, item in artefact.blobs:
        file = registry.blob_file(blob.digest)
        before = b"".join(item.chunks())
        try:
            file.write_bytes(bytes([before[0] ^ 1]) + before[1:])
            with pytest.raises(IntegrityError, match=blob.digest[:19]):
                await pulled.pull(named(registry, "1"))
        finally:
            file.write_bytes(before)
    assert not left(cache)


async def test_manifest_that_was_deleted_is_refused_and_a_missing_tag_lists_those_there(
    registry: LocalRegistry,
) -> None:
    await pushed(registry, "kept")
    with pytest.raises(IntegrityError, match="no manifest"):
        await pulled.pull(named(registry, "kept", f"sha256:{'0' * 64}"))
    with pytest.raises(PrerequisiteError, match="kept"):
        await pulled.pull(named(registry, "other"))


async def test_layer_that_writes_elsewhere_or_is_not_listed_is_refused(
    registry: LocalRegistry, cache: Path
) -> None:
    artefact = await pushed(registry, "1")
    manifest = json.loads(artefact.manifest)
    for title in ("../../outside", "benchmarks/tool/more.py", ROWS):  # the last one is there already
        layer = {**manifest["layers"][1], "annotations": {"org.opencontainers.image.title": title}}
        changed = json.dumps({**manifest, "layers": [*manifest["layers"], layer]}).encode()
        async with registry.client() as client:
            digest = Manifest(changed, OCI_MANIFEST).digest
            await client.put_manifest("bench/tool", digest, changed)
        with pytest.raises(IntegrityError, match="no file of the benchmark"):
            await pulled.pull(named(registry, None, digest))
    assert not left(cache)


async def test_image_is_no_benchmark(registry: LocalRegistry) -> None:
    manifest = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "layers": []}
    async with registry.client() as client:
        artefact = await pushed(registry, "1")
        manifest["config"] = artefact.blobs[0][0].json()
        await client.put_manifest("bench/tool", "image", json.dumps(manifest).encode())
    with pytest.raises(UsageError, match="no benchmark"):
        await pulled.pull(named(registry, "image"))
