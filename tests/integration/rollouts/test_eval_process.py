"""`gymctl eval` as a user runs it, on local processes: a score, and every way of being stopped."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakes.evaluations import REPO

SLOW = "++policy_model.responses_api_models.scripted_model.faults={latency_ms: 400}"
Eval = Callable[..., subprocess.Popen[str]]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def evaluate(tmp_path: Path) -> Iterator[Eval]:
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "gymctl", "eval", "weather", "--runtime", "process", "-o", "x.jsonl"]
        process = subprocess.Popen(
            [*command, f"++head_server.port={free_port()}", *arguments],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def servers(folder: Path) -> dict[str, int]:
    """Pids of running servers that belong to a project of this folder, by the part file they were given."""
    found: dict[str, int] = {}
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            variables = environ.read_bytes().split(b"\0")
        except OSError:
            continue
        for variable in variables:
            name, _, value = variable.decode("utf-8", "replace").partition("=")
            if name == "GYMCTL_PART" and value.startswith(str(folder)):
                found[Path(value).stem] = int(environ.parent.name)
    return found


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line] if path.exists() else []


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.05)


def wait_for_lines(path: Path, count: int, process: subprocess.Popen[str], of: bytes = b"") -> None:
    """Whole lines: the last one may just be written."""

    def found() -> int:
        whole = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        return sum(of in line for line in whole)

    wait_for(lambda: found() >= count, process)


def _weather_of_its_own(folder: Path, more: str) -> None:
    """The weather server with `more` in its class, for `--search-dir mine`."""
    weather = folder / "mine/resources_servers/weather"
    shutil.copytree(REPO / "server_images/resources_servers/weather", weather)
    app, mode = weather / "app.py", '    reverify_mode = "stateless"\n'
    assert app.read_text().count(mode) == 1
    app.write_text(app.read_text().replace(mode, mode + more))


def test_a_whole_evaluation(evaluate: Eval, tmp_path: Path) -> None:
    process = evaluate("--limit", "3", "-k", "2", "--json")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    result = json.loads(out)
    assert (result["reward"], result["coverage"], result["is_scripted"]) == (1.0, 1.0, True)
    assert result["rollouts"]["scored"] == 6
    keys = sorted((row["_ng_task_index"], row["_ng_rollout_index"]) for row in lines(tmp_path / "x.jsonl"))
    assert keys == [(task, rollout) for task in range(3) for rollout in range(2)]
    (entry,) = json.loads((tmp_path / "x_aggregate_metrics.json").read_bytes())
    assert entry["key_metrics"]["mean/reward"] == 1.0
    assert servers(tmp_path) == {}


def test_the_first_interrupt_drains_and_scores_what_is_done(evaluate: Eval, tmp_path: Path) -> None:
    """BUG_CASES B31: 130 for Ctrl+C; the running rollouts are waited for."""
    process = evaluate(SLOW, "-k", "40", "--concurrency", "4")
    wait_for_lines(tmp_path / "x.jsonl", 4, process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "draining" in err
    assert "not run" in out
    assert "interrupted" in out
    assert "the same command goes on with the others" in err
    done = len(lines(tmp_path / "x.jsonl"))
    assert 4 <= done < 400, "of 800"
    assert f"scored {done} " in out
    assert (tmp_path / "x_aggregate_metrics.json").exists()
    assert servers(tmp_path) == {}


def test_two_signals_stop_now_and_leave_whole_files(evaluate: Eval, tmp_path: Path) -> None:
    """BUG_CASES B31: 143 for SIGTERM, with rollouts in flight."""
    process = evaluate(SLOW.replace("400", "600000"), "-k", "40", "--concurrency", "4")
    wait_for_lines(tmp_path / "x/journal.jsonl", 4, process, of=b'"event":"sent"')
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    while "draining" not in (told := process.stderr.readline()):
        assert told, "it has heard the first signal before the second comes"
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=120)  # what runs would take ten minutes
    assert process.returncode == 143, err
    assert lines(tmp_path / "x.jsonl") == []
    assert "not run" in out
    assert servers(tmp_path) == {}


def test_an_interrupt_while_metrics_are_computed_loses_no_rollout(evaluate: Eval, tmp_path: Path) -> None:
    hold, held = tmp_path / "hold", tmp_path / "held"
    _weather_of_its_own(
        tmp_path,
        f"""
    def compute_metrics(self, tasks: object) -> dict[str, float]:
        import pathlib, time

        pathlib.Path({str(held)!r}).touch()
        while pathlib.Path({str(hold)!r}).exists():
            time.sleep(0.05)
        return {{}}
""",
    )
    hold.touch()
    head = f"++head_server.port={free_port()}"
    process = evaluate("--search-dir", "mine", "--limit", "2", head)
    wait_for(held.exists, process)
    assert len(lines(tmp_path / "x/journal.jsonl")) == 6, "begun, two sent, two ended, the end"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "coverage    2 of 2" in out
    assert "next: the same command again computes the metrics" in err
    assert "goes on with the others" not in err
    assert not (tmp_path / "x_aggregate_metrics.json").exists()
    assert servers(tmp_path) == {}
    hold.unlink()
    process = evaluate("--search-dir", "mine", "--limit", "2", head)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert (tmp_path / "x_aggregate_metrics.json").exists()
    assert len(lines(tmp_path / "x.jsonl")) == 2


def test_a_killed_server_ends_the_run_with_its_name(evaluate: Eval, tmp_path: Path) -> None:
    """BUG_CASES B35: exit code 5, the server and its end named, no rollout left hanging."""
    process = evaluate(SLOW, "-k", "40", "--concurrency", "4")
    wait_for_lines(tmp_path / "x.jsonl", 2, process)
    os.kill(servers(tmp_path)["weather"], signal.SIGKILL)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 5, err
    assert "`weather` stopped (exit 137)" in err
    assert "coverage is under 95%" in out
    for record in lines(tmp_path / "x_failures.jsonl"):
        assert record["_ng_failure_server"] == "weather"
        assert "reward" not in record
    assert len(lines(tmp_path / "x_failures.jsonl")) >= 1
    assert servers(tmp_path) == {}


def test_an_evaluation_with_another_model_does_not_touch_one_that_runs(
    evaluate: Eval, tmp_path: Path
) -> None:
    hold, held = tmp_path / "hold", tmp_path / "held"
    _weather_of_its_own(
        tmp_path,
        f"""
    async def seed(self) -> None:
        import asyncio, pathlib

        pathlib.Path({str(held)!r}).touch()
        while pathlib.Path({str(hold)!r}).exists():
            await asyncio.sleep(0.05)
""",
    )
    hold.touch()
    mine = ("--search-dir", "mine")
    first = evaluate(*mine, "--limit", "2", "-k", "2", "--concurrency", "2", "--json")
    wait_for(held.exists, first)
    second = evaluate(*mine, SLOW, "--limit", "1", "-o", "y.jsonl")
    _, err = second.communicate(timeout=120)
    assert second.returncode == 3, err
    assert "in use by `gymctl eval`" in err
    assert "--project" in err
    hold.unlink()
    out, err = first.communicate(timeout=120)
    assert first.returncode == 0, err
    assert json.loads(out)["rollouts"]["scored"] == 4
    assert servers(tmp_path) == {}


def test_a_project_that_was_up_stays_up_also_when_its_servers_were_started_anew(
    evaluate: Eval, tmp_path: Path
) -> None:
    head = f"++head_server.port={free_port()}"
    gymctl = [sys.executable, "-m", "gymctl"]
    up = [*gymctl, "up", "weather", "-d", "--runtime", "process", head]
    subprocess.run(up, cwd=tmp_path, check=True, capture_output=True)
    try:
        process = evaluate(head, SLOW.replace("400", "1"), "--limit", "1")
        _, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        assert "stays up" in err
        time.sleep(1)
        assert len(servers(tmp_path)) == 5
    finally:
        subprocess.run([*gymctl, "down"], cwd=tmp_path, check=True, capture_output=True)
    assert servers(tmp_path) == {}


def test_evaluations_that_start_at_once_do_not_fight_for_the_default_head_port(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gymctl", "eval", "weather", "--runtime", "process", "--limit", "1"]
    running: list[subprocess.Popen[str]] = []
    for name in ("a", "b"):
        folder = tmp_path / name
        folder.mkdir()
        running.append(
            subprocess.Popen(
                command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )
        )
    for process in running:
        _, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
    assert servers(tmp_path) == {}
