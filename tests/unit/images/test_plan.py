"""Tags name content: every input counts, nothing else does."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymctl.config.model import Config, GlobalSettings, ServerBlock
from gymctl.contract.servers import KINDS
from gymctl.engine import Engine
from gymctl.images import plan as plans
from gymctl.images.build import command
from gymctl.images.context import FIXED_TIME, Context, server_context
from gymctl.images.plan import (
    LABEL_BASE,
    BaseImage,
    plan,
    plan_base,
    plan_server,
    registry_of,
    repository,
    server_dockerfile,
)
from gymctl.images.secrets import BuildSecrets

ENGINE = cast(Engine, SimpleNamespace(builder="default", platform="linux/amd64"))
PYTHON = BaseImage("python:3.13-slim", "sha256:" + "1" * 64)
# One path component of a repository name, as the engine's reference grammar has it.
COMPONENT = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*")


def server(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {"app_py": "app = 1", **files}.items():
        (folder / name.replace("_", ".")).write_text(text)
    return folder


def config(*blocks: tuple[str, Path]) -> Config:
    servers = {
        name: ServerBlock(
            name, "resources_servers", folder.name, "app.py", folder, {}, (), "127.0.0.1", -1, False
        )
        for name, folder in blocks
    }
    return Config("p", servers, "127.0.0.1", 11000, {}, GlobalSettings(), (), (), (), {})


def test_every_input_of_a_server_changes_its_tag(tmp_path: Path) -> None:
    folder = server(tmp_path / "weather", requirements_txt="tabulate")
    tags = [plan_server(folder, "resources_servers", "weather", "gymctl/base:1").tag]
    tags.append(plan_server(folder, "resources_servers", "weather", "gymctl/base:2").tag)
    server(folder, requirements_txt="tabulate>=0")
    tags.append(plan_server(folder, "resources_servers", "weather", "gymctl/base:1").tag)
    server(folder, Dockerfile="ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\n")
    tags.append(plan_server(folder, "resources_servers", "weather", "gymctl/base:1").tag)
    server(folder, app_py="app = 2")
    tags.append(plan_server(folder, "resources_servers", "weather", "gymctl/base:1").tag)
    assert len(set(tags)) == len(tags)


def test_every_input_of_the_base_changes_its_tag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {"Dockerfile.base": "FROM x", "base.lock": "a==1", "sdk.py": "x"}.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(plans, "bundled", lambda: tmp_path)
    files = {name: tmp_path / name for name in ("base.lock", "sdk.py")}
    monkeypatch.setattr(plans, "base_context", lambda: Context(files))
    tags = [plan_base(PYTHON).tag, plan_base(BaseImage(PYTHON.reference, "sha256:other")).tag]
    for name in ("Dockerfile.base", *files):
        (tmp_path / name).write_text("changed")
        tags.append(plan_base(PYTHON).tag)
    assert len(set(tags)) == len(tags) == 5


def test_the_name_of_the_python_image_does_not_count_but_its_content() -> None:
    assert plan_base(BaseImage("mirror/python:3.13", PYTHON.id)).tag == plan_base(PYTHON).tag


def test_planning_twice_gives_the_same_tags_and_edits_of_tests_do_not_count(tmp_path: Path) -> None:
    folder = server(tmp_path / "weather")
    before = plan(config(("w", folder)), PYTHON)
    (folder / "tests").mkdir()
    (folder / "tests" / "test_app.py").write_text("def test(): ...")
    assert [image.tag for image in plan(config(("w", folder)), PYTHON)] == [image.tag for image in before]


def test_instances_of_one_folder_share_an_image(tmp_path: Path) -> None:
    weather, counter = server(tmp_path / "weather"), server(tmp_path / "counter")
    images = plan(config(("a", weather), ("b", counter), ("c", weather)), PYTHON)
    assert [image.servers for image in images] == [("a", "c"), ("b",)]
    assert {image.parent for image in images} == {plan_base(PYTHON).tag}


@given(st.sampled_from(KINDS), st.text(max_size=60))
def test_repository_names_are_legal_whatever_the_folder_is_called(kind, implementation: str) -> None:
    prefix, name = repository(kind, implementation).split("/")
    assert prefix == "gymctl"
    assert COMPONENT.fullmatch(name)


@pytest.mark.parametrize(
    ("requirements", "whole_folder"),
    [
        ("tabulate>=0.9\n# ./not this", False),
        ("git+https://example.org/x.git", False),
        ("-r more.txt", True),
        ("-e .", True),
        ("tabulate\n  ./vendored/pkg", True),
        ("pkg @ file:///srv/pkg.whl", True),
        ("--find-links wheels", True),
    ],
)
def test_requirements_that_refer_to_files_see_the_whole_folder(
    tmp_path: Path, requirements: str, whole_folder: bool
) -> None:
    text = server_dockerfile(server_context(server(tmp_path, requirements_txt=requirements))).text()
    assert ("target=/tmp/server,rw" in text) is whole_folder
    assert ("source=requirements.txt," in text) is not whole_folder


def test_a_folder_without_requirements_installs_nothing(tmp_path: Path) -> None:
    text = server_dockerfile(server_context(server(tmp_path))).text()
    assert "pip install" not in text
    assert "cp -r /tmp/server/. /srv/server" in text


def test_pyproject_dependencies_are_installed(tmp_path: Path) -> None:
    folder = server(tmp_path, pyproject_toml='[project]\nname = "x"\ndependencies = ["tabulate"]')
    assert "-r pyproject.toml" in server_dockerfile(server_context(folder)).text()


def test_packages_without_their_dependencies_come_last(tmp_path: Path) -> None:
    folder = server(tmp_path, requirements_txt="tabulate", pyproject_toml="[project]")
    (folder / "requirements-nodeps.txt").write_text("zss")
    text = server_dockerfile(server_context(folder)).text()
    assert re.findall(r"uv pip install .*?(--no-deps)? -r (\S+)", text) == [
        ("", "requirements.txt"),
        ("--no-deps", "requirements-nodeps.txt"),
    ]
    assert text.count("source=requirements") == 2


def test_requirements_of_comments_only_install_nothing(tmp_path: Path) -> None:
    text = server_dockerfile(
        server_context(server(tmp_path, requirements_txt="# nothing\n\n  # at all"))
    ).text()
    assert "pip install" not in text


def test_a_dockerfile_of_the_folder_is_used_as_it_is(tmp_path: Path) -> None:
    own = "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nRUN echo '{{ not a template }}'\n"
    assert server_dockerfile(server_context(server(tmp_path, Dockerfile=own))).text() == own


def test_planted_secrets_are_in_no_tag_label_or_argument(tmp_path: Path) -> None:
    folder = server(tmp_path / "weather", requirements_txt="tabulate")
    bundle = tmp_path / "planted-ca.pem"
    bundle.write_text("planted-certificate")
    environ = {
        "UV_DEFAULT_INDEX": "https://user:planted-index@index.invalid/simple",
        "HTTPS_PROXY": "http://planted-proxy.invalid:3128",
        "NO_PROXY": "planted.invalid",
        "GYMCTL_CA_BUNDLE": str(bundle),
    }
    image = plan_server(folder, "resources_servers", "weather", "gymctl/base:1")
    with BuildSecrets.of(environ).options(tmp_path) as options:
        arguments = command(image, ENGINE, tmp_path / "Dockerfile", [*options, str(folder)])
    assert "planted" not in " ".join(arguments).replace(str(tmp_path), "")
    assert "planted" not in f"{image.tag} {image.labels} {image.dockerfile.text()}"


def dockerfiles(folder: Path) -> list[str]:
    texts = [(plans.bundled() / "Dockerfile.base").read_text()]
    texts.append(server_dockerfile(server_context(server(folder, requirements_txt="-r x"))).text())
    texts += [
        file.read_text() for file in sorted((plans.bundled() / "templates").glob("Dockerfile.nemo_gym*"))
    ]
    return texts


def test_the_dockerfiles_write_no_time_of_day(tmp_path: Path) -> None:
    texts = dockerfiles(tmp_path)
    assert len(texts) == 5
    for text in texts:
        assert not re.search(r"(?m)^(COPY|ADD)\b", text), "the folder that is copied to gets the time of day"
        assert "--compile-bytecode" not in text, "its bytes depend on which worker gets which file"


def test_the_time_of_a_staged_file_is_another_one_only_with_other_content(tmp_path: Path) -> None:
    """BuildKit does not look into a file whose place, size and time are those of the last context."""
    times: list[int] = []
    for name, text in (("one", "app = 1"), ("two", "app = 2"), ("three", "app = 1")):
        server_context(server(tmp_path / name, app_py=text)).copy_to(tmp_path / "staged" / name)
        times.append((tmp_path / "staged" / name / "app.py").stat().st_mtime_ns)
        assert (tmp_path / "staged" / name).stat().st_mtime == FIXED_TIME
    assert times[0] == times[2]
    assert times[0] != times[1]
    assert max(times) < FIXED_TIME * 10**9


def test_images_and_the_scripts_in_them_have_one_time(tmp_path: Path) -> None:
    server(tmp_path / "weather")
    assert f":-{FIXED_TIME}}}" in (plans.bundled() / "scripts" / "fixed_times.sh").read_text()
    image = plan_server(tmp_path / "weather", "resources_servers", "weather", "gymctl/base:1")
    assert f"SOURCE_DATE_EPOCH={FIXED_TIME}" in command(image, ENGINE, tmp_path, [])


def test_the_dockerfiles_build_on_old_engines(tmp_path: Path) -> None:
    for text in dockerfiles(tmp_path):
        assert not re.match(r"#\s*syntax\s*=", text)
        text = re.sub(r"(?m)^#.*|\{#[^#]*#\}", "", text)
        assert not re.search(r"<<|--link|--parents|--exclude|,env=|--network", text)
        assert not re.search(r"--mount=\S*\$", text), "variables in --mount need a newer BuildKit"


def test_the_host_of_a_companys_registry_is_in_no_label() -> None:
    image = plan_base(BaseImage("registry.example.com:5000/team/python:3.13", "sha256:1"))
    assert image.parent == "registry.example.com:5000/team/python:3.13"
    assert image.labels[LABEL_BASE] == "team/python:3.13"
    assert registry_of("localhost/x") == "localhost"
    assert registry_of("team/python:3.13") is None
    assert registry_of("python:3.13-slim") is None


@pytest.mark.parametrize(
    ("place", "changed"),
    [("README.md", []), ("app.py", ["two"]), ("requirements.txt", ["two"]), ("data/rows.jsonl", ["two"])],
)
def test_an_edit_changes_the_image_of_its_server_alone(
    tmp_path: Path, place: str, changed: list[str]
) -> None:
    """B50."""
    names = ("one", "two", "three")
    for name in names:
        folder = server(tmp_path / name, requirements_txt="tabulate", README_md="about")
        (folder / "data").mkdir()
        (folder / "data" / "rows.jsonl").write_text("{}\n")

    def tags() -> dict[str, str]:
        found = plan(config(*((name, tmp_path / name) for name in names)), PYTHON)
        return {one.servers[0]: one.tag for one in found}

    before = tags()
    assert tags() == before
    (tmp_path / "two" / place).write_text("edited")
    after = tags()
    assert [name for name in names if after[name] != before[name]] == changed
