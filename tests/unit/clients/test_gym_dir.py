from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from gymctl.clients import gym_dir, wheel
from gymctl.config.load import load
from gymctl.config.sources import Selection
from gymctl.errors import ConfigError, UsageError
from gymctl.paths import bundled

WEATHER = "resources_servers/weather/configs/weather.yaml"


def test_it_holds_configs_and_data_under_the_paths_of_nemo_gym(tmp_path: Path) -> None:
    made = gym_dir.write(tmp_path / "Gym", [])
    assert not made.is_refreshed
    for name in (
        WEATHER,
        "resources_servers/weather/data/example.jsonl",
        "responses_api_agents/simple_agent/configs/simple_agent.yaml",
        "responses_api_models/vllm_model/configs/vllm_model_for_training.yaml",
    ):
        assert (made.folder / name).read_bytes() == (bundled() / "server_images" / name).read_bytes()
    assert not list(made.folder.rglob("*.py"))


def test_it_depends_on_the_checkout_that_wrote_it(tmp_path: Path) -> None:
    made = gym_dir.write(tmp_path / "Gym", [])
    project = tomllib.loads((made.folder / "pyproject.toml").read_text("utf-8"))
    assert project["project"]["dependencies"] == ["gymctl"]
    assert project["tool"]["uv"]["sources"]["gymctl"] == {"path": str(wheel.checkout()), "editable": True}


def test_servers_of_other_folders_are_found_from_it(tmp_path: Path) -> None:
    other = tmp_path / "öther"
    folder = other / "resources_servers" / "dice"
    (folder / "configs").mkdir(parents=True)
    (folder / "app.py").write_text("")
    (folder / "requirements.txt").write_text("")
    block = "dice: {resources_servers: {dice: {entrypoint: app.py, domain: games}}}\n"
    (folder / "configs" / "dice.yaml").write_text(block)
    made = gym_dir.write(tmp_path / "Gym", [other])
    config = load(
        Selection(config=("resources_servers/dice/configs/dice.yaml",)), cwd=made.folder, environ={}
    )
    assert config.servers["dice"].folder == folder.resolve()
    assert [path.name for path in config.files] == ["dice.yaml"]
    assert config.files[0].is_relative_to(made.folder)


def test_configs_of_the_first_root_count(tmp_path: Path) -> None:
    for name in ("first", "second"):
        path = tmp_path / name / WEATHER
        path.parent.mkdir(parents=True)
        path.write_text(f"# {name}\n")
    made = gym_dir.write(tmp_path / "Gym", [tmp_path / "first", tmp_path / "second"])
    assert (made.folder / WEATHER).read_text() == "# first\n"


def test_a_second_time_refreshes_and_keeps_what_the_user_wrote(tmp_path: Path) -> None:
    extra = tmp_path / "extra" / "resources_servers" / "dice" / "configs" / "dice.yaml"
    extra.parent.mkdir(parents=True)
    extra.write_text("{}\n")
    folder = tmp_path / "Gym"
    gym_dir.write(folder, [tmp_path / "extra"])
    (folder / "env.yaml").write_text("policy_api_key: mine\n")
    (folder / WEATHER).write_text("old: 1\n")
    own = folder / "resources_servers" / "weather" / "configs" / "resources_only.yaml"
    own.write_text("a: 1\n")
    made = gym_dir.write(folder, [])
    assert made.is_refreshed
    assert (folder / "env.yaml").read_text() == "policy_api_key: mine\n"
    assert own.read_text() == "a: 1\n"
    assert "old" not in (folder / WEATHER).read_text()
    assert not (folder / "resources_servers" / "dice" / "configs" / "dice.yaml").exists()
    assert "extra" not in (folder / "pyproject.toml").read_text()


def test_an_env_file_may_be_there_first(tmp_path: Path) -> None:
    (tmp_path / "env.yaml").write_text("policy_api_key: mine\n")
    gym_dir.write(tmp_path, [])
    assert (tmp_path / "env.yaml").read_text() == "policy_api_key: mine\n"


@pytest.mark.parametrize("name", ["notes.txt", "pyproject.toml", ".git"])
def test_a_folder_of_somebody_else_is_refused_and_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("[tool.other]\n")
    with pytest.raises(UsageError, match="holds something else") as caught:
        gym_dir.write(tmp_path, [])
    assert name in caught.value.what
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "Gym").write_text("")
    with pytest.raises(UsageError, match="is a file"):
        gym_dir.write(tmp_path / "Gym", [])


def test_a_search_folder_that_went_away_is_told(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    made = gym_dir.write(tmp_path / "Gym", [tmp_path / "gone"])
    (tmp_path / "gone").rmdir()
    with pytest.raises(ConfigError, match="gone` is not a folder") as caught:
        load(Selection(config=(WEATHER,)), cwd=made.folder, environ={})
    assert "gym-dir" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[tool.gymctl]\nsearch-dirs = 'a'\n", "must be a list of folders"),
        ("[tool.gymctl]\nsearch-dirs = [\n", "not valid TOML"),
    ],
)
def test_a_wrong_table_is_an_error(tmp_path: Path, text: str, what: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(ConfigError, match=what):
        load(Selection(config=(WEATHER,)), cwd=tmp_path, environ={})


def test_the_toml_of_other_projects_is_nothing_to_us(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[broken\n")
    config = load(Selection(config=(WEATHER,), needs_model=False), cwd=tmp_path, environ={})
    assert "weather" in config.servers
