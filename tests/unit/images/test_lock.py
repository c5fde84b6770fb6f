"""The lock holds what pyproject.toml asks for, with hashes, and says nothing about where it was made."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from gymctl.paths import bundled

NAME = re.compile(r"^([A-Za-z0-9._-]+)")


def normal(requirement: str) -> str:
    found = NAME.match(requirement)
    assert found
    return re.sub(r"[-_.]+", "-", found.group(1)).lower()


def locked(file: Path) -> dict[str, str]:
    """Name -> everything up to the next requirement."""
    blocks = re.split(r"(?m)^(?=[A-Za-z0-9])", file.read_text("utf-8"))
    return {normal(block): block for block in blocks if NAME.match(block)}


def test_every_package_of_the_servers_extra_is_locked() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text("utf-8"))
    wanted = {normal(line) for line in project["project"]["optional-dependencies"]["servers"]}
    assert wanted
    assert wanted <= locked(bundled() / "server_images" / "base.lock").keys()


@pytest.mark.parametrize("name", ["base.lock", "uv.lock"])
def test_every_locked_package_has_an_exact_version_and_hashes(name: str) -> None:
    packages = locked(bundled() / "server_images" / name)
    assert packages
    for package, block in packages.items():
        assert re.match(r"[A-Za-z0-9._-]+==[0-9][^ ]*", block), package
        assert "--hash=sha256:" in block, package


@pytest.mark.parametrize("name", ["base.lock", "uv.lock"])
def test_the_lock_names_no_index_and_no_path(name: str) -> None:
    text = (bundled() / "server_images" / name).read_text("utf-8")
    assert not re.search(r"https?://|--index|--find-links|/(root|home|tmp|work)\b", text)
