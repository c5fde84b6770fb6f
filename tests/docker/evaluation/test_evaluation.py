"""`gymctl eval` end to end with one container per server."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import evaluations
from fakes.program import gymctl, read_lines, start


def things_of(folder: Path) -> list[str]:
    """Containers and networks that carry the label of this folder's projects."""
    projects = [path.name for path in (folder / ".gymctl").glob("*") if path.is_dir()]
    found: list[str] = []
    for project in projects:
        label = f"label=dev.gymctl.project={project}"
        for command in (["ps", "-a"], ["network", "ls"]):
            listed = subprocess.run(
                ["docker", *command, "-q", "--filter", label], capture_output=True, text=True, check=True
            )
            found += listed.stdout.split()
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A user's folder; afterwards nothing of its projects may be left in the engine."""
    yield tmp_path
    assert things_of(tmp_path) == []


def test_64_sessions_at_once_stay_apart(folder: Path) -> None:
    evaluations.sessions_stay_apart(folder, "compose")


def test_the_scripted_benchmark_has_its_known_score(folder: Path) -> None:
    evaluations.scripted_weather_is_scored(folder, "compose")


def test_15_1_model_calls_are_on_record(folder: Path) -> None:
    evaluations.model_calls_are_on_record(folder, "compose")


def test_a_step_style_environment_is_played(folder: Path) -> None:
    evaluations.blackjack_is_played(folder, "compose")


def test_a_real_small_model_is_evaluated(folder: Path) -> None:
    evaluations.small_model_is_evaluated(folder, "compose")


def test_the_small_model_is_replayed_from_its_cassette(folder: Path) -> None:
    evaluations.small_model_is_replayed(folder, "compose")


def test_eval_uses_a_project_that_is_up(folder: Path) -> None:
    evaluations.running_project_is_used(folder, "compose")


def test_ps_shows_the_containers_of_an_evaluation_under_way(folder: Path) -> None:
    [project] = evaluations.servers_are_seen_while_it_runs(folder, "compose")
    assert all(server["image"].startswith("gymctl/") for server in project["servers"])


def test_what_a_killed_evaluation_left_running_is_used_and_then_removed(folder: Path) -> None:
    arguments = ("eval", "weather", "--runtime", "compose", "-o", "out.jsonl", "--concurrency", "2")
    with start(*arguments, evaluations.LATE, cwd=folder) as killed:
        end = time.monotonic() + 120
        while not (folder / "out.jsonl").exists() and killed.poll() is None and time.monotonic() < end:
            time.sleep(0.1)
        killed.kill()
        killed.communicate()
    assert things_of(folder) != []
    again = gymctl(*arguments, "--limit", "2", "--fresh", cwd=folder)
    assert again.returncode == 0, again.stderr
    assert "left running by an evaluation that was killed" in again.stderr
    assert things_of(folder) == []
    assert len(read_lines(folder / "out.jsonl")) == 2
