"""NeMo Gym's own servers: which package they stand on, and what their images are made from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gymctl.config.model import Config, GlobalSettings, ServerBlock
from gymctl.images.nemo_gym import Package, package_of, place, plan_family, plan_nemo_gym, unused_locks
from gymctl.images.plan import BaseImage, ImagePlan
from gymctl.images.project import Pythons, by_server, plan_project

PYTHON = BaseImage("python:3.13-slim", "sha256:" + "1" * 64)
LINE = "-e nemo-gym[dev] @ ../../\n"


def folder(root: Path, name: str = "resources_servers/mcqa", **files: str) -> Path:
    made = root / name
    made.mkdir(parents=True, exist_ok=True)
    for file, text in {"app_py": "import nemo_gym\n", "requirements_txt": LINE, **files}.items():
        (made / file.replace("_", ".")).write_text(text)
    return made


def block(path: Path, name: str = "mcqa") -> ServerBlock:
    kind = path.parts[-3] if path.parts[-3].endswith("s") and "_" in path.parts[-3] else path.parts[-2]
    return ServerBlock(
        *(name, kind, path.name, "app.py", path, {}, (), "127.0.0.1", -1, False),  # type: ignore[arg-type]
        family="nemo_gym",
    )


def config(*blocks: ServerBlock) -> Config:
    servers = {one.name: one for one in blocks}
    return Config("p", servers, "127.0.0.1", 11000, {}, GlobalSettings(), (), (), (), {})


def image(path: Path) -> ImagePlan:
    return plan_nemo_gym(config(block(path)), PYTHON)[-1]


def image_of_base(path: Path) -> ImagePlan:
    return plan_nemo_gym(config(block(path)), PYTHON)[0]


def test_an_installation_names_its_version(tmp_path: Path) -> None:
    (tmp_path / "nemo_gym-0.6.0.dist-info").mkdir()

    assert package_of(block(folder(tmp_path))) == Package("nemo-gym==0.6.0")


def test_a_checkout_is_built_from_its_own_files(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "nemo-gym"\n')
    (tmp_path / "nemo_gym").mkdir()
    (tmp_path / "nemo_gym" / "core.py").write_text("x = 1\n")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref\n")
    path = folder(tmp_path)
    package = package_of(block(path))

    assert package == Package("nemo-gym", tmp_path)
    family = plan_family(package, PYTHON)
    assert "nemo-gym/nemo_gym/core.py" in family.context.files
    assert "nemo-gym/.git/HEAD" not in family.context.files
    assert "'/tmp/nemo-gym'" in family.dockerfile.text()
    (tmp_path / "nemo_gym" / "core.py").write_text("x = 2\n")
    assert plan_family(package, PYTHON).tag != family.tag


def test_where_a_checkout_lies_is_told_in_no_lock_and_no_label(tmp_path: Path) -> None:
    found: list[ImagePlan] = []
    for home in ("home-of-jane", "home-of-john"):
        (tmp_path / home).mkdir()
        (tmp_path / home / "pyproject.toml").write_text('[project]\nname = "nemo-gym"\n')
        found += plan_nemo_gym(config(block(folder(tmp_path / home))), PYTHON)
    assert [one.source for one in found] == ["nemo-gym checkout", "resources_servers/mcqa"] * 2
    assert "home-of" not in str([one.labels for one in found])
    assert found[0].inputs == found[2].inputs, "the same files are the same image, wherever they lie"


@pytest.mark.parametrize(
    ("requirements", "expected"),
    [("nemo-gym==0.5.1\n", "nemo-gym==0.5.1"), ("nemo_gym\n", "nemo-gym==0.7.0"), (LINE, "nemo-gym==0.7.0")],
)
def test_a_folder_that_lies_alone_takes_the_version_it_names(
    tmp_path: Path, requirements: str, expected: str
) -> None:
    assert package_of(block(folder(tmp_path, requirements_txt=requirements))).requirement == expected


def test_a_folder_in_a_group_keeps_its_place(tmp_path: Path) -> None:
    path = folder(tmp_path, "responses_api_agents/group/member")

    assert place(block(path)) == "responses_api_agents/group/member"
    assert package_of(block(path)).requirement == "nemo-gym==0.7.0"


def test_the_line_that_installs_the_package_from_above_is_met_by_the_base(tmp_path: Path) -> None:
    text = image(folder(tmp_path, requirements_txt=LINE + "tiktoken\n")).dockerfile.text()

    assert "'nemo-gym==0.7.0' -r others.txt" in text
    assert "cp -r /tmp/server/. /srv/gym/resources_servers/mcqa" in text


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("-e nemo-gym[dev,sandbox] @ ../..\n", "nemo-gym[sandbox]==0.7.0"),
        ("-e nemo-gym[all] @ ../..\n", "nemo-gym[sandbox]==0.7.0"),
        ("nemo_gym[ openshell , telemetry ]\n", "nemo-gym[openshell,telemetry]==0.7.0"),
        (LINE, "nemo-gym==0.7.0"),
    ],
)
def test_extras_are_kept_but_those_for_developers(tmp_path: Path, line: str, expected: str) -> None:
    assert f"'{expected}'" in image(folder(tmp_path, requirements_txt=line)).dockerfile.text()


def test_overrides_and_git_are_seen(tmp_path: Path) -> None:
    plain = image(folder(tmp_path / "a")).dockerfile.text()
    path = folder(
        tmp_path / "b", requirements_txt=LINE + "x @ git+https://example.org/x\n", overrides_txt="a==1"
    )
    text = image(path).dockerfile.text()

    assert "--override overrides.txt 'nemo-gym==0.7.0'" in text
    assert "install -y --no-install-recommends git" in text
    assert "--override" not in plain
    assert " git " not in plain


def test_a_server_that_clones_when_it_starts_has_git(tmp_path: Path) -> None:
    path = folder(
        tmp_path, setup_py='import subprocess\nsubprocess.run(["git", "clone", "https://example.org/x"])\n'
    )

    assert "install -y --no-install-recommends git" in image(path).dockerfile.text()


def test_a_project_file_that_names_a_repository_has_git(tmp_path: Path) -> None:
    text = '[project]\ndependencies = ["nemo-gym", "x"]\n[tool.uv.sources]\nx = { git = "https://a.b/x" }\n'
    path = folder(tmp_path, pyproject_toml=text)
    (path / "requirements.txt").unlink()

    assert "install -y --no-install-recommends git" in image(path).dockerfile.text()


def test_libraries_that_a_wheel_takes_for_granted_are_there(tmp_path: Path) -> None:
    text = image(folder(tmp_path, requirements_txt=LINE + "rdkit==2025.9.6\nnot-rdkit\n")).dockerfile.text()

    assert "install -y --no-install-recommends libxext6 libxrender1 >/dev/null" in text


def test_what_servers_import_of_the_developers_extra_is_in_the_base(tmp_path: Path) -> None:
    locked = image_of_base(folder(tmp_path / "a"))
    other = image_of_base(folder(tmp_path / "b", requirements_txt="nemo-gym==0.5.1\n"))

    assert "defusedxml==" in locked.context.files["nemo-gym-0.7.0.lock"].read_text()
    assert "'nemo-gym==0.5.1' 'defusedxml>=0.7.1'" in other.dockerfile.text()


def test_a_project_file_is_read_without_its_path_to_the_package(tmp_path: Path) -> None:
    path = folder(tmp_path, pyproject_toml='[project]\ndependencies = ["nemo-gym[dev]"]\n')
    (path / "requirements.txt").unlink()

    assert (
        "--no-sources-package nemo-gym 'nemo-gym==0.7.0' -r pyproject.toml" in image(path).dockerfile.text()
    )


def test_a_project_of_both_families_has_each_base_once(tmp_path: Path) -> None:
    theirs = [block(folder(tmp_path, f"resources_servers/{name}"), name) for name in ("one", "two")]
    ours = replace(block(folder(tmp_path, "resources_servers/mine", app_py="x"), "mine"), family="gymctl")
    plans = plan_project(config(*theirs, ours), Pythons(PYTHON, PYTHON))

    bases = [plan.source for plan in plans if plan.kind == "base"]
    assert bases == ["Dockerfile.base", "nemo-gym==0.7.0"]
    assert set(by_server(plans)) == {"one", "two", "mine"}
    parents = {plan.servers[0]: plan.parent for plan in plans if plan.servers}
    assert parents["one"] == parents["two"] != parents["mine"] == plans[0].tag


def test_our_own_container_half_is_no_part_of_the_family_base(tmp_path: Path) -> None:
    """An edit of the SDK must not install NeMo Gym's packages again."""
    family = plan_nemo_gym(config(block(folder(tmp_path))), PYTHON)[0]

    assert [name for name in family.context.files if name.startswith("gymctl/")] == []
    assert "nemo_gym_part.py" in family.context.files


def test_a_lock_of_packages_in_a_folder_of_theirs_is_told_to_be_unused(tmp_path: Path) -> None:
    held = block(folder(tmp_path, "resources_servers/held", requirements_lock="a==1\n"), "held")
    assert unused_locks(config(block(folder(tmp_path)), held)) == [held.folder / "requirements.lock"]
