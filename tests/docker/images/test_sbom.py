"""The SBOM of a real image lists what the image's own package managers list."""

from __future__ import annotations

import asyncio
import json
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.program import gymctl
from packaging.utils import canonicalize_name

from gymctl.config.model import Config
from gymctl.engine import Engine
from gymctl.errors import IntegrityError
from gymctl.images import base
from gymctl.images.build import make
from gymctl.images.lock import read
from gymctl.images.locking import lock_of
from gymctl.images.plan import plan_base
from gymctl.images.sbom import NO_PYTHON, sbom, sboms


def inside(image: str, *command: str) -> str:
    run = ["docker", "run", "--rm", "--network", "none", "--entrypoint", command[0], image, *command[1:]]
    return subprocess.run(run, check=True, capture_output=True, text=True).stdout


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "gymctl" / "sbom"


@pytest.fixture
def image_without_python() -> Iterator[str]:
    tag = f"gymctl-test-bare:{uuid.uuid4().hex[:12]}"
    yield tag
    subprocess.run(["docker", "image", "rm", "--force", tag], capture_output=True, check=False)


def test_it_lists_what_pip_and_dpkg_list(
    engine: Engine, reporter: Any, config_of: Callable[..., Config], own_cache: Path
) -> None:
    config = config_of()
    plan = plan_base(asyncio.run(base.choose(config, engine, reporter)))
    asyncio.run(make([plan], engine, reporter, config.settings.build))
    image = engine.image_id(plan.tag)
    assert image is not None
    content = asyncio.run(sbom(engine, image, plan.source))
    found = json.loads(content)["components"]

    pip = ("/usr/local/bin/python3", "-m", "pip")
    environments = {
        "/opt/venv/": inside(image, *pip, "--python", "/opt/venv/bin/python", "list", "--format", "json"),
        "/usr/": inside(image, *pip, "list", "--format", "json"),
    }
    for place, listed in environments.items():
        expected = {(canonicalize_name(one["name"]), one["version"]) for one in json.loads(listed)}
        assert expected
        assert _of_environment(found, place) == expected

    shown = "${Package} ${Version} ${Architecture}\n"
    expected = set(inside(image, "dpkg-query", "--show", "--showformat", shown).splitlines())
    packages = [one for one in found if one["bom-ref"].startswith("dpkg:")]
    assert {
        f"{one['name']} {one['version']} {one['bom-ref'].rpartition(':')[2]}" for one in packages
    } == expected

    (kept,) = own_cache.iterdir()
    assert asyncio.run(sbom(engine, image, plan.source)) == content
    kept.unlink()
    assert asyncio.run(sbom(engine, image, plan.source)) == content


def _of_environment(found: list[dict[str, Any]], place: str) -> set[tuple[str, str]]:
    return {
        (canonicalize_name(one["name"]), one["version"])
        for one in found
        for item in one.get("properties", ())
        if item["name"] == "gymctl:environment" and item["value"].startswith(place)
    }


def test_an_image_without_python_is_read_from_outside(
    engine: Engine, image_without_python: str, tmp_path: Path
) -> None:
    context = tmp_path / "context"
    context.mkdir()
    (context / "status").write_text("Package: base-files\nVersion: 13.8\nArchitecture: amd64\n")
    (context / "os-release").write_text("ID=debian\nVERSION_ID=13\n")
    lines = ["FROM scratch", "COPY status /var/lib/dpkg/status.d/base", "COPY os-release /etc/os-release"]
    (context / "Dockerfile").write_text("\n".join(lines))
    build = [
        "docker",
        "buildx",
        "build",
        "--builder",
        engine.builder,
        "--load",
        "--tag",
        image_without_python,
    ]
    subprocess.run([*build, str(context)], check=True, capture_output=True)
    image = engine.image_id(image_without_python)
    assert image is not None
    content = json.loads(asyncio.run(sbom(engine, image, "bare")))
    assert [one.get("purl") for one in content["components"]] == [
        "pkg:deb/debian/base-files@13.8?arch=amd64&distro=debian-13",
        None,
    ]
    unread = [one["value"] for one in content["metadata"]["component"]["properties"]]
    assert NO_PYTHON in unread
    listed = subprocess.run(
        ["docker", "ps", "--all", "--quiet", "--filter", f"ancestor={image}"], capture_output=True, check=True
    )
    assert listed.stdout == b"", "the container that was read is left"


def test_an_image_that_is_not_there_is_refused(engine: Engine) -> None:
    with pytest.raises(IntegrityError, match="the image of `resources_servers/weather` is not there"):
        asyncio.run(sbom(engine, f"sha256:{'0' * 64}", "resources_servers/weather"))


def test_each_image_has_a_file_of_its_own(
    engine: Engine, reporter: Any, config_of: Callable[..., Config], tmp_path: Path
) -> None:
    config = config_of()
    plan = plan_base(asyncio.run(base.choose(config, engine, reporter)))
    asyncio.run(make([plan], engine, reporter, config.settings.build))
    (image,) = lock_of([plan], engine).images
    (file,) = asyncio.run(sboms(engine, [image], tmp_path / "bills"))
    assert file == tmp_path / "bills" / "base.cdx.json"
    assert file.read_bytes() == asyncio.run(sbom(engine, image.id, image.name))
    other = image.model_copy(update={"repository": "gymctl/other", "platform": "linux/arm64/v8"})
    names = [one.name for one in asyncio.run(sboms(engine, [image, other, other], tmp_path / "bills"))]
    mark = image.id[7:19]
    assert names == ["base.cdx.json", *[f"{mark}-other-arm64-v8.cdx.json"] * 2]


def test_build_writes_the_documents_of_what_it_built(engine: Engine, tmp_path: Path) -> None:
    done = gymctl("build", "resources_servers/counter", "--sbom", "bills", "-q", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lock = read(tmp_path / "images.lock.json")
    found = {file.name: json.loads(file.read_bytes()) for file in (tmp_path / "bills").iterdir()}
    assert sorted(found) == ["base.cdx.json", "resources-counter.cdx.json"]
    roots = {one["metadata"]["component"]["version"] for one in found.values()}
    assert roots == {image.id for image in lock.images}
