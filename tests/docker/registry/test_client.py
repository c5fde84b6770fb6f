"""The client against a real registry: what is read is what its digest says, or it is refused."""

from __future__ import annotations

import asyncio
import hashlib
import socket
from collections.abc import Callable

import pytest
from fakes.own_registry import PASSWORD, LocalRegistry

from gymctl.artefacts.descriptor import OCI_EMPTY, Descriptor, manifest_bytes
from gymctl.artefacts.registry import Registry, fallback_tag
from gymctl.errors import EngineError, IntegrityError, PrerequisiteError

TYPE = "application/vnd.example.thing"


async def push(client: Registry, path: str, data: bytes, tag: str) -> Descriptor:
    """A small artefact with one layer. Returns the manifest's descriptor."""
    config, layer = Descriptor.of(OCI_EMPTY, b"{}"), Descriptor.of(TYPE, data)
    await client.put_blob(path, config, [b"{}"])
    await client.put_blob(path, layer, [data[:3], data[3:]])
    manifest = manifest_bytes(config, [layer], artifact_type=TYPE)
    await client.put_manifest(path, tag, manifest)
    return Descriptor.of("application/vnd.oci.image.manifest.v1+json", manifest)


async def test_what_was_pushed_is_read_by_tag_and_by_digest(registry: LocalRegistry) -> None:
    async with registry.client() as client:
        made = await push(client, "bench/a", b"layer of a", "1")
        by_tag = await client.manifest("bench/a", "1")
        by_digest = await client.manifest("bench/a", made.digest)
        assert by_tag is not None and by_digest is not None
        assert by_tag.data == by_digest.data and by_tag.digest == made.digest
        layer = by_tag.layers("here")[0]
        assert await client.read("bench/a", layer) == b"layer of a"
        assert await client.has_blob("bench/a", layer.digest) == layer.size
        assert await client.tags("bench/a") == ["1"]


async def test_blob_that_is_there_is_not_sent_again(registry: LocalRegistry) -> None:
    blob = Descriptor.of(TYPE, b"once")
    async with registry.client() as client:
        assert await client.put_blob("bench/b", blob, [b"once"])
        assert not await client.put_blob("bench/b", blob, [b"never read"])


async def test_blob_with_other_bytes_than_its_digest_is_not_stored(registry: LocalRegistry) -> None:
    blob = Descriptor.of(TYPE, b"right")
    async with registry.client() as client:
        with pytest.raises(EngineError, match="DIGEST_INVALID"):
            await client.put_blob("bench/b", blob, [b"wrong"])
        assert await client.has_blob("bench/b", blob.digest) is None


async def test_what_is_not_there_is_none(registry: LocalRegistry) -> None:
    async with registry.client() as client:
        assert await client.manifest("bench/none", "1") is None
        assert await client.manifest("bench/none", f"sha256:{'0' * 64}") is None
        assert await client.tags("bench/none") == []
        assert await client.referrers("bench/none", f"sha256:{'0' * 64}") == []


@pytest.mark.parametrize("written", [b"tampered!!", b"short", b"longer than it was"])
async def test_altered_blob_is_refused(registry: LocalRegistry, written: bytes) -> None:
    data = b"untampered"
    blob = Descriptor.of(TYPE, data)
    async with registry.client() as client:
        await client.put_blob("bench/c", blob, [data])
        file = registry.blob_file(blob.digest)
        try:
            file.write_bytes(written)
            with pytest.raises(IntegrityError, match=blob.digest[:19]):
                await client.read("bench/c", blob)
        finally:
            file.write_bytes(data)
        assert await client.read("bench/c", blob) == data


async def test_missing_blob_is_refused(registry: LocalRegistry) -> None:
    async with registry.client() as client:
        with pytest.raises(IntegrityError, match="no blob"):
            await client.read("bench/c", Descriptor(TYPE, f"sha256:{'0' * 64}", 3))


async def test_file_is_attached_once_and_found_by_its_type(registry: LocalRegistry) -> None:
    async with registry.client() as client:
        subject = await push(client, "bench/d", b"layer of d", "1")
        first = await client.attach("bench/d", subject, "application/vnd.cyclonedx+json", b'{"a": 1}')
        await client.attach("bench/d", subject, "application/vnd.other", b"other")
        again = await client.attach("bench/d", subject, "application/vnd.cyclonedx+json", b'{"a": 1}')
        assert again.digest == first.digest
        found = await client.referrers("bench/d", subject.digest, "application/vnd.cyclonedx+json")
        assert [one.digest for one in found] == [first.digest]
        assert len(await client.referrers("bench/d", subject.digest)) == 2
        assert fallback_tag(subject.digest) in await client.tags(
            "bench/d"
        )  # this registry has no API for them


async def test_two_tasks_push_at_once(registry: LocalRegistry) -> None:
    async with registry.client() as client:
        await asyncio.gather(*(push(client, "bench/e", f"layer {n}".encode(), str(n)) for n in range(8)))
        assert await client.tags("bench/e") == [str(n) for n in range(8)]


async def test_registry_that_is_not_there_is_a_missing_prerequisite() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        async with Registry(f"127.0.0.1:{taken.getsockname()[1]}") as client:
            with pytest.raises(PrerequisiteError, match="cannot be reached"):
                await client.manifest("a/b", "1")


async def test_plain_http_is_for_loopback_or_for_who_says_so(
    registry: LocalRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gymctl.artefacts.registry.is_loopback", lambda host: False)
    async with registry.client() as client:
        with pytest.raises(PrerequisiteError, match="--plain-http"):
            await client.tags("bench/a")
    async with registry.client(plain_http=True) as client:
        assert await client.tags("nothing") == []


async def test_login_that_docker_has_stored_opens_the_registry(
    closed_registry: LocalRegistry, docker_login: Callable[[str, str], None]
) -> None:
    docker_login(closed_registry.host, PASSWORD)
    async with closed_registry.client() as client:
        made = await push(client, "bench/a", b"layer of a", "1")
        found = await client.manifest("bench/a", "1")
        assert found is not None and hashlib.sha256(found.data).hexdigest() == made.digest[7:]


@pytest.mark.parametrize("password", [None, "wrong-password-1"])
async def test_no_login_and_a_wrong_one_are_told_what_to_do(
    closed_registry: LocalRegistry, docker_login: Callable[[str, str], None], password: str | None
) -> None:
    if password is not None:
        docker_login(closed_registry.host, password)
    async with closed_registry.client() as client:
        for call in (client.tags("a/b"), client.put_blob("a/b", Descriptor.of(TYPE, b"x"), [b"x"])):
            with pytest.raises(PrerequisiteError) as error:
                await call
            assert error.value.hint == f"docker login {closed_registry.host}"
            assert "wrong-password" not in str(error.value)
