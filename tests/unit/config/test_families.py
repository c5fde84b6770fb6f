"""Whose SDK a folder is written for is told from its requirements, else from its entrypoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from gymctl.config.families import family_of
from gymctl.paths import bundled


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("requirements.txt", "-e nemo-gym[dev] @ ../../\ntiktoken\n"),
        ("requirements.txt", "tiktoken\nnemo_gym==0.7.0\n"),
        ("pyproject.toml", '[project]\ndependencies = [\n  "nemo-gym[dev]",\n]\n'),
        ("app.py", "import json\nfrom nemo_gym.base_resources_server import SimpleResourcesServer\n"),
        ("app.py", "import nemo_gym\n"),
    ],
)
def test_a_folder_that_names_the_package_is_nemo_gyms(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)

    assert family_of(tmp_path) == "nemo_gym"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("requirements.txt", "# runs beside nemo-gym\ntiktoken\n"),
        ("requirements.txt", "nemo-gymnastics\n"),
        ("app.py", "# from nemo_gym import x\nfrom gymctl.servers import ResourcesServer\n"),
        ("app.py", "import nemo_gymnastics\n"),
        ("README.md", "nemo-gym\n"),
    ],
)
def test_a_folder_that_only_mentions_it_is_ours(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)

    assert family_of(tmp_path) == "gymctl"


def test_every_server_that_comes_with_gymctl_is_ours() -> None:
    folders = [app.parent for app in (bundled() / "server_images").glob("*/*/app.py")]

    assert folders
    assert {family_of(folder) for folder in folders} == {"gymctl"}


def test_a_stand_in_has_no_folder_to_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "requirements.txt").write_text("nemo-gym\n")
    monkeypatch.chdir(tmp_path)

    assert family_of(Path()) == "gymctl"
