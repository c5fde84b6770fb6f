"""What a prepare script needs, told from its text: a process of ours is enough, or a container."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gymctl.runtime.script_code import Code, read, reason_for_container

OURS = ".".join(map(str, sys.version_info[:2]))


def write(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def code(*modules: str, text: str = "") -> Code:
    return Code(text, frozenset(modules))


def test_modules_that_come_with_the_script_are_read_and_not_named(tmp_path: Path) -> None:
    write(
        tmp_path,
        benchmarks__sums__prepare="import json\nfrom . import rows\nfrom benchmarks.shared.tools import a\n",
        benchmarks__sums__rows="import datasets\n",
        benchmarks__shared__tools="def a():\n    from nemo_gym.prompt import load\n",
    )
    found = read(tmp_path / "benchmarks/sums/prepare.py", tmp_path)

    assert found.modules == {"datasets", "nemo_gym"}
    assert "nemo_gym.prompt" in found.text


def test_of_an_installation_only_its_own_folders_are_read(tmp_path: Path) -> None:
    write(tmp_path, benchmarks__sums__prepare="import datasets.load\n", datasets__load="import nemo_gym\n")
    script = tmp_path / "benchmarks/sums/prepare.py"

    assert read(script, tmp_path, ["benchmarks"]).modules == {"datasets"}
    assert read(script, tmp_path).modules == {"nemo_gym"}


def test_a_broken_helper_is_the_scripts_own_business_and_a_broken_script_is_not(tmp_path: Path) -> None:
    write(tmp_path, prepare="import helper\n", helper="def (\n")
    assert read(tmp_path / "prepare.py", tmp_path).modules == frozenset()
    with pytest.raises(SyntaxError):
        read(tmp_path / "helper.py", tmp_path)


def test_code_for_a_newer_python_is_read_all_the_same(tmp_path: Path) -> None:
    write(tmp_path, prepare="import helper\n", helper="import datasets\ntype Row = dict\n")
    found = read(tmp_path / "prepare.py", tmp_path)
    assert found.modules == {"datasets"}
    assert found.is_newer == (sys.version_info < (3, 12))


@pytest.mark.parametrize(
    ("found", "dependencies", "is_of_nemo_gym", "reason"),
    [
        (code(), (), True, None),
        (code("orjson"), (), True, None),
        (code("datasets"), (), True, "it imports `datasets`"),
        (code("datasets"), ("tiny",), True, "it imports `datasets`"),
        (code("datasets", "nemo_gym"), (), False, "it imports `nemo_gym`"),
        (code("tiny"), ("tiny",), False, None),
        (code("tiny", "nemo_gym"), ("tiny",), False, "it imports `nemo_gym`"),
        (code("datasets"), (), False, "it imports `datasets`"),
        (Code("", frozenset(), is_newer=True), (), False, f"it is written for a newer Python than {OURS}"),
        (code(text="subprocess.run(['uv'])"), (), True, "it runs other files or programs"),
        (code(text="subprocess.run(['uv'])"), (), False, None),
        (code(text="spec_from_file_location('a', b)"), (), True, "it runs other files or programs"),
    ],
)
def test_a_container_only_for_what_our_python_lacks(
    found: Code, dependencies: tuple[str, ...], is_of_nemo_gym: bool, reason: str | None
) -> None:
    told = reason_for_container(
        found, dependencies, is_of_nemo_gym=is_of_nemo_gym, has=lambda name: name == "orjson"
    )
    assert told == reason


@pytest.mark.parametrize("text", ["run(['git', 'clone'])", 'run("git clone x".split())'])
def test_git_is_seen_where_it_is_run(text: str) -> None:
    assert code(text=text).needs_git
    assert not code(text="# a git repository\nimport gitlab").needs_git


def test_variables_are_those_that_the_text_spells() -> None:
    assert code(text="os.environ['NGC_API_KEY'], getenv(\"HF_HOME\"), 'No'").variables == {
        "NGC_API_KEY",
        "HF_HOME",
    }
