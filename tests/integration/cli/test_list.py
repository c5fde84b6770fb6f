"""`gymctl list`: what is found over the search roots, and what it needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gymctl.cli.main import main

APP = "from nemo_gym.base_resources_server import SimpleResourcesServer\nimport vllm\n"
CONFIG = "far:\n  resources_servers:\n    far: {entrypoint: app.py, domain: other}\n"


@pytest.fixture(autouse=True)
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A search root with one server of NeMo Gym's, and one benchmark on it."""
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "root"
    for name, text in {
        "resources_servers/far/app.py": APP,
        "resources_servers/far/requirements.txt": "-e nemo-gym[dev] @ ../../\n",
        "resources_servers/far/configs/far.yaml": CONFIG,
        "resources_servers/far/configs/judged.yaml": CONFIG.replace(
            "other}", "other, judge: {type: responses_api_models, name: referee}}"
        ),
        "benchmarks/race/config.yaml": "config_paths: [resources_servers/far/configs/far.yaml]\n",
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["list", *arguments])
    told = capsys.readouterr()
    return int(ended.value.code or 0), told.out, told.err


def test_a_row_says_kind_family_configs_and_needs(far: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "--search-dir", str(far))
    assert code == 0
    rows = [line.split() for line in out.splitlines()]
    assert ["resources", "far", "nemo_gym", "gpu", "judge?", "far", "/judged"] in rows
    assert ["benchmarks", "race", "-", "gpu", "race"] in rows
    assert ["agents", "simple_agent", "gymctl", "-", "simple_agent"] in rows
    assert "`?`: only some of its configs" in err


def test_kinds_names_and_needs_choose(far: Path, capsys: pytest.CaptureFixture[str]) -> None:
    search = ("--search-dir", str(far))
    _, out, err = run(capsys, "resources", "f*", "w?ather", *search)
    assert [line.split()[1] for line in out.splitlines()[1:]] == ["far", "weather"]
    assert "2 resources" in err
    _, out, _ = run(capsys, "resources_servers", "f*", *search, "--without", "judge,network")
    assert len(out.splitlines()) == 1
    _, out, _ = run(capsys, "benchmarks", *search, "--without", "gpu")
    assert "race" not in out
    assert "arithmetic" in out


def test_why_shows_the_line_behind_a_need(far: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "resources", "far", "--search-dir", str(far), "--why")
    folder = far / "resources_servers/far"
    assert f"gpu       package vllm --> {folder}/app.py:2:1" in out
    assert "  far/judged\n    judge     judge: referee --> " in out


def test_json_has_it_all(far: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, err = run(capsys, "resources", "far", "--search-dir", str(far), "--json")
    (row,) = json.loads(out)
    folder = far / "resources_servers/far"
    assert err == ""
    assert {key: row[key] for key in ("kind", "name", "family", "folder")} == {
        "kind": "resources_servers",
        "name": "far",
        "family": "nemo_gym",
        "folder": str(folder),
    }
    assert row["needs"] == [
        {"kind": "gpu", "what": "package vllm", "where": f"{folder}/app.py:2:1", "certain": True}
    ]
    needs: dict[str, list[Any]] = {config["name"]: config["needs"] for config in row["configs"]}
    assert needs["far"] == []
    assert [need["kind"] for need in needs["far/judged"]] == ["judge"]


@pytest.mark.parametrize("arguments", [["servers"], ["--without", "gpus"], ["--search-dir", "nowhere"]])
def test_a_word_that_means_nothing_is_a_usage_error(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
