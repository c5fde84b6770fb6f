"""Which servers use Ray is told from their text; nobody else starts it or waits for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gymctl.config.load import load
from gymctl.config.model import Config, ServerBlock
from gymctl.config.sources import Selection
from gymctl.errors import ConfigError

OURS = """\
from gymctl.servers import ResourcesServer


class Mine(ResourcesServer):
    {said}


app = Mine.app()
"""
THEIRS = """\
from nemo_gym.base_resources_server import SimpleResourcesServer


class Mine(SimpleResourcesServer):
    {said}


if __name__ == "__main__":
    Mine.run_webserver()
"""
NEWER = """
    def first[T](self, rows: list[T]) -> str:
        return f"{rows["first"]}"
"""
"""What Python 3.11 cannot parse; an image's Python can."""
CONFIG = "mine: {resources_servers: {mine: {entrypoint: app.py, domain: other}}}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.yaml").write_text(CONFIG)
    made = tmp_path / "resources_servers" / "mine"
    made.mkdir(parents=True)
    (made / "requirements.txt").write_text("")
    return made


def loaded(folder: Path, **selection: object) -> Config:
    chosen = Selection(config=("config.yaml",), **selection)  # type: ignore[arg-type]
    return load(chosen, cwd=folder.parents[1], environ={})


def block(folder: Path, text: str, **files: str) -> ServerBlock:
    (folder / "app.py").write_text(text)
    for name, content in files.items():
        (folder / f"{name}.py").write_text(content)
    return loaded(folder).servers["mine"]


@pytest.mark.parametrize(
    ("text", "uses"),
    [
        (OURS.format(said="ray_enabled = True"), True),
        (OURS.format(said="ray_enabled: bool = True"), True),
        (OURS.format(said="ray_enabled = False"), False),
        (OURS.format(said="pass"), False),
        (THEIRS.format(said="ray_enabled = True"), True),
        (THEIRS.format(said="ray_enabled = False"), False),
        (THEIRS.format(said="pass"), True),
        *((THEIRS.format(said=f"ray_enabled = {said}\n{NEWER}"), said) for said in (True, False)),
    ],
)
def test_a_class_says_whether_it_uses_ray(folder: Path, text: str, uses: bool) -> None:
    assert block(folder, text).uses_ray is uses


def test_the_nearest_base_that_says_it_decides(folder: Path) -> None:
    near = "from far import Far\n\n\nclass Near(Far):\n    ray_enabled = False\n"
    far = THEIRS.format(said="ray_enabled = True").replace("class Mine", "class Far").partition("\n\n\nif")[0]
    app = "from near import Near\n\n\nclass Mine(Near):\n    pass\n\n\nMine.run_webserver()\n"

    assert block(folder, "import nemo_gym\n" + app, near=near, far=far).uses_ray is False
    assert block(folder, "import nemo_gym\n" + app.replace("near", "far").replace("Near", "Far")).uses_ray


def test_a_base_may_lie_in_a_server_folder_of_another_root(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "checkout" / "resources_servers" / "base"
    other.mkdir(parents=True)
    (other / "app.py").write_text(THEIRS.format(said="ray_enabled = False"))
    (folder / "app.py").write_text(
        "import nemo_gym\nfrom resources_servers.base.app import Mine as Base\n\n\n"
        "class Mine(Base):\n    pass\n\n\nMine.run_webserver()\n"
    )

    assert loaded(folder).servers["mine"].uses_ray
    assert not loaded(folder, search_dir=("checkout",)).servers["mine"].uses_ray


def test_a_server_that_only_inherits_ray_runs_no_tasks_there(folder: Path) -> None:
    joins = block(folder, THEIRS.format(said="pass"))
    assert (joins.uses_ray, joins.runs_ray_tasks) == (True, False)

    (folder / "tests").mkdir()
    (folder / "tests" / "test_app.py").write_text("import ray\n")
    assert not loaded(folder).servers["mine"].runs_ray_tasks

    runs = block(folder, THEIRS.format(said="pass"), verifier="import ray\n")
    assert (runs.uses_ray, runs.runs_ray_tasks) == (True, True)


def test_ray_asked_for_without_a_server_that_uses_it_is_a_mistake(folder: Path) -> None:
    block(folder, OURS.format(said="pass"))

    with pytest.raises(ConfigError, match="no server of this project uses Ray") as raised:
        loaded(folder, ray=True)
    assert "`ray_enabled = True`" in str(raised.value)


def test_ray_asked_for_means_the_projects_own_whatever_the_config_names(folder: Path) -> None:
    (folder / "app.py").write_text(OURS.format(said="ray_enabled = True"))
    (folder.parents[1] / "config.yaml").write_text(f"{CONFIG}ray_head_node_address: ray://gpu-1:10001\n")

    assert loaded(folder).settings.ray.address == "ray://gpu-1:10001"
    own = loaded(folder, ray=True, ray_workers=3).settings.ray
    assert (own.address, own.workers, own.is_asked_for) == (None, 3, True)
