"""`gymctl eval` refuses what it can refuse before anything is started or written."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

GOOD = json.dumps({"responses_create_params": {"input": "hi"}})
STACK = ("--resources-server", "weather", "--model-type", "scripted_model", "--runtime", "process")
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def gymctl(tmp_path: Path) -> Run:
    (tmp_path / "rows.jsonl").write_text(GOOD + "\n")

    def run(*arguments: str, file_size: int | None = None) -> subprocess.CompletedProcess[str]:
        def limit() -> None:
            if file_size is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))

        return subprocess.run(
            [sys.executable, "-m", "gymctl", "eval", *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=60,
            check=False,
            # Else Python caches modules cut off at `file_size`, and everybody's next import fails.
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            preexec_fn=limit if file_size is not None else None,
        )

    return run


def refused(done: subprocess.CompletedProcess[str], code: int, *texts: str) -> None:
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert done.stderr.count("error:") == 1
    assert "Traceback" not in done.stderr
    for text in texts:
        assert text in done.stderr


def test_a_row_that_is_not_json(gymctl: Run, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(f"{GOOD}\n{GOOD}\n{{oops\n")
    done = gymctl(*STACK, "-i", "rows.jsonl", "-o", "out/x.jsonl")
    refused(done, 1, "this line is not JSON", "--> rows.jsonl:3")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.jsonl"]


def test_a_missing_input(gymctl: Run) -> None:
    refused(gymctl(*STACK, "-i", "none.jsonl", "-o", "x.jsonl"), 1, "does not exist", "--> none.jsonl")


def test_an_unknown_agent(gymctl: Run) -> None:
    done = gymctl(*STACK, "-i", "rows.jsonl", "-a", "weather_simple_agnt")
    refused(done, 1, "no agent `weather_simple_agnt`", "did you mean weather_simple_agent?")


def test_an_unknown_benchmark(gymctl: Run) -> None:
    done = gymctl("arithmetics", "--model-type", "scripted_model")
    assert done.returncode != 0
    assert "arithmetics" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_warning_is_told_also_when_quiet(gymctl: Run) -> None:
    done = gymctl(*STACK, "-i", "none.jsonl", "--concurrency", "100000", "--quiet")
    assert "warning: " in done.stderr
    assert "rollouts at once (--concurrency) measure this machine" in done.stderr


def test_a_config_without_a_benchmark_lists_what_it_has(gymctl: Run) -> None:
    refused(gymctl(*STACK), 1, "no dataset of type benchmark", "--input", "weather/data/example.jsonl")


def test_an_output_that_is_a_folder(gymctl: Run, tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    refused(gymctl(*STACK, "-i", "rows.jsonl", "-o", "results"), 3, "the output is a folder", "--> results")


def test_an_output_below_a_file(gymctl: Run) -> None:
    done = gymctl(*STACK, "-i", "rows.jsonl", "-o", "rows.jsonl/x.jsonl")
    refused(done, 3, "the output folder cannot be made")


def test_an_output_without_room(gymctl: Run, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text((GOOD + "\n") * 5000)
    (tmp_path / "x.jsonl").write_text("yesterday\n")
    done = gymctl(*STACK, "-i", "rows.jsonl", "-o", "x.jsonl", "--fresh", file_size=100_000)
    refused(done, 3, "the output cannot be written", "MB are free")
    assert (tmp_path / "x.jsonl").read_text() == "yesterday\n"
    assert not list(tmp_path.glob(".x*"))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["-k", "0"], "`--repeats` must be at least 1, got 0"),
        (["--limit", "-1"], "`--limit` must be 0 or more, got -1"),
        (["--concurrency", "0"], "`--concurrency` must be at least 1, got 0"),
        (["--min-coverage", "1.5"], "`--min-coverage` must be between 0 and 1, got 1.5"),
        (["--min-coverage", "nan"], "`--min-coverage` must be between 0 and 1, got nan"),
        (
            ["--runtime", "podman"],
            "`podman` is no runtime\n  --> --runtime\nhint: one of auto, compose, process",
        ),
        (
            ["--task-timeout", "0"],
            "`--task-timeout` must be a time above 0 (seconds, or 90s, 14m, 1h30m), got `0`",
        ),
        (["--task-timeout", "nan"], "got `nan`"),
        (["--task-timeout", "-1"], "got `-1`"),
    ],
)
def test_flags_out_of_range(gymctl: Run, arguments: list[str], text: str) -> None:
    refused(gymctl(*STACK, "-i", "rows.jsonl", *arguments), 2, text)


def test_no_serve_without_a_project(gymctl: Run) -> None:
    done = gymctl("--no-serve", "-i", "rows.jsonl", *STACK, "++head_server.port=9")
    refused(done, 3, "no running project answers", "http://127.0.0.1:9")


def test_no_serve_without_rows(gymctl: Run) -> None:
    refused(gymctl("--no-serve", *STACK[:4], "++head_server.port=9"), 3, "no running project answers")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("limit: -1", "`limit` must be at least 0, got `-1`"),
        ("num_repeats: {weather_agnt: 8, _default: 1}", "which no row and no server has"),
        ("split: example", "`split` must be"),
        ("agent_name: weather_simple_agnt", "did you mean weather_simple_agent?"),
        ("fan_out: {weather_simple_agent: [weather_simple_agent, nobody]}", "there is no agent `nobody`"),
        ("environment_routing_mode: legacy", "needs `environment_server_name`"),
    ],
)
def test_wrong_settings_in_a_file_are_refused_with_their_place(
    gymctl: Run, tmp_path: Path, text: str, told: str
) -> None:
    (tmp_path / "a.yaml").write_text(f"output_jsonl_fpath: x.jsonl\n{text}\n")
    (tmp_path / "x.jsonl").write_text("yesterday\n")
    row = {**json.loads(GOOD), "agent_ref": {"name": "weather_simple_agent"}}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    refused(gymctl(*STACK, "a.yaml", "-i", "rows.jsonl"), 1, told, "--> a.yaml:2")
    assert (tmp_path / "x.jsonl").read_text() == "yesterday\n"
    assert not (tmp_path / ".gymctl").exists()
    assert not list(tmp_path.glob("x_*"))


def test_a_split_that_no_dataset_has_lists_what_there_is(gymctl: Run) -> None:
    refused(gymctl("weather", "--split", "validation"), 1, "no dataset of type validation", "(benchmark)")


def test_b14_limits_that_are_no_count_of_rows(gymctl: Run) -> None:
    done = gymctl(*STACK, "-i", "rows.jsonl", "--limit", "1.5")
    assert done.returncode == 2
    assert "--limit" in done.stderr


def test_without_a_config_settings_are_read_from_env_yaml_and_overrides(gymctl: Run, tmp_path: Path) -> None:
    (tmp_path / "env.yaml").write_text("num_repeats: none\n")
    done = gymctl("--no-serve", "-i", "rows.jsonl", "++limit=3")
    refused(done, 1, "`num_repeats` must be a whole number, got `none`", "--> env.yaml:1:1")
