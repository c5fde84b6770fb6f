"""The image of a prepare script: the family base, unless it needs git or packages of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from gymctl.images.nemo_gym import Package, plan_family
from gymctl.images.plan import BaseImage, ImagePlan
from gymctl.images.prepare_script import plan_prepare


@pytest.fixture(scope="module")
def family() -> ImagePlan:
    return plan_family(Package("nemo-gym==0.7.0"), BaseImage("python:3.13-slim", "sha256:1"))


def planned(family: ImagePlan, root: Path, *dependencies: str, needs_git: bool = False) -> ImagePlan:
    return plan_prepare(family, "benchmarks/sums/prepare.py", dependencies, root, needs_git=needs_git)


def test_a_script_that_needs_nothing_more_runs_on_the_family_base(family: ImagePlan, tmp_path: Path) -> None:
    assert planned(family, tmp_path) is family


def test_its_packages_are_part_of_the_name_and_installed_quoted(family: ImagePlan, tmp_path: Path) -> None:
    one = planned(family, tmp_path, "wonderwords", "tenacity>=8")
    text = one.dockerfile.text()

    assert "wonderwords 'tenacity>=8'" in text
    assert "install -y" not in text
    assert one.parent == family.tag
    assert one.tag != planned(family, tmp_path, "wonderwords").tag


def test_a_package_of_the_root_is_copied_and_not_installed_editable(
    family: ImagePlan, tmp_path: Path
) -> None:
    folder = tmp_path / "benchmarks" / "sums"
    folder.mkdir(parents=True)
    (folder / "pyproject.toml").write_text('dependencies = ["x @ git+https://host.example/x.git"]\n')
    plan = planned(family, tmp_path, "-e", "benchmarks/sums")
    text = plan.dockerfile.text()

    assert list(plan.context.files) == ["benchmarks/sums/pyproject.toml"]
    assert "family.constraints ./benchmarks/sums &&" in text
    assert "install -y --no-install-recommends git" in text


def test_git_is_installed_for_a_script_that_runs_it(family: ImagePlan, tmp_path: Path) -> None:
    text = planned(family, tmp_path, needs_git=True).dockerfile.text()
    assert "install -y --no-install-recommends git" in text
    assert "uv pip" not in text
