"""TLS with a registry: whose CA counts, and what is said when there is no TLS."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from aiohttp import web
from fakes.certificates import Authority

from gymctl.artefacts import tls
from gymctl.artefacts.registry import Registry
from gymctl.errors import ConfigError, PrerequisiteError

Serve = Callable[[ssl.SSLContext | None], Awaitable[str]]
ADDRESS = "127.0.0.1"


async def _tags(request: web.Request) -> web.StreamResponse:
    return web.json_response({"tags": [request.scheme]})


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "CERTS", tmp_path / "certs.d")
    monkeypatch.setattr(tls, "OWN", f"{tmp_path}/certs.d/{{host}}/client.cert")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    for name in ("XDG_CONFIG_HOME", "SSL_CERT_FILE", "GYMCTL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry is not on this machine."""
    monkeypatch.setattr("gymctl.artefacts.registry.is_loopback", lambda host: False)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    async with AsyncExitStack() as stack:

        async def start(context: ssl.SSLContext | None) -> str:
            app = web.Application()
            app.router.add_get("/v2/a/tags/list", _tags)
            runner = web.AppRunner(app)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await web.TCPSite(runner, ADDRESS, 0, ssl_context=context).start()
            return f"{ADDRESS}:{runner.addresses[0][1]}"

        yield start


async def refused(host: str, *, plain_http: bool = False) -> PrerequisiteError:
    async with Registry(host, plain_http=plain_http) as client:
        with pytest.raises(PrerequisiteError) as error:
            await client.tags("a")
    return error.value


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("place", ["SSL_CERT_FILE", "GYMCTL_CA_BUNDLE", "certs.d", "desktop", "rootless"])
async def test_ca_counts_wherever_the_engine_or_the_user_has_it(
    place: str, serve: Serve, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = await serve(authority.signed(ADDRESS).server())
    if place.isupper():
        monkeypatch.setenv(place, str(authority.file))
    else:
        below = {"certs.d": "certs.d", "desktop": ".docker/certs.d", "rootless": ".config/docker/certs.d"}
        file = tmp_path / below[place] / host / "ca.crt"
        file.parent.mkdir(parents=True)
        file.write_bytes(authority.file.read_bytes())
    async with Registry(host) as client:
        assert await client.tags("a") == ["https"]


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(
    ("name", "days", "is_trusted", "what", "hint"),
    [
        (ADDRESS, 2, False, "signed by a CA that is not trusted here", "/ca.crt"),
        (ADDRESS, -1, True, "has expired", "clock"),
        ("registry.example.com", 2, True, "made for another name", "subjectAltName"),
        ("127.0.0.2", 2, True, "made for another name", "subjectAltName"),
    ],
)
async def test_certificate_that_is_not_accepted_is_told_by_its_fault(
    name: str,
    days: int,
    is_trusted: bool,
    what: str,
    hint: str,
    serve: Serve,
    authority: Authority,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = await serve(authority.signed(name, days=days).server())
    if is_trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    error = await refused(host)
    assert f"the certificate of the registry {host} " in error.what and what in error.what
    assert hint in (error.hint or "") and error.exit_code == 3


@pytest.mark.usefixtures("elsewhere")
async def test_registry_without_tls_is_refused_unless_the_user_says_so(serve: Serve) -> None:
    host = await serve(None)
    error = await refused(host)
    assert error.what == f"the registry {host} does not speak TLS"
    assert "--plain-http" in (error.hint or "") and "insecure-registries" in (error.hint or "")
    async with Registry(host, plain_http=True) as client:
        assert await client.tags("a") == ["http"]


@pytest.mark.usefixtures("elsewhere")
async def test_registry_that_wants_a_certificate_gets_the_one_that_docker_has(
    serve: Serve, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = authority.signed(ADDRESS).server()
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(authority.file)
    host = await serve(context)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    error = await refused(host)
    assert f"it wants a certificate of yours: {tmp_path}/certs.d/{host}/client.cert" in (error.hint or "")
    ours, folder = authority.signed("client"), tmp_path / "certs.d" / host
    folder.mkdir(parents=True)
    (folder / "client.cert").write_bytes(ours.file.read_bytes())
    (folder / "client.key").write_bytes(ours.key.read_bytes())
    async with Registry(host) as client:
        assert await client.tags("a") == ["https"]


async def test_ca_bundle_that_is_none_is_refused_by_name(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GYMCTL_CA_BUNDLE", str(tmp_path / "none.pem"))
    with pytest.raises(ConfigError) as error:
        async with Registry("registry.example.com"):
            pass
    assert error.value.where == "GYMCTL_CA_BUNDLE" and "none.pem" in error.value.what


def test_a_ca_needs_no_extension_that_the_engine_does_not_ask_for() -> None:
    """Python 3.13 asks for it."""
    assert not tls.context("registry.example.com", {}).verify_flags & ssl.VERIFY_X509_STRICT
