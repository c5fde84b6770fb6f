"""`gymctl eval` with caps, as a user runs it, on local processes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PRICES = "date: 2026-11-02\nmodels: {scripted_model: {input: 2, output: 10}}\n"


def environ(home: Path) -> dict[str, str]:
    """With a home of its own, but the environments that other tests have made."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return {**os.environ, "HOME": str(home), "XDG_CACHE_HOME": cache}


def evaluate(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "gymctl", "eval", "weather", "--runtime", "process", "-o", "x.jsonl"]
    return subprocess.run(
        [*command, f"++head_server.port={port}", *arguments],
        cwd=folder,
        env=environ(folder),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def saved_metrics(folder: Path, *arguments: str) -> dict[str, Any]:
    """Of the run, by `gymctl metrics`."""
    shown = subprocess.run(
        [sys.executable, "-m", "gymctl", "metrics", "x.jsonl", "--json", *arguments],
        cwd=folder,
        env=environ(folder),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return json.loads(shown.stdout)


def test_a_run_stops_at_its_cap_with_exit_8_and_the_rest_is_made_later(tmp_path: Path) -> None:
    (tmp_path / "prices.yaml").write_text(PRICES)
    same = ("--prices", "prices.yaml", "--model", "scripted")
    shown = evaluate(tmp_path, "--concurrency", "1", "--max-tokens", "100", "--json", *same)
    assert shown.returncode == 8, shown.stderr
    assert "the run stopped at --max-tokens" in shown.stderr
    result = json.loads(shown.stdout)
    made = result["rollouts"]["scored"]
    assert 0 < made < 20
    assert result["rollouts"]["not_run"] == 20 - made
    assert result["tokens"]["input"] + result["tokens"]["output"] >= 100
    assert result["prices_of"] == "2026-11-02"
    cost = (result["tokens"]["input"] * 2 + result["tokens"]["output"] * 10) / 1e6
    assert result["cost_usd"] == pytest.approx(cost)
    saved = saved_metrics(tmp_path, "--prices", "prices.yaml", "--min-coverage", "0")
    own = {"title", "seconds", "files", "min_coverage", "reward", "interval_95", "interval_method", "health"}
    own |= {"pooled_mean", "pass_at", "pass_all"}  # above the floor that is lowered here
    common = result.keys() - own
    assert {key: saved[key] for key in common} == {key: result[key] for key in common}
    assert (saved["is_scripted"], saved["model"]) == (True, "scripted")

    rest = evaluate(tmp_path, *same)
    assert rest.returncode == 0, rest.stderr
    assert "outcomes    scored 20" in rest.stdout
    assert "prices of 2026-11-02" in rest.stdout
    assert len((tmp_path / "x.jsonl").read_bytes().splitlines()) == 20


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--max-cost", "1"], "the price of `scripted_model` is not known"),
        (["--max-cost", "0"], "`--max-cost` must be an amount above 0"),
        (["--max-time", "nan"], "`--max-time` must be a time above 0"),
        (["--retry", "weather=1"], "`--retry` must be CLASS=N"),
    ],
)
def test_caps_that_cannot_hold_are_refused_before_anything_starts(
    tmp_path: Path, arguments: list[str], words: str
) -> None:
    refused = evaluate(tmp_path, *arguments)
    assert refused.returncode == 2
    assert words in refused.stderr
    assert not list(tmp_path.glob("x*"))
    assert not (tmp_path / ".gymctl").exists()


def test_the_first_failure_ends_a_strict_run(tmp_path: Path) -> None:
    """BUG_CASES B99: `--strict` stops at the first failure on request."""
    rows = tmp_path / "rows.jsonl"
    row = {
        "responses_create_params": {"input": "no script fits this"},
        "agent_ref": {"name": "weather_agent"},
    }
    rows.write_text((json.dumps(row) + "\n") * 30)
    ended = evaluate(tmp_path, "-i", "rows.jsonl", "--strict", "--retry", "none", "--concurrency", "2")
    assert ended.returncode == 6, ended.stderr
    assert "and the run stops at the first failure" in ended.stderr
    assert 1 <= len((tmp_path / "x_failures.jsonl").read_bytes().splitlines()) <= 2
