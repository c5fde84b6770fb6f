"""Registries that hand out tokens (as GitHub's and Docker's do): who is told the password, and who is not."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web

from gymctl.artefacts.descriptor import Descriptor
from gymctl.artefacts.registry import Registry
from gymctl.errors import PrerequisiteError

LOGIN = base64.b64encode(b"reader:correct-horse-7").decode()
DATA = b"bytes of a layer"


@dataclass
class Tokens:
    """A registry that wants a token, and the place that gives it to whoever has the login."""

    port: int = 0
    realm: str = ""
    """Where tokens are said to be; empty: here."""
    seen: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Path, and what came as Authorization."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        authorization = request.headers.get("Authorization", "")
        self.seen.append((request.path, authorization))
        if request.path == "/token":
            if authorization != f"Basic {LOGIN}":
                return web.json_response({}, status=401)
            return web.json_response({"token": f"token-{request.query['scope']}"})
        if request.path == "/elsewhere":
            return web.Response(body=DATA)
        path = request.path.split("/")[2]
        if authorization not in (
            f"Bearer token-repository:{path}:pull",
            f"Bearer token-repository:{path}:pull,push",
        ):
            realm = self.realm or f"http://127.0.0.1:{self.port}/token"
            challenge = f'Bearer realm="{realm}",service="registry.example"'
            return web.Response(status=401, headers={"WWW-Authenticate": challenge})
        if "/blobs/" in request.path:  # as registries on object stores do
            raise web.HTTPTemporaryRedirect(f"http://localhost:{self.port}/elsewhere")
        return web.json_response({"tags": ["b", "a"]})


@pytest.fixture
async def tokens() -> AsyncIterator[Tokens]:
    held = Tokens()
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", held.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        held.port = runner.addresses[0][1]
        yield held
    finally:
        await runner.cleanup()


@pytest.fixture
def login(tokens: Tokens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `docker login` stores it."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    auths = {f"127.0.0.1:{tokens.port}": {"auth": LOGIN}}
    (tmp_path / "config.json").write_text(json.dumps({"auths": auths}))


async def test_token_is_asked_for_once_with_the_login_that_docker_has(tokens: Tokens, login: None) -> None:
    async with Registry(f"127.0.0.1:{tokens.port}") as client:
        assert await client.tags("bench") == ["a", "b"]
        assert await client.tags("bench") == ["a", "b"]
    assert [path for path, _ in tokens.seen].count("/token") == 1


async def test_blob_that_lies_on_another_host_is_asked_for_without_the_token(
    tokens: Tokens, login: None
) -> None:
    async with Registry(f"127.0.0.1:{tokens.port}") as client:
        assert await client.read("bench", Descriptor.of("application/x", DATA)) == DATA
    assert ("/elsewhere", "") in tokens.seen


async def test_login_does_not_travel_in_clear_to_another_host(
    tokens: Tokens, login: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens.realm = f"http://localhost:{tokens.port}/token"
    monkeypatch.setattr("gymctl.artefacts.credentials.is_loopback", lambda host: False)
    async with Registry(f"127.0.0.1:{tokens.port}") as client:
        with pytest.raises(PrerequisiteError, match="does not let you"):
            await client.tags("bench")
    assert ("/token", "") in tokens.seen


async def test_without_a_login_the_message_says_what_to_do(
    tokens: Tokens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    async with Registry(f"127.0.0.1:{tokens.port}") as client:
        with pytest.raises(PrerequisiteError) as error:
            await client.tags("bench")
    assert error.value.hint == f"docker login 127.0.0.1:{tokens.port}"


def use_credential_helper(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Docker's configuration names a program that hands out logins."""
    program = folder / "docker-credential-test"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    (folder / "config.json").write_text('{"credsStore": "test"}')
    monkeypatch.setenv("DOCKER_CONFIG", str(folder))
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


async def test_helper_program_that_fails_is_told_without_its_words(
    tokens: Tokens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_credential_helper(tmp_path, "echo the-secret-of-the-store >&2; exit 1", monkeypatch)
    async with Registry(f"127.0.0.1:{tokens.port}") as client:
        with pytest.raises(PrerequisiteError, match="credential store") as error:
            await client.tags("bench")
    assert "the-secret-of-the-store" not in str(error.value)


async def test_helper_program_gives_the_login(
    tokens: Tokens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    login = '{"Username": "reader", "Secret": "correct-horse-7"}'
    use_credential_helper(tmp_path, f"echo '{login}'", monkeypatch)
    async with Registry(f"127.0.0.1:{tokens.port}") as client:
        assert await client.tags("bench") == ["a", "b"]
