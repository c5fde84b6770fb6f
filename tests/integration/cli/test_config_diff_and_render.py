"""`gymctl config diff` and `config render` as processes, without an engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

SERVER = """\
judge:
  resources_servers:
    judge: {entrypoint: app.py, domain: math, api_key: "${policy_api_key}", note: team$model}
second:
  resources_servers:
    judge: {entrypoint: app.py, domain: math, port: 15011}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    server = tmp_path / "resources_servers/judge"
    server.mkdir(parents=True)
    (server / "app.py").touch()
    (server / "requirements.txt").touch()
    (tmp_path / "judge.yaml").write_text(SERVER)
    (tmp_path / "env.yaml").write_text("policy_api_key: sk-very-secret\n")
    (tmp_path / "a.yaml").write_text("x: 1\nonly: a\n")
    (tmp_path / "b.yaml").write_text("x: '1'\nmy_token: sk-very-secret\n")
    return tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gymctl", "config", *arguments],
        cwd=folder,
        env={**os.environ, "DOCKER_HOST": "unix:///nonexistent/docker.sock"},
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def test_differences_are_printed_a_line_each_with_both_places(folder) -> None:
    done = run(folder, "diff", "a.yaml", "b.yaml", "judge.yaml")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        '~ x: 1 → "1" (a.yaml:1:1 → b.yaml:1:1)',
        "- only = a (a.yaml:2:1)",
        "+ my_token = **** (b.yaml:2:1)",
    ]
    assert done.stderr.splitlines()[-1] == "3 values differ"


def test_differences_as_json_and_as_an_exit_code(folder) -> None:
    done = run(folder, "diff", "a.yaml", "b.yaml", "judge.yaml", "--json", "--exit-code")
    assert done.returncode == 1, done.stderr
    by_key = {item["key"]: item for item in json.loads(done.stdout)}
    assert by_key["only"] == {
        "key": "only",
        "a": {"value": "a", "source": "a.yaml", "line": 2, "column": 1},
        "b": None,
    }
    assert "sk-very-secret" not in done.stdout + done.stderr
    same = run(folder, "diff", "a.yaml", "a.yaml", "judge.yaml", "--exit-code")
    assert (same.returncode, same.stdout) == (0, "")


def test_two_benchmarks_are_compared_without_a_model(folder) -> None:
    done = run(folder, "diff", "weather", "weather/live")
    assert done.returncode == 0, done.stderr
    assert "- policy_model.responses_api_models.scripted_model.seed = 0" in done.stdout


def test_a_compose_file_is_rendered_with_no_engine_no_secret_and_nothing_written(folder) -> None:
    before = sorted(folder.rglob("*"))
    done = run(folder, "render", "judge.yaml")
    assert done.returncode == 0, done.stderr
    assert sorted(folder.rglob("*")) == before
    services = yaml.safe_load(done.stdout)["services"]
    assert sorted(services) == ["head", "judge", "second"]
    assert [services[name]["ports"][0]["published"] for name in ("judge", "second")] == ["10001", "15011"]
    assert services["judge"]["volumes"][0]["source"] == "./parts/judge.json"
    assert "start_interval" not in done.stdout
    assert "sk-very-secret" not in done.stdout + done.stderr
    assert "no engine answers" in done.stderr
    assert "`gymctl up` writes ./parts/" in done.stderr


def test_a_compose_file_is_written_to_a_file_the_same_every_time(folder) -> None:
    assert run(folder, "render", "judge.yaml", "-o", "out.yaml", "-q").stderr == ""
    assert (folder / "out.yaml").read_text() == run(folder, "render", "judge.yaml").stdout
    refused = run(folder, "render", "judge.yaml", "-o", "nowhere/out.yaml")
    assert refused.returncode == 3
    assert "the compose file cannot be written" in refused.stderr
