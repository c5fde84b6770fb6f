"""What large registries do: an API for referrers, pages, tokens that run out, storage elsewhere."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web
from fakes.oci_registry import OciRegistry, oci_registry

from gymctl.artefacts import registry as clients
from gymctl.artefacts.content import Item
from gymctl.artefacts.descriptor import OCI_EMPTY, Descriptor, manifest_bytes
from gymctl.artefacts.registry import Registry, fallback_tag
from gymctl.errors import EngineError, IntegrityError, PrerequisiteError

LOGIN = base64.b64encode(b"reader:correct-horse-7").decode()
TYPE = "application/vnd.example.thing"
SBOM = "application/vnd.cyclonedx+json"
DATA = b"bytes of a layer"


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OciRegistry]:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    with oci_registry() as running:
        (tmp_path / "config.json").write_text(json.dumps({"auths": {running.host: {"auth": LOGIN}}}))
        yield running


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long each wait would have been; nobody waits in a test."""
    seconds: list[float] = []
    real = asyncio.sleep

    async def sleep(wanted: float) -> None:
        seconds.extend([wanted] if wanted else [])
        await real(0)

    monkeypatch.setattr(clients.asyncio, "sleep", sleep)
    return seconds


async def push(client: Registry, tag: str = "1") -> Descriptor:
    config, layer = Descriptor.of(OCI_EMPTY, b"{}"), Descriptor.of(TYPE, DATA)
    await client.put_blob("a/b", config, [b"{}"])
    await client.put_blob("a/b", layer, Item.made(DATA))
    manifest = manifest_bytes(config, [layer], artifact_type=TYPE)
    await client.put_manifest("a/b", tag, manifest)
    return Descriptor.of("application/vnd.oci.image.manifest.v1+json", manifest)


async def test_registry_with_an_api_for_referrers_gets_no_tag_for_them(held: OciRegistry) -> None:
    async with Registry(held.host) as client:
        subject = await push(client)
        made = await client.attach("a/b", subject, SBOM, b'{"a": 1}')
        assert [one.digest for one in await client.referrers("a/b", subject.digest, SBOM)] == [made.digest]
        assert await client.referrers("a/b", subject.digest, TYPE) == []
        assert await client.referrers("a/b", f"sha256:{'0' * 64}") == []
        assert await client.tags("a/b") == ["1"]
    assert not held.requests(f"GET /v2/a/b/manifests/{fallback_tag(subject.digest)}")


@pytest.mark.parametrize("page", [1, 2])
async def test_lists_in_pages_are_read_to_their_end(held: OciRegistry, page: int) -> None:
    held.page = page
    async with Registry(held.host) as client:
        for tag in "edcba":
            subject = await push(client, tag)
        made = [await client.attach("a/b", subject, SBOM, text) for text in (b"1", b"2", b"3")]
        found = await client.referrers("a/b", subject.digest, SBOM)
        assert sorted(one.digest for one in found) == sorted(one.digest for one in made)
        assert await client.tags("a/b") == list("abcde")
        before = len(held.asked)
        assert await client.attach("a/b", subject, SBOM, b"1") in found
    assert not [one for one in held.asked[before:] if not one.what.startswith("GET ")], "attached once"


@pytest.mark.parametrize("link", ["<http://[::1>; rel=next", "<>; rel=next", "nonsense", "<?a>; rel=prev"])
async def test_link_to_nowhere_is_no_bug_of_ours(held: OciRegistry, link: str) -> None:
    answers = [web.json_response({"tags": ["a"]}, headers={"Link": link}), web.json_response({"tags": ["b"]})]
    held.refusals["GET /v2/a/b/tags"] = answers
    async with Registry(held.host) as client:
        assert "a" in await client.tags("a/b")


async def test_list_without_an_end_is_refused(held: OciRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "MOST_PAGES", 3)
    more = {"Link": '</v2/a/b/tags/list>; rel="next"'}
    held.refusals["GET /v2/a/b/tags"] = [web.json_response({"tags": ["a"]}, headers=more) for _ in range(9)]
    async with Registry(held.host) as client:
        with pytest.raises(EngineError, match="no end of tags"):
            await client.tags("a/b")


@pytest.mark.parametrize("location", ["relative", "absolute", "query"])
async def test_upload_goes_where_the_registry_says_with_the_token(held: OciRegistry, location: str) -> None:
    held.login, held.location = LOGIN, location  # type: ignore[assignment]
    async with Registry(held.host) as client:
        await push(client)
    sent = held.requests("PUT /v2/a/b/blobs/uploads/")
    assert sent and all(one.authorization.startswith("Bearer ") for one in sent)


@pytest.mark.parametrize("uses", [2, 3])  # it holds for the start of an upload and the upload
async def test_token_that_runs_out_in_the_middle_of_a_push_is_renewed(
    held: OciRegistry, uses: int, waited: list[float]
) -> None:
    held.login, held.uses = LOGIN, uses
    async with Registry(held.host) as client:
        subject = await push(client)
        await client.attach("a/b", subject, SBOM, b"{}")
        assert await client.read("a/b", Descriptor.of(TYPE, DATA)) == DATA
    assert len(held.requests("GET /token")) > 2
    assert LOGIN not in "".join(one.authorization for one in held.asked if "/token" not in one.what)


async def test_token_that_runs_out_for_several_tasks_at_once_is_renewed_for_each(
    held: OciRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the place of tokens gives all of them the same new one."""
    held.login = LOGIN
    async with Registry(held.host) as client:
        await push(client)
        monkeypatch.setattr(held, "_tokens", {})
        monkeypatch.setattr(held, "_token", lambda request: _same(held))
        found = await asyncio.gather(*(client.tags("a/b") for _ in range(8)))
    assert found == [["1"]] * 8


def _same(held: OciRegistry) -> web.Response:
    held._tokens["of-this-minute"] = (0, ("repository:a/b:pull",))
    return web.json_response({"token": "of-this-minute"})


@pytest.mark.parametrize(
    "challenge",
    [
        'Negotiate, Basic realm="x", Bearer realm="{realm}",service="a, Basic realm=b",scope="{scope}"',
        'Bearer service=registry,scope="{scope}", realm="{realm}", error="invalid_token"',
        'bearer Realm="{realm}",Scope="{scope}"',
    ],
)
async def test_challenge_in_another_shape_is_answered(held: OciRegistry, challenge: str) -> None:
    held.login, held.challenge = LOGIN, challenge
    async with Registry(held.host) as client:
        await push(client)


async def test_busy_registry_is_asked_again_when_it_says(held: OciRegistry, waited: list[float]) -> None:
    busy = {"Retry-After": "7"}
    held.refusals = {
        "GET /v2/a/b/manifests": [web.Response(status=429, headers=busy), web.Response(status=503)],
        "PUT /v2/a/b/blobs/uploads": [web.Response(status=429, headers=busy)],
    }
    async with Registry(held.host) as client:
        made = await push(client)
        assert await client.manifest("a/b", made.digest) is not None
    assert waited == [7.0, 7.0, 2.0]
    layer = f"sha256:{hashlib.sha256(DATA).hexdigest()}"
    assert held.blobs["a/b"][layer] == DATA


async def test_registry_that_is_busy_for_long_says_for_how_long(
    held: OciRegistry, waited: list[float]
) -> None:
    held.refusals["GET /v2/a/b/tags"] = [web.Response(status=429, headers={"Retry-After": "3600"})]
    held.refusals["PUT /v2/a/b/blobs/uploads"] = [web.Response(status=429, headers={"Retry-After": "3600"})]
    async with Registry(held.host) as client:
        for call in (client.tags("a/b"), push(client)):
            with pytest.raises(EngineError, match="answers 429") as error:
                await call
            assert error.value.hint == "it wants to be asked again in 3,600 s"
    assert waited == []


async def test_upload_that_breaks_is_sent_again_from_its_beginning(
    held: OciRegistry, waited: list[float]
) -> None:
    chunks = [bytes([number]) * (1 << 20) for number in range(4)]
    blob = Descriptor.of(TYPE, b"".join(chunks))
    held.cuts = {"PUT /v2/a/b/blobs/uploads": [1 << 20], "POST /v2/a/b/blobs/uploads": [0]}
    async with Registry(held.host) as client:
        assert await client.put_blob("a/b", blob, chunks)
    assert held.blobs["a/b"] == {blob.digest: b"".join(chunks)}
    assert waited == [1.0, 2.0]
    sent = [one.what.partition("?")[0] for one in held.requests("PUT ")]
    assert len(sent) == len(set(sent)) == 2, "each to an upload of its own"


@pytest.mark.parametrize("method", ["PUT", "POST"])
async def test_upload_that_breaks_every_time_ends_in_one_sentence(
    held: OciRegistry, waited: list[float], method: str
) -> None:
    held.cuts[f"{method} /v2/a/b/blobs/uploads"] = [0] * 9
    async with Registry(held.host) as client:
        with pytest.raises(PrerequisiteError, match="cannot be reached: it ended the connection"):
            await client.put_blob("a/b", Descriptor.of(TYPE, DATA), [DATA])
    assert len(held.requests(f"{method} ")) == len(waited) + 1 == 3


async def test_upload_that_can_be_read_once_is_not_sent_again(held: OciRegistry) -> None:
    held.cuts["PUT /v2/a/b/blobs/uploads"] = [1]
    async with Registry(held.host) as client:
        with pytest.raises(PrerequisiteError, match="it ended the connection"):
            await client.put_blob("a/b", Descriptor.of(TYPE, DATA), iter([DATA]))
    assert len(held.requests("PUT ")) == 1


@pytest.mark.parametrize("has_ranges", [True, False])
@pytest.mark.parametrize("is_altered", [True, False])
async def test_blob_that_breaks_off_is_read_on_and_is_what_its_digest_says(
    held: OciRegistry, waited: list[float], has_ranges: bool, is_altered: bool
) -> None:
    held.has_ranges = has_ranges
    blob = Descriptor.of(TYPE, DATA)
    async with Registry(held.host) as client:
        await push(client)
        held.cuts["GET /v2/a/b/blobs"] = [3, 5] if has_ranges else [3, 8]
        if is_altered:
            held.blobs["a/b"][blob.digest] = DATA[:-1] + b"!"
            with pytest.raises(IntegrityError, match="is not what its digest says"):
                await client.read("a/b", blob)
        else:
            assert await client.read("a/b", blob) == DATA
    assert waited == [1.0, 2.0] and len(held.requests("GET /v2/a/b/blobs")) == 3


async def test_blob_that_breaks_off_every_time_ends_in_one_sentence(
    held: OciRegistry, waited: list[float]
) -> None:
    async with Registry(held.host) as client:
        await push(client)
        held.cuts["GET /v2/a/b/blobs"] = [1] * 9
        with pytest.raises(PrerequisiteError, match="cannot be reached: it ended the connection"):
            await client.read("a/b", Descriptor.of(TYPE, DATA))
    assert len(held.requests("GET /v2/a/b/blobs")) == len(waited) + 1 == 3


async def test_blob_that_lies_elsewhere_comes_without_the_token_and_with_its_address_as_it_was(
    held: OciRegistry,
) -> None:
    held.login, held.is_storing_elsewhere = LOGIN, True
    async with Registry(held.host) as client:
        await push(client)
        assert await client.read("a/b", Descriptor.of(TYPE, DATA)) == DATA
        assert await client.has_blob("a/b", Descriptor.of(TYPE, DATA).digest) == len(DATA)
    stored = [one for one in held.asked if one.host.startswith("localhost")]
    assert stored and not any(one.authorization for one in stored)
    assert all(one.what.endswith("&sig=a%2Bb%2F") for one in stored)


async def test_challenge_of_the_host_where_blobs_lie_is_not_answered(
    held: OciRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    held.is_storing_elsewhere = True

    def asks(request: web.Request) -> web.StreamResponse:
        realm = f'Bearer realm="http://{held.host}/token"'
        return web.Response(status=401, headers={"WWW-Authenticate": realm})

    monkeypatch.setattr(held, "_stored", asks)
    async with Registry(held.host) as client:
        await push(client)
        with pytest.raises(PrerequisiteError, match="does not let you"):
            await client.read("a/b", Descriptor.of(TYPE, DATA))
    assert not held.requests("GET /token") and not any(one.authorization for one in held.asked)


@pytest.mark.parametrize("place", ["http://[::1", "", "http://", "/a b", "ftp://x/y", "/\u00e9"])
async def test_place_of_an_upload_that_is_none_ends_in_one_sentence(held: OciRegistry, place: str) -> None:
    held.refusals["POST /v2/a/b"] = [web.Response(status=202, headers={"Location": place})]
    async with Registry(held.host) as client:
        with pytest.raises((EngineError, PrerequisiteError)):
            await client.put_blob("a/b", Descriptor.of(TYPE, DATA), iter([DATA]))
