"""Behind a company's walls: a build gets its package through proxy, token and CA, and keeps none of them."""

from __future__ import annotations

import os
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.company import PACKAGE, Company, company

from gymctl.config.model import BuildSettings, Config
from gymctl.engine import Engine
from gymctl.errors import EngineError
from gymctl.images import base as base_image
from gymctl.images.build import ensure
from gymctl.images.locking import lock_of
from gymctl.images.plan import plan_base, plan_servers
from gymctl.images.sbom import sbom

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]


@pytest.fixture
def walls(tmp_path: Path, engine: Engine) -> Iterator[Company]:
    """On the address of Docker's bridge: to a build, this machine's loopback is its own."""
    bridge = engine.api.api.inspect_network("bridge")["IPAM"]["Config"][0]
    place = tmp_path / "company"
    place.mkdir()
    with company(bridge.get("Gateway") or "172.17.0.1", place) as walls:
        yield walls


def behind(config: Config, walls: Company) -> Config:
    block = BuildSettings(
        ca_bundle=str(walls.folder / "ca.pem"), index_url=walls.index_url, https_proxy=walls.proxy_url
    )
    return replace(config, settings=config.settings.model_copy(update={"build": block}))


def server(root: Path, name: str, requirement: str) -> Path:
    folder = root / name
    folder.mkdir()
    (folder / "app.py").write_text("import walled_garden\nprint(walled_garden.FLOWERS)\n")
    (folder / "requirements.txt").write_text(f"{requirement}\n")
    return folder


@pytest.fixture
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("UV_", "PIP_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


async def test_a_build_behind_the_walls_keeps_nothing_of_them(
    tmp_path: Path,
    engine: Engine,
    own_base: str,
    walls: Company,
    config_of: Callable[..., Config],
    reporter: Any,
    no_variables: None,
) -> None:
    base = await ensure(config_of(), engine, reporter)  # from the usual index
    config = behind(config_of(server(tmp_path, "walled", f"{PACKAGE}=={walls.version}")), walls)
    images = await ensure(config, engine, reporter)
    assert images.built == (images["walled"],)
    assert docker("run", "--rm", images["walled"], "python", "app.py") == "3\n"
    assert [hit.rpartition("/")[2] for hit in walls.index_hits if hit.endswith(".whl")]
    assert walls.proxy_hits, "the index was asked through the proxy"

    python = await base_image.choose(config, engine, reporter)
    plans = [plan_base(python), *plan_servers(config, base.base)]
    bill = (await sbom(engine, str(engine.image_id(images["walled"])), "walled")).decode()
    assert "walled" in bill
    assert walls.version in bill
    saved = tmp_path / "saved.tar"
    docker("save", "--output", str(saved), images["walled"])
    told = "\n".join(
        (
            *(docker(*look, images["walled"]) for look in (("history", "--no-trunc"), ("inspect",))),
            lock_of(plans, engine).text(),
            bill,
            "\n".join([*reporter.steps, *reporter.said]),
        )
    )
    assert [secret for secret in walls.planted if secret in told] == []
    assert found_in(saved, ("FLOWERS = 3",)), "what is in a layer is found"
    assert found_in(saved, walls.planted) == []


async def test_a_failing_build_shows_no_login(
    tmp_path: Path,
    engine: Engine,
    own_base: str,
    walls: Company,
    config_of: Callable[..., Config],
    reporter: Any,
    no_variables: None,
) -> None:
    await ensure(config_of(), engine, reporter)
    folder = server(tmp_path, "missing", "not-in-the-garden==2")
    with pytest.raises(EngineError) as caught:
        await ensure(behind(config_of(folder), walls), engine, reporter)
    told = "\n".join([str(caught.value), *reporter.said])
    assert "not-in-the-garden" in told
    assert [secret for secret in walls.planted[:3] if secret in told] == []


def docker(*command: str) -> str:
    return subprocess.run(("docker", *command), check=True, capture_output=True, text=True).stdout


def found_in(archive: Path, secrets: tuple[str, ...]) -> list[str]:
    """Which of `secrets` stand in an archive of `docker save`, or in its layers, which are not compressed."""
    found: list[str] = []
    with tarfile.open(archive) as outer:
        for entry in outer:
            content = outer.extractfile(entry)
            if content is None:
                continue
            data = content.read()
            assert data[:2] != b"\x1f\x8b", "a compressed layer would hide what is in it"
            found += [f"{entry.name}: {secret}" for secret in secrets if secret.encode() in data]
    return found
