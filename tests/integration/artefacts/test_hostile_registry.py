"""Registries that answer with anything at all: each is refused in one sentence, and nothing is left."""

from __future__ import annotations

import base64
import io
import json
import tarfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web

from gymctl.artefacts import content as contents
from gymctl.artefacts import kept, pulled, registry
from gymctl.artefacts.content import Content, FileEntry, Item, Manifest
from gymctl.artefacts.descriptor import OCI_INDEX, OCI_MANIFEST, Descriptor, digest_of, manifest_bytes
from gymctl.artefacts.pack import ARTIFACT_TYPE, CONFIG_TYPE, FILES_TYPE, pack
from gymctl.artefacts.reference import Reference
from gymctl.artefacts.registry import Registry
from gymctl.errors import EngineError, GymctlError, IntegrityError, PrerequisiteError, UsageError
from gymctl.images.lock import Lock

LOGIN = base64.b64encode(b"reader:correct-horse-7").decode()
DEEP = b"[" * 100_000
Answer = Callable[[web.Request], web.StreamResponse]


@dataclass
class Liar:
    """A registry that answers as it is told to, by the end of the path; else 404."""

    port: int = 0
    answers: dict[str, Answer | tuple[int, bytes, str]] = field(
        default_factory=dict[str, "Answer | tuple[int, bytes, str]"]
    )
    asked: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    """Method and path, what came as Authorization, and the body."""

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def reference(self) -> Reference:
        return Reference(self.host, "bench/tool", "1")

    async def answer(self, request: web.Request) -> web.StreamResponse:
        login = request.headers.get("Authorization", "")
        self.asked.append((f"{request.method} {request.path}", login, await request.text()))
        for end, answer in self.answers.items():
            if request.path.endswith(end):
                if callable(answer):
                    return answer(request)
                status, body, media_type = answer
                return web.Response(status=status, body=body, content_type=media_type)
        return web.json_response({"errors": []}, status=404)

    def holds(self, manifest: bytes, *blobs: bytes) -> None:
        self.answers["manifests/1"] = (200, manifest, OCI_MANIFEST)
        for blob in blobs:
            self.answers[digest_of(blob)] = (200, blob, "application/octet-stream")


@pytest.fixture
async def liar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Liar]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    held = Liar()
    app = web.Application(client_max_size=1 << 24)
    app.router.add_route("*", "/{rest:.*}", held.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        held.port = runner.addresses[0][1]
        auths = {held.host: {"auth": LOGIN}}
        (tmp_path / "config.json").write_text(json.dumps({"auths": auths}))
        yield held
    finally:
        await runner.cleanup()


def left() -> list[str]:
    folder = kept.places("sha256:0")[0].parent
    return [path.name for path in folder.iterdir()] if folder.is_dir() else []


async def refused(liar: Liar, kind: type[GymctlError]) -> str:
    with pytest.raises(kind) as error:
        await pulled.pull(liar.reference)
    assert left() == []
    return str(error.value)


MANIFESTS = {
    "a page": (b"<html>log in first</html>", "text/html", IntegrityError),
    "nothing": (b"", OCI_MANIFEST, IntegrityError),
    "no object": (b"[]", OCI_MANIFEST, IntegrityError),
    "deep": (DEEP, OCI_MANIFEST, IntegrityError),
    "endless": (b" " * (5 << 20), OCI_MANIFEST, IntegrityError),
    "an index": (b'{"schemaVersion":2,"manifests":[]}', OCI_INDEX, UsageError),
}


@pytest.mark.parametrize("what", MANIFESTS)
async def test_what_is_no_manifest_of_a_benchmark_is_refused(liar: Liar, what: str) -> None:
    body, media_type, kind = MANIFESTS[what]
    liar.answers["manifests/1"] = (200, body, media_type)
    await refused(liar, kind)


@pytest.mark.parametrize(
    "change",
    [
        {"config": None},
        {"config": {"digest": "sha256:" + "0" * 64, "size": float("inf"), "mediaType": CONFIG_TYPE}},
        {"config": {"digest": "sha256:" + "0" * 64, "size": 1 << 40, "mediaType": CONFIG_TYPE}},
        {"config": {"digest": "../../x", "size": 1, "mediaType": CONFIG_TYPE}},
    ],
)
async def test_descriptors_that_make_no_sense_are_refused(liar: Liar, change: dict[str, object]) -> None:
    manifest = {**json.loads(pack(made()).manifest), **change}
    liar.holds(json.dumps(manifest).encode(), *(item.data for _, item in pack(made()).blobs))
    await refused(liar, IntegrityError)


@pytest.mark.parametrize("layers", [5, {"a": 1}, [5], ["x"], None])
async def test_layers_that_are_no_list_of_layers_are_refused(liar: Liar, layers: object) -> None:
    manifest = {**json.loads(pack(made()).manifest), "layers": layers}
    liar.holds(json.dumps(manifest).encode(), *(item.data for _, item in pack(made()).blobs))
    await refused(liar, IntegrityError)


@pytest.mark.parametrize(
    "body", [b"<html>", b"[1]", DEEP, b" " * (5 << 20), b'{"tags": 5}', b'{"tags": "ab"}']
)
async def test_tags_that_are_none_are_no_bug_of_ours(liar: Liar, body: bytes) -> None:
    liar.answers["tags/list"] = (200, body, "text/html")
    said = await refused(liar, PrerequisiteError)
    assert "does not answer as a registry does" in said or "has no `1` there" in said


@pytest.mark.parametrize(
    "body", [b'{"errors": {"a": 1}}', b'{"errors": ["x", {"code": 5}]}', DEEP, b"<html>"]
)
async def test_a_registry_in_trouble_is_told_whatever_it_says(
    liar: Liar, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "TRIES", 1)
    liar.answers["manifests/1"] = (500, body, "text/html")
    assert "answers 500" in await refused(liar, EngineError)


async def test_body_that_ends_in_the_middle_is_a_registry_that_is_away(
    liar: Liar, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "TRIES", 1)
    artefact = pack(made())
    liar.holds(artefact.manifest, *(item.data for _, item in artefact.blobs))

    def short(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nfirst")
        request.transport.close()
        return web.Response()

    liar.answers[artefact.blobs[-1][0].digest] = short
    assert "cannot be reached" in await refused(liar, PrerequisiteError)
    liar.holds(artefact.manifest, *(item.data for _, item in artefact.blobs))
    assert (await pulled.pull(liar.reference)).manifest.name == "tool", "the same command again"


async def test_a_benchmark_larger_than_the_disk_is_refused_before_it_fills_it(liar: Liar) -> None:
    artefact = pack(made())
    manifest = json.loads(artefact.manifest)
    manifest["layers"][0]["size"] = 1 << 60
    liar.holds(json.dumps(manifest).encode(), *(item.data for _, item in artefact.blobs))
    assert "there is room for" in await refused(liar, PrerequisiteError)
    assert not [path for path, _, _ in liar.asked if manifest["layers"][0]["digest"] in path]


def made() -> Content:
    files = {"benchmarks/tool/config.yaml": Item.made(b"tool: {}\n")}
    return contents.content(name="tool", benchmark="tool", files=files, lock=Lock())


def with_tar(liar: Liar, tar: bytes, listed: dict[str, int]) -> None:
    """A benchmark whose digests are right, and whose tar is this."""
    files = tuple(FileEntry(path=path, sha256="0" * 64, size=size) for path, size in listed.items())
    text = Manifest(name="tool", benchmark="tool", files=files).text().encode()
    liar.holds(
        manifest_bytes(
            Descriptor.of(CONFIG_TYPE, text), [Descriptor.of(FILES_TYPE, tar)], artifact_type=ARTIFACT_TYPE
        ),
        text,
        tar,
    )


def tar_of(*members: tarfile.TarInfo) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(b"x" * member.size))
    return held.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, **more: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, 1 if kind == tarfile.REGTYPE else 0
    for key, value in more.items():
        setattr(info, key, value)
    return info


def sparse() -> tarfile.TarInfo:
    """One byte that says of itself that it is a terabyte (GNU format 1.0 in PAX headers)."""
    headers = {"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.name": "a"}
    return member("a", pax_headers={**headers, "GNU.sparse.size": str(1 << 40), "GNU.sparse.map": "0,1"})


TARS = {
    "up": tar_of(member("../a")),
    "absolute": tar_of(member("/a")),
    "link": tar_of(member("a", tarfile.SYMTYPE, linkname="/etc/passwd")),
    "hard link": tar_of(member("a", tarfile.LNKTYPE, linkname="benchmark.json")),
    "device": tar_of(member("a", tarfile.CHRTYPE)),
    "pipe": tar_of(member("a", tarfile.FIFOTYPE)),
    "folder": tar_of(member("a", tarfile.DIRTYPE)),
    "twice": tar_of(member("a"), member("a")),
    "over benchmark.json": tar_of(member("benchmark.json")),
    "larger than listed": tar_of(member("a", size=2)),
    "sparse": tar_of(sparse()),
    "broken sparse": tar_of(
        member("a", pax_headers={"GNU.sparse.map": "x,y", "GNU.sparse.major": "0", "GNU.sparse.minor": "1"})
    ),
    "cut off": tar_of(member("a", size=2000))[:1500],
    "no tar": b"x" * 4096,
    "gzip": b"\x1f\x8b" + bytes(600),
}


@pytest.mark.parametrize("kind", TARS)
async def test_tars_that_want_more_than_files_are_refused(liar: Liar, tmp_path: Path, kind: str) -> None:
    with_tar(liar, TARS[kind], {"a": 1 if kind != "sparse" else 1 << 40})
    await refused(liar, IntegrityError)
    assert files_below(tmp_path) == ["config.json"]


def files_below(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    "places", [["a", "a/b"], ["benchmark.json/x"], ["a" * 256], ["a\udc80"], ["\x9bm"], ["a//b"], ["é" * 200]]
)
async def test_places_that_no_folder_can_hold_are_refused(liar: Liar, places: list[str]) -> None:
    files = [{"path": place, "sha256": "0" * 64, "size": 1} for place in places]
    text = json.dumps({"name": "tool", "benchmark": "tool", "files": files}).encode()
    liar.holds(manifest_bytes(Descriptor.of(CONFIG_TYPE, text), [], artifact_type=ARTIFACT_TYPE), text)
    await refused(liar, IntegrityError)


def wants_login(realm: str, scheme: str = "Bearer") -> Answer:
    return lambda _: web.Response(
        status=401, headers={"WWW-Authenticate": f'{scheme} realm="{realm}",service="x"'}
    )


@pytest.mark.parametrize(
    "body", [b"<html>", b'{"token": 5}', b'{"token": "a\\r\\nX: y"}', DEEP, b" " * (5 << 20)]
)
async def test_a_token_that_is_none_is_a_login_that_failed(liar: Liar, body: bytes) -> None:
    liar.answers["manifests/1"] = wants_login(f"http://{liar.host}/token")
    liar.answers["/token"] = (200, body, "application/json")
    assert "docker login" in await refused(liar, PrerequisiteError)


@pytest.mark.parametrize("realm", ["http://[::1", "token", "file:///etc/passwd", ""])
async def test_a_place_of_tokens_that_is_none_ends_in_one_sentence(liar: Liar, realm: str) -> None:
    liar.answers["manifests/1"] = wants_login(realm)
    await refused(liar, PrerequisiteError)


async def test_a_host_behind_an_at_sign_is_not_this_machine(liar: Liar) -> None:
    """`127.0.0.1:x` is a name and password there; the host is the other one."""
    liar.answers["manifests/1"] = wants_login(f"http://127.0.0.1:x@0.0.0.0:{liar.port}/token")
    await refused(liar, PrerequisiteError)
    assert not [login for path, login, _ in liar.asked if path == "GET /token" and LOGIN in login]


async def test_a_place_of_tokens_sends_nobody_on_with_the_refresh_token(liar: Liar, tmp_path: Path) -> None:
    auths = {liar.host: {"auth": LOGIN, "identitytoken": "refresh-me-8"}}
    (tmp_path / "config.json").write_text(json.dumps({"auths": auths}))
    liar.answers["manifests/1"] = wants_login(f"http://{liar.host}/token")

    def elsewhere(request: web.Request) -> web.StreamResponse:
        raise web.HTTPTemporaryRedirect(f"http://localhost:{liar.port}/thief")

    liar.answers["/token"] = elsewhere
    await refused(liar, PrerequisiteError)
    assert [path for path, _, body in liar.asked if "refresh-me-8" in body] == ["POST /token"]


async def test_what_is_pushed_goes_to_nobody_else(liar: Liar) -> None:
    def elsewhere(request: web.Request) -> web.StreamResponse:
        raise web.HTTPTemporaryRedirect(f"http://localhost:{liar.port}/thief")

    liar.answers["manifests/2"] = elsewhere
    async with Registry(liar.host) as client:
        with pytest.raises(EngineError, match="answers 307"):
            await client.put_manifest("bench/tool", "2", pack(made()).manifest)
    assert [path for path, _, _ in liar.asked] == ["PUT /v2/bench/tool/manifests/2"]


@pytest.mark.parametrize("body", [b"<html>", b'{"manifests": 5}', b'{"manifests": [5]}', DEEP])
async def test_referrers_that_are_none_are_no_bug_of_ours(liar: Liar, body: bytes) -> None:
    digest = f"sha256:{'0' * 64}"
    liar.answers[f"referrers/{digest}"] = (200, body, "application/json")
    async with Registry(liar.host) as client:
        try:
            assert await client.referrers("bench/tool", digest) == []
        except GymctlError as error:
            assert error.exit_code in (3, 9)


async def test_a_registry_that_does_not_know_a_blob_yet_is_asked_again(
    liar: Liar, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when two pushes bring one blob at the same time."""
    monkeypatch.setattr(registry.asyncio, "sleep", _at_once)
    statuses = [400, 400, 201]
    liar.answers["manifests/2"] = lambda _: web.Response(status=statuses.pop(0))
    async with Registry(liar.host) as client:
        await client.put_manifest("bench/tool", "2", pack(made()).manifest)
        statuses[:] = [400] * 3
        with pytest.raises(EngineError, match="answers 400"):
            await client.put_manifest("bench/tool", "2", pack(made()).manifest)
    assert statuses == []


async def _at_once(seconds: float) -> None:
    """Nobody waits in a test."""
