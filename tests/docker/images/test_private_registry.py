"""A base image in a registry that wants a login: told with the command that helps."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from gymctl.config.model import BuildSettings, Config
from gymctl.engine import Engine
from gymctl.errors import EngineError
from gymctl.images import base

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]


class Closed(BaseHTTPRequestHandler):
    """A registry for those who have logged in; nobody has."""

    def do_GET(self) -> None:
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="team"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def registry() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Closed)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize("key", ["base_image", "registry_mirror"])
async def test_the_registry_and_docker_login_are_named(
    key: str,
    registry: str,
    engine: Engine,
    config_of: Callable[..., Config],
    reporter: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    block = BuildSettings.model_validate({key: f"{registry}/team"})
    config = config_of()
    config = replace(config, settings=config.settings.model_copy(update={"build": block}))
    monkeypatch.setattr(base, "PUBLIC", "python:not-on-this-machine")
    monkeypatch.setattr(base, "HOME_MADE", "gymctl-python:not-on-this-machine")
    with pytest.raises(EngineError) as caught:
        await base.choose(config, engine, reporter, {})
    assert caught.value.hint == f"`docker login {registry}`"
    assert f"{registry}/team" in caught.value.what
