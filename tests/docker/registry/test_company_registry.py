"""Registries as companies have them: TLS with their own CA and a login; and one of the spec's version 1.1."""

from __future__ import annotations

import base64
import contextlib
import os
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp import web
from fakes.certificates import Authority
from fakes.oci_registry import oci_registry
from fakes.own_images import Silent
from fakes.own_registry import HTPASSWD, PASSWORD, USER, LocalRegistry, serve
from fakes.program import gymctl

from gymctl.artefacts.push import Place, check_engine, push_images
from gymctl.artefacts.registry import Registry, fallback_tag
from gymctl.artefacts.tls import CERTS
from gymctl.artefacts.verified import Registries, lock_findings
from gymctl.engine import Engine
from gymctl.errors import PrerequisiteError
from gymctl.images.lock import Lock, LockedImage

STORED = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
Login = Callable[[str, str], None]


@dataclass(frozen=True)
class Company:
    registry: LocalRegistry
    """At an address that is not loopback: nobody goes there without TLS."""
    authority: Authority


@pytest.fixture(scope="module")
def company(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Company]:
    folder = tmp_path_factory.mktemp("company")
    authority, address = Authority(folder), _bridge()
    with serve(folder, htpasswd=HTPASSWD, address=address, certificate=authority.signed(address)) as running:
        yield Company(running, authority)


@pytest.fixture
def trusted(company: Company) -> Iterator[None]:
    """The engine of this machine trusts its CA."""
    if os.geteuid() != 0:
        pytest.skip(f"only root may write to {CERTS}")
    is_new, folder = not CERTS.is_dir(), CERTS / company.registry.host
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(company.authority.file, folder / "ca.crt")
        yield
    finally:
        shutil.rmtree(folder)
        if is_new:
            with contextlib.suppress(OSError):  # somebody else's is there now
                CERTS.rmdir()


@pytest.fixture
def small(tmp_path: Path) -> Iterator[LockedImage]:
    """An image of a few bytes that nobody else has."""
    folder, name = tmp_path / "image", f"gymctl-test/small-{uuid.uuid4().hex[:12]}"
    folder.mkdir()
    (folder / "one").write_text(name)
    (folder / "Dockerfile").write_text("FROM scratch\nCOPY one /one\nCMD ['none']\n")
    subprocess.run(["docker", "build", "-q", "-t", f"{name}:1", str(folder)], check=True, capture_output=True)
    id = Engine.connect().image_id(f"{name}:1")
    assert id is not None
    made = {"tag": "1", "platform": "linux/amd64", "inputs": "0" * 64, "base": "Dockerfile.base"}
    try:
        yield LockedImage(name="resources_servers/small", repository=name, id=id, **made)
    finally:
        subprocess.run(["docker", "rmi", "--force", id], check=False, capture_output=True)


def _bridge() -> str:
    bridge = Engine.connect().api.networks.get("bridge").attrs["IPAM"]["Config"][0]
    return str(bridge.get("Gateway") or "172.17.0.1")


async def _there_and_back(image: LockedImage, host: str) -> LockedImage:
    """Push an image, verify it, remove it here and pull it by digest."""
    engine = Engine.connect()
    async with Registry(host) as client:
        (pushed,) = await push_images([image], Place(host, "bench/"), engine, client, Silent())
    async with Registries() as registries:
        found = await lock_findings(Lock().with_images([pushed.image]), registries, engine, is_deep=True)
    assert {one.status for one in found} == {"ok"}
    assert any(one.name.endswith("SBOM") for one in found)
    assert pushed.image.pinned is not None
    for command in (("rmi", "--force", image.id), ("pull", "--quiet", pushed.image.pinned)):
        assert (await engine.run(*command)).exit_code == 0
    assert engine.image_id(image.id) == image.id
    return pushed.image


@pytest.mark.usefixtures("trusted")
async def test_image_goes_there_and_back_where_engine_and_gymctl_trust_the_ca(
    company: Company, docker_login: Login, small: LockedImage
) -> None:
    docker_login(company.registry.host, PASSWORD)
    await _there_and_back(small, company.registry.host)


async def test_image_goes_there_and_back_where_referrers_have_an_api_and_blobs_lie_elsewhere(
    docker_login: Login, small: LockedImage
) -> None:
    """And which wants tokens, and gives lists of one entry a page."""
    with oci_registry() as registry:
        docker_login(registry.host, PASSWORD)
        registry.login, registry.page, registry.location = STORED, 1, "query"
        registry.is_storing_elsewhere = True
        pushed = await _there_and_back(small, registry.host)
        path = pushed.repository.partition("/")[2]
        assert pushed.digest is not None and pushed.digest in registry.manifests[path]
        assert list(registry.tags[path]) == ["1"], f"no {fallback_tag(pushed.digest)}"
        elsewhere = [one for one in registry.asked if one.host.startswith("localhost")]
        assert elsewhere and not any(one.authorization for one in elsewhere)


async def test_repository_that_has_to_be_made_first_is_told(docker_login: Login, small: LockedImage) -> None:
    with oci_registry() as registry:
        docker_login(registry.host, PASSWORD)
        refused = {"errors": [{"code": "NAME_UNKNOWN", "message": "The repository does not exist"}]}
        registry.refusals["POST /v2/bench/"] = [web.json_response(refused, status=404) for _ in range(9)]
        async with Registry(registry.host) as client:
            with pytest.raises(PrerequisiteError, match="has no such repository") as error:
                await push_images([small], Place(registry.host, "bench/"), Engine.connect(), client, Silent())
    assert "made there first" in (error.value.hint or "")


def test_engine_that_does_not_trust_the_ca_is_told_before_anything_is_built(
    company: Company, docker_login: Login, tmp_path: Path
) -> None:
    host = company.registry.host
    docker_login(host, PASSWORD)
    environ = {"GYMCTL_CA_BUNDLE": str(company.authority.file)}
    done = gymctl("push", "weather", "--registry", f"{host}/bench", cwd=tmp_path, environ=environ)
    assert done.returncode == 3, done.stderr
    assert f"the engine does not trust the certificate of {host}" in done.stderr
    assert f"/etc/docker/certs.d/{host}/ca.crt" in done.stderr
    assert "images" not in done.stderr and PASSWORD not in done.stderr + done.stdout


async def test_engine_that_wants_tls_where_there_is_none_is_told_before_anything_is_built(
    tmp_path: Path,
) -> None:
    with serve(tmp_path, address=_bridge()) as plain:
        with pytest.raises(PrerequisiteError, match="does not speak TLS") as error:
            await check_engine(Place(plain.host, "bench/"), Engine.connect())
        assert f"add {plain.host} to `insecure-registries`" in (error.value.hint or "")


async def test_engine_that_has_nothing_to_say_on_tls_says_nothing(tmp_path: Path) -> None:
    """Nothing is there yet, or it wants a login: the push tells better."""
    with serve(tmp_path, htpasswd=HTPASSWD) as closed, serve(_below(tmp_path)) as running:
        for registry in (closed, running):
            await check_engine(Place(registry.host, "bench/"), Engine.connect())


async def test_registry_of_this_machine_may_speak_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    with serve(tmp_path, certificate=authority.signed("127.0.0.1")) as running:
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
        async with running.client() as client:
            assert await client.tags("a/b") == []
        async with running.client(plain_http=True) as client:
            with pytest.raises(PrerequisiteError, match="speaks TLS"):
                await client.tags("a/b")


def _below(folder: Path) -> Path:
    made = folder / "other"
    made.mkdir()
    return made
