"""A registry of their own for these tests, which need Debian's docker-registry and skopeo."""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes.own_registry import HTPASSWD, USER, LocalRegistry, serve

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    lacking = [name for name in ("docker-registry", "skopeo") if shutil.which(name) is None]
    mine = [item for item in items if HERE in item.path.parents]
    if not lacking or not mine:
        return
    if os.environ.get("CI") == "true":
        pytest.exit(
            f"registry tests are required: {', '.join(lacking)} (scripts/ensure_registry.sh)", returncode=1
        )
    for item in mine:
        item.add_marker(pytest.mark.skip(reason=f"no {', '.join(lacking)} (scripts/ensure_registry.sh)"))


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalRegistry]:
    with serve(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture(scope="module")
def closed_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalRegistry]:
    """One that lets in who knows the password."""
    with serve(tmp_path_factory.mktemp("closed"), htpasswd=HTPASSWD) as running:
        yield running


@pytest.fixture
def docker_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Store a login as `docker login` does, in a configuration folder of this test's own."""
    folder = tmp_path / "docker-config"
    folder.mkdir()
    monkeypatch.setenv("DOCKER_CONFIG", str(folder))

    def store(host: str, password: str) -> None:
        auth = base64.b64encode(f"{USER}:{password}".encode()).decode()
        (folder / "config.json").write_text(json.dumps({"auths": {host: {"auth": auth}}}))

    return store
