"""`gymctl eval` with an output that is there: gone on with, refused by name, or replaced when asked."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fakes.evaluations import REPO
from fakes.program import gymctl, processes_below, read_lines

RUN = ("eval", "weather", "--runtime", "process", "--limit", "3", "-o", "out/x.jsonl")
SECRET = "sk-verysecret-0001"


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of servers that lie in a folder of their own."""
    folder = tmp_path_factory.mktemp("done")
    weather = "resources_servers/weather"
    shutil.copytree(REPO / "server_images" / weather, folder / weather)
    first = gymctl(*RUN, "--search-dir", ".", "--model-api-key", SECRET, cwd=folder)
    assert first.returncode == 0, first.stderr
    return folder


@pytest.fixture
def folder(done: Path, tmp_path: Path) -> Path:
    return shutil.copytree(done, tmp_path / "run", ignore=shutil.ignore_patterns(".gymctl"))


def again(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return gymctl(*RUN, "--search-dir", ".", *more, cwd=folder)


def test_b103_another_configuration_is_refused_by_name_and_concurrency_is_none(folder: Path) -> None:
    before = (folder / "out/x.jsonl").read_bytes()
    warmer = again(folder, "--temperature", "0.5", "--limit", "2")
    seed = again(folder, "++policy_model.responses_api_models.scripted_model.seed=7")
    code = folder / "resources_servers/weather/app.py"
    text = code.read_text()
    code.write_text(text + "\n# another verifier\n")
    edited = again(folder)
    code.write_text(text)
    for refused, lines in (
        (warmer, ["limit: 3 → 2", "responses_create_params.temperature: nothing → 0.5"]),
        (seed, ["policy_model.responses_api_models.scripted_model.seed: 0 → 7"]),
        (edited, ["weather.code: sha256:"]),
    ):
        assert refused.returncode == 6, refused.stderr
        assert "made with something else" in refused.stderr
        for line in lines:
            assert line in refused.stderr
    assert "--fresh" in seed.stderr
    assert (folder / "out/x.jsonl").read_bytes() == before
    same = again(folder, "--concurrency", "2", "--min-coverage", "0.5", "--model-api-key", "sk-another-key-1")
    assert same.returncode == 0, same.stderr
    assert "3 of 3 are done, 0 to go" in same.stderr


def test_b104_a_complete_run_starts_no_server_and_prints_its_result(folder: Path) -> None:
    result = again(folder, "--json", "--model", "another")
    assert result.returncode == 0, result.stderr
    shown = json.loads(result.stdout)
    assert shown["rollouts"]["scored"] == 3
    assert shown["model"] is None, (
        "a scripted model has no name, and the rollouts were not made with this one"
    )
    assert "ready" not in result.stderr
    assert not (folder / ".gymctl").exists()


def test_a_run_is_gone_on_with_in_spite_of_a_difference_that_is_noted(folder: Path) -> None:
    path = folder / "out/x.jsonl"
    first, *_ = path.read_bytes().split(b"\n")
    path.write_bytes(first + b'\n{"reward": 1.0, "respon')
    went_on = again(
        folder, "++policy_model.responses_api_models.scripted_model.seed=7", "--resume-anyway", "--json"
    )
    assert went_on.returncode == 0, went_on.stderr
    assert "a last line of 23 bytes was cut off half written" in went_on.stderr
    assert json.loads(went_on.stdout)["coverage"] == 1.0
    assert sorted(record["_ng_task_index"] for record in read_lines(path)) == [0, 1, 2]
    passport = json.loads((folder / "out/x/passport.json").read_text())
    [entry] = passport["continued"]
    assert entry["in_spite_of"] == ["policy_model.responses_api_models.scripted_model.seed: 0 → 7"]
    assert SECRET not in (folder / "out/x/passport.json").read_text()
    assert processes_below(folder) == []


def test_fresh_alone_replaces_and_the_peer_does_so_unless_told_to_resume(folder: Path) -> None:
    kept = json.loads((folder / "out/x/passport.json").read_text())["run"]
    peer = [sys.executable, "-c", "from gymctl.cli.peer import gym; gym()", "eval", "run"]
    command = [
        *peer,
        *("--benchmark", "weather", "--split", "benchmark", "--limit", "3", "--search-dir", "."),
        "+output_jsonl_fpath=out/x.jsonl",
    ]
    resumed = subprocess.run([*command, "--resume"], cwd=folder, capture_output=True, text=True, check=False)
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads((folder / "out/x/passport.json").read_text())["run"] == kept
    fresh = again(folder, "--fresh", "--temperature", "0.5")
    assert fresh.returncode == 0, fresh.stderr
    assert "replaced the results of an earlier run" in fresh.stderr
    assert json.loads((folder / "out/x/passport.json").read_text())["run"] != kept
    assert len(read_lines(folder / "out/x.jsonl")) == 3


def test_compare_tells_what_two_runs_were_made_with_and_no_secret(folder: Path) -> None:
    seed, key = "policy_model.responses_api_models.scripted_model.seed", "sk-another-secret-2"
    more = ("-o", "out/y.jsonl", f"++{seed}=7", "--model-api-key", key, "--task-timeout", "50s")
    other = again(folder, *more)
    assert other.returncode == 0, other.stderr
    compared = gymctl("compare", "out/x.jsonl", "out/y.jsonl", cwd=folder)
    assert compared.returncode == 0, compared.stderr
    assert f" differs   config {seed} 7 ← 0\n" in compared.stdout
    assert "           limit --task-timeout 50.0 ← nothing\n" in compared.stdout
    as_json = gymctl("compare", "out/x.jsonl", "out/y.jsonl", "--json", cwd=folder)
    kept = (folder / "out/y/passport.json").read_text()
    for secret in (SECRET, key):
        assert secret not in compared.stdout + as_json.stdout + kept
