"""Names on the command line -> config files (CONTRACT 1.6, 1.7)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from gymctl.config.reading import selectors
from gymctl.config.reading.roots import SearchRoots
from gymctl.errors import UsageError
from gymctl.paths import install_roots


@pytest.fixture
def roots(tmp_path: Path) -> SearchRoots:
    for name in (
        "benchmarks/gsm8k/config.yaml",
        "benchmarks/gsm8k/hard.yaml",
        "benchmarks/gsm8k/easy/config.yaml",
        "benchmarks/gsm8k/easy.yaml",
        "environments/desk/config.yaml",
        "resources_servers/quiz/configs/quiz.yaml",
        "responses_api_models/vllm_model/configs/vllm_model.yaml",
        "responses_api_models/vllm_model/configs/long.yaml",
        "responses_api_agents/desk_agent/configs/fast.yaml",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return SearchRoots((tmp_path,))


@pytest.mark.parametrize(
    ("kind", "value", "path"),
    [
        (selectors.BENCHMARK, "gsm8k", "benchmarks/gsm8k/config.yaml"),
        (selectors.BENCHMARK, "gsm8k/hard", "benchmarks/gsm8k/hard.yaml"),
        (selectors.BENCHMARK, "gsm8k/easy", "benchmarks/gsm8k/easy/config.yaml"),
        (selectors.ENVIRONMENT, "desk", "environments/desk/config.yaml"),
        (selectors.RESOURCES_SERVER, "quiz", "resources_servers/quiz/configs/quiz.yaml"),
        (selectors.MODEL_TYPE, "vllm_model", "responses_api_models/vllm_model/configs/vllm_model.yaml"),
        (selectors.AGENT_TYPE, "desk_agent/fast", "responses_api_agents/desk_agent/configs/fast.yaml"),
        (selectors.MODEL_TYPE, "vllm_model/long", "responses_api_models/vllm_model/configs/long.yaml"),
    ],
)
def test_a_name_means_one_file(roots, kind, value, path) -> None:
    assert selectors.resolve(kind, value, roots) == (roots.folders[0] / path, None)


@pytest.mark.parametrize(
    ("kind", "value", "near"),
    [
        (selectors.BENCHMARK, "gsm8", "`gsm8k`"),
        (selectors.BENCHMARK, "gsm8k/hrad", "`gsm8k/hard`"),
        (selectors.MODEL_TYPE, "vllm_modle", "`vllm_model`"),
    ],
)
def test_an_unknown_name_shows_near_ones_and_the_searched_folders(roots, kind, value, near) -> None:
    with pytest.raises(UsageError) as caught:
        selectors.resolve(kind, value, roots)
    assert caught.value.exit_code == 2
    assert f"did you mean {near}" in (caught.value.hint or "")
    assert f"  {roots.folders[0] / kind.folder}" in caught.value.details
    assert kind.paths(value)[0] in caught.value.what


def test_a_word_that_is_no_benchmark_but_a_server_tells_its_flag(roots) -> None:
    with pytest.raises(UsageError) as caught:
        selectors.resolve(selectors.BENCHMARK, "quiz", roots)
    assert caught.value.hint == "there is one in resources_servers: --resources-server quiz"


@pytest.mark.parametrize("value", ["../benchmarks/gsm8k", "", "gsm8k/../gsm8k", "/etc"])
def test_a_name_never_leaves_its_folder(roots, value) -> None:
    with pytest.raises(UsageError):
        selectors.resolve(selectors.BENCHMARK, value, roots)


def test_the_highest_root_wins_with_a_warning(roots, tmp_path) -> None:
    upper = tmp_path / "upper"
    (upper / "benchmarks/gsm8k").mkdir(parents=True)
    (upper / "benchmarks/gsm8k/config.yaml").write_text("a: 1\n")
    path, warning = selectors.resolve(selectors.BENCHMARK, "gsm8k", SearchRoots((upper, *roots.folders)))
    assert path.is_relative_to(upper)
    assert str(tmp_path / "benchmarks/gsm8k/config.yaml") in (warning or "")


def test_a_copy_hides_nothing_until_one_of_its_files_is_another(roots, tmp_path) -> None:
    folder = "responses_api_models/vllm_model"
    (tmp_path / folder / "app.py").write_text("one")
    upper = tmp_path / "upper"
    shutil.copytree(tmp_path / folder, upper / folder)
    both = SearchRoots((upper, *roots.folders))
    assert selectors.resolve(selectors.MODEL_TYPE, "vllm_model", both)[1] is None
    (upper / folder / "app.py").write_text("two")
    path, warning = selectors.resolve(selectors.MODEL_TYPE, "vllm_model", both)
    assert path.is_relative_to(upper)
    assert "hides" in (warning or "")


def test_roots_come_in_winning_order_without_repeats(tmp_path) -> None:
    for name in ("asked", "extra", "work"):
        (tmp_path / name).mkdir()
    work = tmp_path / "work"
    extra = os.pathsep.join([str(tmp_path / "extra"), str(work), "", str(tmp_path / "extra")])
    found = SearchRoots.of(work, {"NEMO_GYM_EXTRA_ROOTS": extra}, ["../asked"])
    assert found.folders == (tmp_path / "asked", tmp_path / "extra", work, *install_roots())


def test_a_search_dir_that_is_no_folder_is_a_usage_error(tmp_path) -> None:
    with pytest.raises(UsageError, match="is not a folder") as caught:
        SearchRoots.of(tmp_path, {}, ["nemo-gym"])
    assert "nemo-gym==0.7.0" in str(caught.value.hint)
