"""requirements.lock: which requirements it is of, when it is refused, and what an image does with it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gymctl.errors import IntegrityError
from gymctl.images.context import server_context
from gymctl.images.plan import server_dockerfile
from gymctl.images.requirements import FILE, digest, inputs, locked
from gymctl.paths import bundled

BUILT_IN = sorted(file.parent for file in (bundled() / "server_images").glob("*/*/app.py"))


def folder(root: Path, text: str = "tabulate==0.9.0\n", **more: str) -> Path:
    place = root / "resources_servers" / "mine"
    place.mkdir(parents=True)
    for name, content in {"requirements.txt": text, **more}.items():
        (place / name).write_text(content)
    return place


def lock(place: Path) -> None:
    header = f"# Written by hand.\n# inputs: sha256:{digest(inputs(place))}\n"
    (place / FILE).write_text(f"{header}tabulate==0.9.0 \\\n    --hash=sha256:{'0' * 64}\n")


@pytest.mark.parametrize("place", BUILT_IN, ids=lambda place: place.name)
def test_built_in_servers_that_add_packages_are_locked(place: Path) -> None:
    assert (locked(place) is not None) is bool(inputs(place))


def test_a_lock_that_fits_is_all_that_is_installed(tmp_path: Path) -> None:
    place = folder(tmp_path, **{"requirements-nodeps.txt": "zss==1.2.0\n"})
    lock(place)
    text = server_dockerfile(server_context(place)).text()
    installs = re.findall(r"uv pip install --quiet (.*?) -r (\S+)", text)
    assert [(name, "--offline" in options) for options, name in installs] == [
        (FILE, False),
        ("requirements.txt", True),
    ]
    assert "--require-hashes" in installs[0][0]
    assert f"source={FILE},target=/tmp/server/{FILE}" in text


@pytest.mark.parametrize("change", ["requirements.txt", "requirements-nodeps.txt"])
def test_a_lock_of_other_requirements_is_refused_with_the_command_that_makes_it_anew(
    tmp_path: Path, change: str
) -> None:
    place = folder(tmp_path)
    lock(place)
    (place / change).write_text("rich==15.0.0\n")
    with pytest.raises(IntegrityError) as caught:
        server_dockerfile(server_context(place))
    assert caught.value.exit_code == 9
    assert "does not fit the requirements of resources_servers/mine" in caught.value.what
    assert "gymctl build resources_servers/mine --lock-requirements" in str(caught.value.hint)


def test_a_lock_that_does_not_say_what_it_is_of_is_refused(tmp_path: Path) -> None:
    place = folder(tmp_path)
    (place / FILE).write_text("tabulate==0.9.0\n")
    with pytest.raises(IntegrityError, match="says nothing of what it was made from"):
        locked(place)


def test_the_project_file_counts_only_where_there_are_no_requirements(tmp_path: Path) -> None:
    project = {"pyproject.toml": "[project]\nname = 'mine'\n"}
    assert inputs(folder(tmp_path / "one", **project)).keys() == {"requirements.txt"}
    place = folder(tmp_path / "two", **project)
    (place / "requirements.txt").unlink()
    assert inputs(place).keys() == {"pyproject.toml"}
    assert inputs(folder(tmp_path / "three", "# nothing\n", **project)) == {}
