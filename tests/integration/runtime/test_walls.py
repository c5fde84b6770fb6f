"""Local processes behind a company's walls: uv is told of index, proxy and CA, its environments are not."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest
from fakes.company import PACKAGE, company

from gymctl.config.model import BuildSettings
from gymctl.images.secrets import BuildSecrets
from gymctl.runtime import envs


class Silent:
    def step(self, name: str, text: str) -> None: ...
    def note(self, text: str) -> None: ...
    def progress(self, text: str) -> None: ...


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.startswith(("UV_", "PIP_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_an_environment_is_made_through_the_walls_and_keeps_nothing_of_them(
    tmp_path: Path, cache: Path
) -> None:
    place = tmp_path / "company"
    place.mkdir()
    with company("127.0.0.1", place) as walls:
        lock = tmp_path / "lock.txt"
        lock.write_text(f"{PACKAGE}=={walls.version} --hash=sha256:{walls.digest}\n")
        block = BuildSettings(
            ca_bundle=str(place / "ca.pem"), index_url=walls.index_url, https_proxy=walls.proxy_url
        )
        network = BuildSecrets.of(os.environ, block)
        asyncio.run(envs._build_all({"one": envs.Recipe((), lock)}, network, (), Silent()))
        made = cache / "gymctl" / "envs" / "one"
        answer = subprocess.run(
            [made / "bin" / "python", "-c", "import walled_garden; print(walled_garden.FLOWERS)"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert answer.stdout == "3\n"
        assert walls.index_hits
        assert walls.proxy_hits
        texts = [file.read_bytes() for file in made.rglob("*") if file.is_file() and not file.is_symlink()]
        assert [one for one in walls.planted if any(one.encode() in text for text in texts)] == []
