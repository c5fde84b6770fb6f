"""Whose images a benchmark brings, and which servers a name means."""

from __future__ import annotations

from pathlib import Path

import pytest

from gymctl.config.model import Config, GlobalSettings, ServerBlock
from gymctl.config.reading.roots import SearchRoots
from gymctl.config.shaping.standins import DUMMY
from gymctl.images.selection import HEAVY, ServerFolder, model_servers, named, with_images_of
from gymctl.paths import bundled

BUILT_IN = bundled() / "server_images"


def config(*blocks: ServerBlock) -> Config:
    servers = {block.name: block for block in blocks}
    return Config("p", servers, "127.0.0.1", 11000, {}, GlobalSettings(), (), (), (), {})


def block(name: str, implementation: str, folder: Path) -> ServerBlock:
    return ServerBlock(
        name, "responses_api_models", implementation, "app.py", folder, {}, (), "127.0.0.1", -1, False
    )


def test_every_small_built_in_model_server_goes_along() -> None:
    found = {one.implementation for one in model_servers()}
    assert {"openai_model", "vllm_model", "cassette_model", "scripted_model"} <= found
    folders = {file.parent.name for file in BUILT_IN.glob("responses_api_models/*/app.py")}
    assert found == folders - {*HEAVY}


@pytest.mark.parametrize("server", model_servers(), ids=lambda server: server.implementation)
def test_a_model_server_that_goes_along_installs_two_packages_at_most(server: ServerFolder) -> None:
    lines = (server.folder / "requirements.txt").read_text().splitlines()
    assert len([line for line in lines if line and not line.startswith("#")]) <= 2
    assert not (server.folder / "requirements-nodeps.txt").exists()


def test_what_stands_in_for_a_model_has_no_image_and_a_chosen_one_is_not_there_twice() -> None:
    openai = BUILT_IN / "responses_api_models" / "openai_model"
    made = with_images_of(
        config(block("policy_model", "openai_model", openai), block("judge", DUMMY, Path())), model_servers()
    )
    folders = [one.folder for one in made.servers.values()]
    assert folders.count(openai) == 1
    assert len(folders) == len(model_servers())
    assert made.servers["policy_model"].folder == openai


def test_a_name_means_servers_of_every_kind_in_the_highest_root(tmp_path: Path) -> None:
    places = ("top/resources_servers/echo", "low/resources_servers/echo", "low/responses_api_agents/echo")
    for place in places:
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "requirements.txt").write_text("")
    roots = SearchRoots((tmp_path / "top", tmp_path / "low"))
    found = {one.place: one.folder for one in named("echo", roots)}
    assert found == {
        "resources_servers/echo": tmp_path / "top/resources_servers/echo",
        "responses_api_agents/echo": tmp_path / "low/responses_api_agents/echo",
    }
    assert [one.place for one in named("responses_api_agents/echo", roots)] == ["responses_api_agents/echo"]
    for word in ("nothing", "resources_servers/", "benchmarks/echo", ".."):
        assert named(word, roots) == []
